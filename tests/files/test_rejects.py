"""Rejects and the track: exact through kills at every step, a limit, and what is not believed."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from onceq import errors
from onceq.engine.embedded.locate import locate
from onceq.files import SubmitOrder, readers, submit
from onceq.files.rows import BadRow, Record
from onceq.files.seen import SeenRids
from onceq.files.track import Note, Track, decode, encode
from tests.files.parts import ORDERS, sent_rids
from tests.files.test_kills import killed
from tests.parts import plain

if TYPE_CHECKING:
    from pathlib import Path

    import onceq
    from tests.cli.parts import Cli


@pytest.fixture(autouse=True)
def declared(qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def bad_file(path: Path, rows: int) -> Path:
    """Every fifth row is ragged, every seventh has the rid of the first."""
    lines = [
        f"{n},a,b" if n % 5 == 0 else f"{1 if n % 7 == 0 else n},text {n}"
        for n in range(1, rows + 1)
    ]
    path.write_text("\n".join(["id,text", *lines]) + "\n")
    return path


def test_rejects_are_exact_when_killed_at_every_step(cli: Cli, tmp_path: Path) -> None:
    path = bad_file(tmp_path / "orders.csv", 40)
    (tmp_path / "other.jsonl").write_text('{"id":"11","text":"otherwise"}\n')
    before = ("submit", str(tmp_path / "other.jsonl"), "--queue", "orders", "--rid", "id")
    cli(*before, "--client", "file:orders.csv")
    assert killed(cli, "submit", str(path), "orders", "id") >= 10
    rejects = tmp_path / "orders.csv.rejects.jsonl"
    found = lines_of(rejects)
    assert [one["row"] for one in found] == sorted({*range(5, 41, 5), *range(7, 41, 7), 11})
    by_row = {one["row"]: one for one in found}
    assert by_row[5] == {
        "row": 5,
        "column": None,
        "reason": "3 fields, but the header names 2",
        "record": "5,a,b",
    }
    assert (by_row[14]["column"], by_row[14]["record"]) == ("id", "1,text 14")
    assert "other content" in by_row[11]["reason"]
    assert list(tmp_path.glob(".*")) == []
    assert sorted(map(int, sent_rids(cli))) == [n for n in range(1, 41) if n % 5 and n % 7]
    content = rejects.read_bytes()
    again = cli.json("submit", str(path), "--queue", "orders", "--rid", "id", code=1).item
    assert (again["rejected"], again["resumed_at"]) == (len(found), 0)
    assert rejects.read_bytes() == content


def test_a_limit_stops_the_run_and_a_greater_one_goes_on(cli: Cli, tmp_path: Path) -> None:
    path = bad_file(tmp_path / "orders.csv", 100)
    order: dict[str, Any] = {"path": path, "queue": "orders", "rid": "id", "batch_rows": 10}
    with pytest.raises(errors.FileMismatch, match="6 rows are bad up to row 20"):
        submit(SubmitOrder(**order, rejects_max=4), locate(cli.url), cli.repository)
    sent = len(sent_rids(cli))
    assert sent == 14
    words = ("submit", str(path), "--queue", "orders", "--rid", "id", "--max-rejects")
    assert "at most 4 may be" in cli(*words, "4", code=1).err
    assert len(sent_rids(cli)) == sent  # the limit holds before anything is sent
    summary = submit(SubmitOrder(**order, rejects_max=100), cli.url, cli.repository)
    assert (summary.resumed_at, summary.rows) == (20, 100)
    assert (summary.sent, summary.queued) == (len(sent_rids(cli)), 0)
    assert summary.sent + summary.rejected == 100
    found = lines_of(tmp_path / "orders.csv.rejects.jsonl")
    assert [one["row"] for one in found] == sorted({*range(5, 101, 5), *range(7, 101, 7)})
    doubles = [one["reason"] for one in found if one["row"] % 5]
    assert {reason.partition(" rid")[0] for reason in doubles} == {"row 1 has the same"}


def interrupted(cli: Cli, path: Path) -> SubmitOrder:
    """An order of which two batches are dealt with, and no more."""
    order = SubmitOrder(path=path, queue="orders", rid="id", batch_rows=10)
    stopped = SubmitOrder(path=path, queue="orders", rid="id", batch_rows=10, rejects_max=4)
    with pytest.raises(errors.FileMismatch):
        submit(stopped, cli.url, cli.repository)
    return order


def test_other_rejects_than_the_track_knows_are_made_anew(cli: Cli, tmp_path: Path) -> None:
    order = interrupted(cli, bad_file(tmp_path / "orders.csv", 40))
    order.rejects_path.write_text("mine\n")
    told: list[str] = []
    again = SubmitOrder(path=order.path, queue="orders", rid="id", told=told.append)
    summary = submit(again, cli.url, cli.repository)
    assert ["beginning anew" in one for one in told] == [True]
    assert (summary.resumed_at, summary.rejected, summary.queued) == (0, 12, 14)
    assert len(lines_of(order.rejects_path)) == 12


def test_a_track_ahead_of_the_repository_is_not_believed(cli: Cli, tmp_path: Path) -> None:
    order = interrupted(cli, bad_file(tmp_path / "orders.csv", 40))
    with plain(cli.url) as connection:  # as after a restore of an older backup
        connection.execute(f"delete from {cli.repository}.element".encode())
    told: list[str] = []
    again = SubmitOrder(path=order.path, queue="orders", rid="id", told=told.append)
    summary = submit(again, cli.url, cli.repository)
    assert ["went back" in one for one in told] == [True]
    assert (summary.resumed_at, summary.sent, summary.rejected) == (0, 28, 12)
    assert len(sent_rids(cli)) == 28


def test_two_submits_do_not_write_one_file(cli: Cli, tmp_path: Path) -> None:
    path = bad_file(tmp_path / "orders.csv", 3)
    order = SubmitOrder(path=path, queue="orders", rid="id")
    with Track(order.rejects_path, "x"), pytest.raises(errors.IllegalState, match="another"):
        submit(order, cli.url, cli.repository)


def test_a_note_that_is_torn_is_none() -> None:
    line = encode(Note(subject="s", row=7, states={"new": 7}))
    assert decode(line + b"older and longer") == Note(subject="s", row=7, states={"new": 7})
    assert all(decode(line[:cut]) is None for cut in range(len(line) - 1))
    assert decode(line.replace(b"7", b"8", 1)) is None


def test_the_first_row_with_a_rid_is_known() -> None:
    seen = SeenRids()
    assert seen.add([("a", 1), ("b", 2)]) == {}
    assert seen.add([("c", 3), ("a", 4), ("c", 5)]) == {4: 1, 5: 3}
    assert seen.add([]) == {}
    seen.close()


def test_no_room_for_the_rids_is_said() -> None:
    seen = SeenRids()
    seen._database.execute("pragma max_page_count = 4")
    with pytest.raises(OSError, match=r"full.*SQLITE_TMPDIR"):
        seen.add([(f"order-{number}", number) for number in range(10_000)])
    seen.close()


@pytest.mark.parametrize("start", [b"\xff\xfe", b"\xfe\xff"])
def test_other_encodings_are_refused(cli: Cli, tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(start + "id,x\n1,2\n".encode("utf-16-le"))
    words = ("submit", str(path), "--queue", "orders", "--rid", "id")
    assert "convert it" in cli(*words, code=1).err


def test_a_parquet_file_cut_short_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    parquet.write_table(pa.table({"id": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-20])
    words = ("submit", str(path), "--queue", "orders", "--rid", "id")
    assert "not a Parquet file" in cli(*words, code=1).err


VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
ROWS = st.lists(st.fixed_dictionaries({"id": VALUES, "x": VALUES}), max_size=8)
QUICK = settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def written(path: Path, rows: list[dict[str, str]]) -> None:
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["id", "x"])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    else:
        schema = pa.schema([("id", pa.string()), ("x", pa.string())])
        parquet.write_table(pa.Table.from_pylist(rows, schema), path)


@QUICK
@given(rows=ROWS, skip=st.integers(0, 9))
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_every_format_gives_back_its_rows(
    tmp_path: Path, suffix: str, rows: list[dict[str, str]], skip: int
) -> None:
    path = tmp_path / f"rows.{suffix}"
    written(path, rows)
    with readers.open_reader(path) as reader:
        found = list(reader.records(skip))
    records = [one for one in found if isinstance(one, Record)]
    assert len(records) == len(found)
    assert [one.values for one in records] == rows[skip:]
    assert [json.loads(one.body) for one in records] == rows[skip:]
    assert [one.number for one in records] == list(range(skip + 1, len(rows) + 1))


@QUICK
@given(content=st.binary(max_size=200))
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_whatever_a_file_holds_its_bad_rows_say_it(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(b"id,x\n" + content if suffix == "csv" else content)
    try:
        with readers.open_reader(path) as reader:
            found = list(reader.records())
    except errors.FileMismatch:
        return
    for bad in (one for one in found if isinstance(one, BadRow)):
        line = bad.line()
        assert line.count(b"\n") == 1
        said: dict[str, Any] = msgspec.json.decode(line)
        raw = (
            said["record"].encode() if "record" in said else base64.b64decode(said["record_base64"])
        )
        assert raw in content
        assert said["reason"]


def test_a_row_over_two_lines_is_said_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'id,x\n1,"a\nb",c\n\n2,\xe4\n3,fine\n')
    with readers.open_reader(path) as reader:
        first, second, third = reader.records()
    assert isinstance(first, BadRow)
    assert first.line() == (
        b'{"row":1,"column":null,"reason":"3 fields, but the header names 2",'
        b'"record":"1,\\"a\\nb\\",c"}\n'
    )
    assert isinstance(second, BadRow)
    assert (second.column, msgspec.json.decode(second.line())["record_base64"]) == ("x", "Mizk")
    assert isinstance(third, Record)
    assert io.StringIO(str(third.source)).read() == "3,fine\n"
