"""kill -9 of submit and collect, at every step and at moments of chance: once, and no more."""

from __future__ import annotations

import csv
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import onceq
from tests.cli.parts import ROOT
from tests.files.parts import ORDERS, book, effects, make_ledger, sent_rids, write_csv
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.parts import Cli

ROWS = 40


@pytest.fixture(autouse=True)
def declared(qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)


def killed(cli: Cli, *words: str) -> int:
    """Runs the killer to its end; how many runs it killed."""
    what, *arguments = words
    done = subprocess.run(
        [sys.executable, "-m", "tests.files.killer", what, cli.url, cli.repository, *arguments],
        cwd=ROOT,
        env=dict(cli.environment()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def rids_in(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [one["rid"] for one in csv.DictReader(file)]


def test_submit_killed_at_every_step(cli: Cli, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "orders.csv", ROWS)
    assert killed(cli, "submit", str(path), "orders", "line") >= 15
    answer = cli.json("submit", str(path), "--queue", "orders", "--rid", "line").item
    assert (answer["sent"], answer["queued"]) == (0, ROWS)
    assert [rid.rsplit(":", 1)[1] for rid in sent_rids(cli)] == [str(n) for n in range(1, ROWS + 1)]


def test_collect_killed_at_every_step(cli: Cli, qm: onceq.QueueManager, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "orders.csv", 3 * ROWS, refuse=7)
    cli("submit", str(path), "--queue", "orders", "--rid", "id", "--client", "shop")
    with serving(make_ledger(cli), cli.repository, ORDERS.handled_by(book)):
        wait_until(lambda: qm.show("orders").depth == 0)
    out = tmp_path / "replies.csv"
    assert killed(cli, "collect", str(out), "shop") >= 20
    assert sorted(map(int, rids_in(out))) == list(range(1, 3 * ROWS + 1))
    assert [one.name for one in tmp_path.glob("*replies*")] == ["replies.csv"]


def test_collect_to_parquet_killed_at_every_step(
    cli: Cli, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "orders.csv", ROWS, refuse=7)
    cli("submit", str(path), "--queue", "orders", "--rid", "id", "--client", "shop")
    with serving(make_ledger(cli), cli.repository, ORDERS.handled_by(book)):
        wait_until(lambda: qm.show("orders").depth == 0)
    out = tmp_path / "replies.parquet"
    assert killed(cli, "collect", str(out), "shop") >= 15
    from pyarrow import parquet  # noqa: PLC0415 # only here

    rids = parquet.read_table(out).column("rid").to_pylist()
    assert sorted(map(int, rids)) == list(range(1, ROWS + 1))


def test_both_killed_at_moments_of_chance(cli: Cli, qm: onceq.QueueManager, tmp_path: Path) -> None:
    rows = 800
    path = write_csv(tmp_path / "orders.csv", rows, refuse=100)
    out = tmp_path / "replies.csv"
    chance = random.Random(4711)
    submit = ("submit", str(path), "--queue", "orders", "--rid", "line", "--client", "shop")
    with serving(make_ledger(cli), cli.repository, ORDERS.handled_by(book)):
        for _ in range(3):
            kill_after(cli, submit, chance.uniform(0.4, 0.9))
        summary = cli.json(*submit).item
        assert summary["sent"] + summary["queued"] + summary["replied"] == rows
        collect = ("collect", "--client", "shop", "--out", str(out))
        for _ in range(3):
            kill_after(cli, collect, chance.uniform(0.4, 0.9))
        assert cli.json(*collect).item["outstanding"] == 0
    numbers = sorted(int(rid.rsplit(":", 1)[1]) for rid in rids_in(out))
    assert numbers == list(range(1, rows + 1))
    assert {count for _, count in effects(cli)} == {1}
    assert len(effects(cli)) == rows - rows // 100
    assert qm.show("orders").depth == 0


def kill_after(cli: Cli, words: tuple[str, ...], delay_s: float) -> None:
    """Starts a command and kills it with -9 after a while, wherever it is then."""
    process = cli.start(*words)
    time.sleep(delay_s)
    process.kill()
    process.communicate()
