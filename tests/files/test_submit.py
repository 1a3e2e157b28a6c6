"""`onceq submit`: every format, every kind of bad row, run twice, a file that changes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from onceq import errors
from onceq.engine.embedded.locate import locate
from onceq.files import SubmitOrder, readers, submit
from onceq.files import program as programs
from onceq.model.names import check_id
from tests.files.parts import ORDERS, bodies, end_sessions, sent_rids, write_csv

if TYPE_CHECKING:
    from pathlib import Path

    import onceq
    from tests.cli.parts import Cli


@pytest.fixture(autouse=True)
def declared(qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)


def rejects(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_text().splitlines()]


def test_csv_by_line_and_run_twice(cli: Cli, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "orders.csv", 1201)
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    words = ("submit", str(path), "--queue", "orders", "--rid", "line")
    first = cli.json(*words).item
    assert (first["rows"], first["sent"], first["rejected"]) == (1201, 1201, 0)
    assert (first["sha256"], first["client"]) == (sha, "file:orders.csv")
    assert sent_rids(cli) == [f"orders.csv:{sha}:{n}" for n in range(1, 1202)]
    assert bodies(cli)[0] == b'{"id":"1","customer":"customer 1","refuse":"no"}'
    again = cli.json(*words).item
    assert (again["rows"], again["sent"], again["queued"]) == (1201, 0, 1201)
    assert len(sent_rids(cli)) == 1201


def test_a_second_submit_of_a_file_is_refused_and_the_first_goes_on(
    qm: onceq.QueueManager, onceq_url: str, cli: Cli, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "orders.csv", 20)
    refused: list[str] = []

    def again(*_: int) -> None:
        with pytest.raises(errors.IllegalState) as second:
            submit(dataclasses.replace(order, progress=print), onceq_url, qm.repository)
        refused.append(str(second.value))

    order = SubmitOrder(path=path, queue="orders", rid="id", batch_rows=10, progress=again)
    assert submit(order, onceq_url, qm.repository).sent == 20
    assert all("another `onceq submit`" in text for text in refused)
    assert len(refused) == 3
    assert len(sent_rids(cli)) == 20
    assert not list(tmp_path.glob(".*.track"))


def test_a_submit_that_is_refused_leaves_no_file(
    qm: onceq.QueueManager, onceq_url: str, tmp_path: Path
) -> None:
    order = SubmitOrder(path=write_csv(tmp_path / "orders.csv", 1), queue="nowhere", rid="id")
    with pytest.raises(errors.QueueNotFound):
        submit(order, onceq_url, qm.repository)
    assert [path.name for path in tmp_path.iterdir()] == ["orders.csv"]


def test_by_column(cli: Cli, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "orders.csv", 3)
    words = ("submit", str(path), "--queue", "orders", "--rid", "id", "--client", "shop")
    assert cli.json(*words).item["client"] == "shop"
    assert sent_rids(cli) == ["1", "2", "3"]
    write_csv(path, 5)
    grown = cli.json(*words).item
    assert (grown["sent"], grown["queued"]) == (2, 3)


def test_bad_rows_of_csv_go_to_the_rejects(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(
        b"\xef\xbb\xbfid,text\r\n"
        b"1,good\r\n"
        b"2\r\n"
        b"3,too,many\r\n"
        b"4,\xff\r\n"
        b"1,again\r\n"
        b"\r\n"
        b",no rid\r\n"
        b'7,"a\nb"\r\n'
        b'8,"a"b\r\n' + b"x" * 201 + b",long\r\n"
    )
    answer = cli.json("submit", str(path), "--queue", "orders", "--rid", "id", code=1)
    assert (answer.item["sent"], answer.item["rejected"], answer.item["rows"]) == (2, 7, 9)
    assert sent_rids(cli) == ["1", "7"]
    assert bodies(cli)[1] == b'{"id":"7","text":"a\\nb"}'
    bad = {one["row"]: one["reason"] for one in rejects(tmp_path / "orders.csv.rejects.jsonl")}
    assert sorted(bad) == [2, 3, 4, 5, 6, 8, 9]
    assert bad[2] == "1 fields, but the header names 2"
    assert bad[4] == "not UTF-8"
    assert "row 1 has the same rid" in bad[5]
    assert "not CSV" in bad[8]
    assert "1 to 200 bytes" in bad[9]


def test_rejects_of_a_former_run_go(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    where = tmp_path / "bad.jsonl"
    words = ("submit", str(path), "--queue", "orders", "--rid", "id", "--rejects", str(where))
    path.write_text('{"id": 1}\nno\n')
    cli(*words, code=1)
    assert [one["row"] for one in rejects(where)] == [2]
    path.write_text('{"id": 1}\n')
    cli(*words)
    assert not where.exists()
    assert "itself" in cli(*words[:-1], str(path), code=2).err


def test_json_lines_are_sent_as_they_stand(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    lines = [
        b'{"id": 1, "amount": 1.10, "big": 123456789012345678901234567890}',
        b"",
        b'  {"id":"two","n":{"a":[1,null]}}  ',
        b"[1]",
        b'{"id":1.5}',
        b'{"id":true}',
        b'{"other":1}',
        b'{"id":"\xff"}',
        b'{"id":3',
        b'{"id":4}',
    ]
    path.write_bytes(b"\n".join(lines))
    answer = cli.json("submit", str(path), "--queue", "orders", "--rid", "id", code=1)
    assert (answer.item["sent"], answer.item["rejected"]) == (3, 6)
    assert sent_rids(cli) == ["1", "two", "4"]
    assert bodies(cli) == [lines[0], lines[2].strip(), lines[9]]
    bad = rejects(tmp_path / "orders.jsonl.rejects.jsonl")
    assert [one["row"] for one in bad] == [4, 5, 6, 7, 8, 9]


def test_parquet_keeps_every_digit(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "amount": pa.array([Decimal("1.10"), None], pa.decimal128(12, 2)),
            "day": pa.array([dt.date(2026, 1, 2)] * 2),
            "at": pa.array(
                [dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)] * 2, pa.timestamp("us", "UTC")
            ),
            "raw": pa.array([b"\x00\xff", b""]),
        }
    )
    parquet.write_table(table, path)
    cli("submit", str(path), "--queue", "orders", "--rid", "id")
    assert sent_rids(cli) == ["1", "2"]
    assert bodies(cli)[0] == (
        b'{"id":1,"amount":"1.10","day":"2026-01-02","at":"2026-01-02T03:04:05.678901Z",'
        b'"raw":"AP8="}'
    )
    assert msgspec.json.decode(bodies(cli)[1])["amount"] is None


def test_what_is_too_large_is_rejected(cli: Cli, tmp_path: Path) -> None:
    cli("queue", "alter", "orders", "--body-bytes-max", "40")
    path = tmp_path / "orders.jsonl"
    path.write_text('{"id": 1}\n{"id": 2, "text": "' + "x" * 40 + '"}\n')
    assert (
        cli.json("submit", str(path), "--queue", "orders", "--rid", "id", code=1).item["sent"] == 1
    )
    (bad,) = rejects(tmp_path / "orders.jsonl.rejects.jsonl")
    assert "at most 40" in bad["reason"]


def test_a_rid_sent_before_with_other_content_stops_no_other(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text("".join(f'{{"id": {n}}}\n' for n in range(20)))
    words = ("submit", str(path), "--queue", "orders", "--rid", "id", "--client", "shop")
    cli(*words)
    path.write_text(
        "".join(
            f'{{"id": {n}, "x": {n == 13}}}\n'.lower() if n == 13 else f'{{"id": {n}}}\n'
            for n in range(40)
        )
    )
    answer = cli.json(*words, code=1).item
    assert (answer["sent"], answer["queued"], answer["rejected"]) == (20, 19, 1)
    (bad,) = rejects(tmp_path / "orders.jsonl.rejects.jsonl")
    assert (bad["row"], "other content" in bad["reason"]) == (14, True)


def test_a_changed_file_is_refused_with_both_digests(cli: Cli, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "orders.csv", 3)
    words = ("submit", str(path), "--queue", "orders", "--rid", "line")
    before = cli.json(*words).item["sha256"]
    write_csv(path, 4)
    after = hashlib.sha256(path.read_bytes()).hexdigest()
    refused = cli(*words, code=1)
    assert before in refused.err
    assert after in refused.err
    assert len(sent_rids(cli)) == 3
    assert cli.json(*words, "--client", "other").item["sent"] == 4


def test_a_file_that_changes_while_it_is_read(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "orders.csv", 3)
    send_rows = programs.send_rows

    def send_and_write(*arguments: Any) -> Any:
        write_csv(path, 4)
        return send_rows(*arguments)

    monkeypatch.setattr(programs, "send_rows", send_and_write)
    order = SubmitOrder(path=path, queue="orders", rid="line")
    with pytest.raises(errors.FileMismatch, match="changed while it was submitted"):
        submit(order, locate(cli.url), cli.repository)


@pytest.mark.parametrize(
    ("name", "content", "words", "code", "said"),
    [
        ("a.csv", b"", ("--rid", "line"), 1, "is empty"),
        ("a.csv", b"id,id\n", ("--rid", "id"), 1, "stands twice"),
        ("a.csv", b"id,\xff\n", ("--rid", "id"), 1, "not UTF-8"),
        ("a.csv", b'"id\n', ("--rid", "id"), 1, "not CSV"),
        ("a.csv", b"id,x\n1,2\n", ("--rid", "key"), 1, "no column 'key'; it has id, x"),
        ("a.parquet", b"PAR1 not at all", ("--rid", "line"), 1, "not a Parquet file"),
        ("a.xls", b"", ("--rid", "line"), 2, ".csv, .jsonl"),
        ("a.csv", b"id\n1\n", ("--rid", "line", "--client", "\t"), 2, "control character"),
        ("a.csv", b"id\n1\n", ("--rid", "line", "--queue", "nope"), 3, "does not exist"),
        ("a.csv", b"id\n1\n", ("--rid", "line", "--queue", "orders.error"), 2, "error queue"),
    ],
)
def test_bad_files_and_words(
    cli: Cli,
    tmp_path: Path,
    name: str,
    content: bytes,
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    answer = cli("submit", str(path), "--queue", "orders", *words, code=code)
    assert said in answer.err
    assert sent_rids(cli) == []


def test_a_lost_connection_is_made_again(cli: Cli, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "orders.csv", 1200)
    told: list[str] = []

    def moved(_position: int, _total: int, _rows: int) -> None:
        if not told:
            end_sessions(cli)

    order = SubmitOrder(path=path, queue="orders", rid="id", progress=moved, told=told.append)
    url = f"{cli.url} application_name={cli.repository}"
    summary = submit(order, locate(url), cli.repository)
    assert (summary.rows, summary.sent + summary.queued) == (1200, 1200)
    assert len(told) == 1
    assert sent_rids(cli) == [str(n) for n in range(1, 1201)]


def test_no_file_and_no_rows(cli: Cli, tmp_path: Path) -> None:
    missing = cli("submit", str(tmp_path / "no.csv"), "--queue", "orders", "--rid", "line", code=3)
    assert "no.csv" in missing.err
    (tmp_path / "none.csv").write_text("id,x\n")
    words = ("submit", str(tmp_path / "none.csv"), "--queue", "orders", "--rid", "id")
    assert cli.json(*words).item["rows"] == 0


def test_a_stopped_queue_takes_nothing(cli: Cli, tmp_path: Path) -> None:
    cli("queue", "stop", "orders")
    path = write_csv(tmp_path / "orders.csv", 3)
    words = ("submit", str(path), "--queue", "orders", "--rid", "id")
    assert "stopped" in cli(*words, code=1).err
    cli("queue", "start", "orders")
    assert cli.json(*words).item["sent"] == 3


def test_parquet_without_pyarrow(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (tmp_path / "a.parquet").write_bytes(b"")
    words = ("submit", str(tmp_path / "a.parquet"), "--queue", "orders", "--rid", "line")
    assert "onceq[files]" in cli(*words, code=2).err


def test_long_and_strange_file_names_still_name_their_rows(cli: Cli, tmp_path: Path) -> None:
    path = write_csv(tmp_path / ("ü:" * 80 + ".csv"), 1)
    cli("submit", str(path), "--queue", "orders", "--rid", "line")
    (rid,) = sent_rids(cli)
    assert check_id("rid", rid)
    assert rid.startswith("ü_ü_")
    write_csv(path, 2)
    cli("submit", str(path), "--queue", "orders", "--rid", "line", code=1)


def test_a_line_without_an_end_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "LINE_BYTES_MAX", 20)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":1}\n{"id":"' + b"x" * 200_000 + b'"}\n{"id":3}\n')
    with readers.open_reader(path) as reader:
        kinds = [type(one).__name__ for one in reader.records()]
    assert kinds == ["Record", "BadRow", "Record"]
