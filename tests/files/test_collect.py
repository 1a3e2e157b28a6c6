"""`onceq collect`: every format, run twice, time-outs, more replies later, two at once."""

from __future__ import annotations

import csv
import errno
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet
import pytest

import onceq
from onceq import errors
from onceq.engine.embedded.locate import locate
from onceq.files import CollectOrder, collect
from tests.files.parts import ORDERS, book, effects, end_sessions, make_ledger, write_csv
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.parts import Cli


@pytest.fixture(autouse=True)
def declared(qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)


@pytest.fixture
def submitted(cli: Cli, tmp_path: Path) -> Cli:
    """300 orders of the client `shop`, every tenth to be refused."""
    submit_orders(cli, tmp_path / "orders.csv", 300)
    return cli


def submit_orders(cli: Cli, path: Path, count: int) -> None:
    write_csv(path, count, refuse=10)
    cli("submit", str(path), "--queue", "orders", "--rid", "id", "--client", "shop")


def test_csv_once_and_twice(submitted: Cli, tmp_path: Path) -> None:
    out = tmp_path / "replies.csv"
    words = ("collect", "--client", "shop", "--out", str(out), "--fields", "number,total")
    with serving(make_ledger(submitted), submitted.repository, ORDERS.handled_by(book)):
        first = submitted.json(*words).item
    assert (first["replies"], first["outstanding"]) == (300, 0)
    assert first["outcomes"] == {"done": 270, "failed": 30}
    with out.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert sorted(int(one["rid"]) for one in found) == list(range(1, 301))
    assert {(one["number"] == one["rid"], one["total"]) for one in found if one["number"]} == {
        (True, "1.10")
    }
    refused = next(one for one in found if one["rid"] == "10")
    assert (refused["outcome"], refused["code"], refused["attempts"]) == ("failed", "Reject", "1")
    content = out.read_bytes()
    again = submitted.json(*words).item
    assert (again["replies"], again["bytes"]) == (0, len(content))
    assert out.read_bytes() == content
    assert Counter(count for _, count in effects(submitted)) == {1: 270}


def test_json_lines_grow_with_what_comes_later(submitted: Cli, tmp_path: Path) -> None:
    out = tmp_path / "replies.jsonl"
    words = ("collect", "--client", "shop", "--out", str(out), "--timeout", "120")
    with serving(make_ledger(submitted), submitted.repository, ORDERS.handled_by(book)):
        submitted(*words)
        submit_orders(submitted, tmp_path / "orders.csv", 400)
        assert submitted.json(*words).item["replies"] == 100
    found: list[dict[str, Any]] = [
        msgspec.json.decode(line) for line in out.read_bytes().splitlines()
    ]
    assert sorted(int(one["rid"]) for one in found) == list(range(1, 401))
    assert found[0]["reply"]["total"] == "1.10"


def test_parquet_is_made_when_all_is_there(submitted: Cli, tmp_path: Path) -> None:
    out = tmp_path / "replies.parquet"
    words = ("collect", "--client", "shop", "--out", str(out), "--timeout", "0")
    assert submitted.json(*words, code=1).item["outstanding"] == 300
    with serving(make_ledger(submitted), submitted.repository, ORDERS.handled_by(book)):
        submitted(*words[:-2])
        table = pyarrow.parquet.read_table(out)
        assert table.num_rows == 300
        assert table.schema.names == ["rid", "outcome", "attempts", "code", "error", "reply"]
        assert [one.name for one in tmp_path.glob("*replies*")] == ["replies.parquet"]
        assert submitted.json(*words).item["replies"] == 0
        submit_orders(submitted, tmp_path / "orders.csv", 301)
        assert "cannot grow" in submitted(*words, code=1).err


def test_a_full_disk_loses_nothing(
    submitted: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "replies.csv"
    words = ("collect", "--client", "shop", "--out", str(out))

    def half(fd: int, data: bytes, at: int) -> int:
        if at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data[:10], at)  # less than the header

    pwrite = os.pwrite
    with serving(make_ledger(submitted), submitted.repository, ORDERS.handled_by(book)):
        with monkeypatch.context() as full:
            full.setattr(os, "pwrite", half)
            assert "No space left" in submitted(*words, code=1).err
        assert submitted.json(*words).item["replies"] == 300
    with out.open(newline="") as file:
        assert sorted(int(one["rid"]) for one in csv.DictReader(file)) == list(range(1, 301))


def test_a_time_out_says_what_is_left(submitted: Cli, tmp_path: Path) -> None:
    out = tmp_path / "replies.csv"
    answer = submitted("collect", "--client", "shop", "--out", str(out), "--timeout", "0", code=1)
    assert "300 request(s) have no reply yet" in answer.err
    assert not out.exists()


def test_a_killed_request_is_collected_too(cli: Cli, tmp_path: Path) -> None:
    submit_orders(cli, tmp_path / "orders.csv", 1)
    cli("kill", "1")
    out = tmp_path / "replies.jsonl"
    cli("collect", "--client", "shop", "--out", str(out))
    assert msgspec.json.decode(out.read_bytes())["outcome"] == "cancelled"


def test_an_unknown_client_is_not_found(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "replies.csv"
    assert "never connected" in cli("collect", "--client", "who", "--out", str(out), code=3).err
    assert list(tmp_path.glob("*replies*")) == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--out", "replies.txt"), 2, "must end in"),
        (("--out", "replies.jsonl", "--fields", "a"), 2, "JSON Lines hold the whole"),
        (("--out", "no/such/folder.csv"), 3, "folder"),
        (("--out", "taken.csv"), 1, "never collected into it"),
        (("--out", "taken.csv", "--client", "\n"), 2, "control character"),
    ],
)
def test_bad_words(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.csv").write_text("mine\n")
    assert said in cli("collect", "--client", "shop", *words, code=code).err
    assert (tmp_path / "taken.csv").read_text() == "mine\n"


def test_a_newer_life_of_the_client_fences_it(
    submitted: Cli, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    located = locate(submitted.url)
    waited = False

    def moved(_done: int, _total: int, _rows: int) -> None:
        nonlocal waited
        waited = True
        with qm.clerk("shop", ORDERS, window=1000):
            pass

    order = CollectOrder(client="shop", out=tmp_path / "replies.csv", timeout_s=60, progress=moved)
    with (
        serving(make_ledger(submitted), submitted.repository, ORDERS.handled_by(book)),
        pytest.raises(errors.Fenced),
    ):
        collect(order, located, submitted.repository)
    assert waited
    words = ("collect", "--client", "shop", "--out", str(tmp_path / "replies.csv"))
    with serving(make_url(submitted), submitted.repository, ORDERS.handled_by(book)):
        submitted(*words)
    with (tmp_path / "replies.csv").open(newline="") as file:
        rids = [one["rid"] for one in csv.DictReader(file)]
    assert sorted(map(int, rids)) == list(range(1, 301))


def make_url(cli: Cli) -> str:
    """The URL of sessions that know where the ledger, which is there already, is."""
    return f"{cli.url} options='-c onceq_test.ledger={cli.repository}'"


def test_a_lost_connection_is_made_again(
    submitted: Cli, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    told: list[str] = []
    cut = False

    def moved(_done: int, _total: int, _rows: int) -> None:
        nonlocal cut
        if not cut:
            cut = True
            end_sessions(submitted)

    order = CollectOrder(
        client="shop", out=tmp_path / "r.csv", timeout_s=60, progress=moved, told=told.append
    )
    with serving(make_ledger(submitted), submitted.repository, ORDERS.handled_by(book)):
        wait_until(lambda: qm.show("orders").depth == 0)
        url = f"{submitted.url} application_name={submitted.repository}"
        assert collect(order, locate(url), submitted.repository).outstanding == 0
    assert len(told) == 1
    assert "connection lost" in told[0]
    with (tmp_path / "r.csv").open(newline="") as file:
        rids = [one["rid"] for one in csv.DictReader(file)]
    assert sorted(map(int, rids)) == list(range(1, 301))
