"""Delta tables of the archive: each row once, whoever dies, comes again, or comes at once."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import onceq
from onceq import errors
from onceq.engine.perform.spark_driver import Route
from onceq.model.archive_ops import Kind
from onceq.spark.archive import delta, files
from onceq.spark.pipelines import AddedToDelta, add_to_delta, archive
from onceq.spark.read.relations import HISTORY, digest_in_spark
from proof.harness.ledger import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WORDS = onceq.Queue("words", str, str, abort_limit=1, keep_body=True)
OLD = """
insert into {0}.history (finished_at, enqueued_at, queue_id, aborts, role, outcome, eid, rid,
        sha256)
    select '2020-02-28 00:00:00+00'::timestamptz + n * interval '1 hour', '2020-02-01 00:00:00+00',
        1, 0, 'datagram', 'dequeued', gen_random_uuid(), 'old ' || n, ''
    from generate_series(1, {1}) n
"""
ABORT = """
insert into {0}.attempt (ended_at, eid, charge) values (now(), gen_random_uuid(), 'charge')
"""
CHILD = """
import os, signal, sys
from onceq.spark.archive import delta
from onceq.spark.pipelines import add_to_delta

def then_die(real):
    def called(*given, **named):
        real(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    return called

tables, url, repository, point = sys.argv[1:]
if point == "opened":
    delta._Table._opened = then_die(delta._Table._opened)
if point == "read":
    delta._Rows._counted = lambda rows: (then_die(lambda: next(rows._read))() for _ in "1")
if point == "written":
    delta._Table._write = then_die(delta._Table._write)
add_to_delta(tables, url, repository=repository)
"""
STEPS = 2
"""Of the archive, in the test of kills."""


@pytest.fixture
def route(onceq_url: str, qm: onceq.QueueManager) -> Route:
    qm.declare(WORDS)
    return Route(url="", conninfo=onceq_url, repository=qm.repository)


@pytest.fixture
def run(spark: SparkSession, route: Route, tmp_path: Path) -> Callable[..., None]:
    def run(rows: int, **how: Any) -> None:
        ask(route.conninfo, OLD.format(route.repository, rows))
        root = tmp_path / "archive"
        archive(root, route.conninfo, repository=route.repository, spark=spark, **how)

    return run


@pytest.fixture
def add(route: Route, tmp_path: Path) -> Callable[[], AddedToDelta]:
    return lambda: add_to_delta(tmp_path / "delta", route.conninfo, repository=route.repository)


def rows_of(tmp_path: Path) -> int:
    table = DeltaTable(str(tmp_path / "delta/history")).to_pyarrow_table()
    eids: list[str] = table["eid"].to_pylist()
    assert len(set(eids)) == len(eids)
    return len(eids)


def test_each_row_is_in_the_tables_once_as_it_was(
    qm: onceq.QueueManager,
    spark: SparkSession,
    route: Route,
    run: Callable[..., None],
    add: Callable[[], AddedToDelta],
    tmp_path: Path,
) -> None:
    qm.enqueue(WORDS, "a word")
    assert qm.dequeue(WORDS.name) is not None
    run(30)
    assert add().rows == {"history": 31, "attempt": 0}
    assert add().rows == {"history": 0, "attempt": 0}
    ask(route.conninfo, ABORT.format(route.repository))
    run(2, keep_days=0, compact=2)  # old and new are in the same files now
    assert add().rows == {"history": 2, "attempt": 1}
    assert rows_of(tmp_path) == 33
    table = DeltaTable(str(tmp_path / "delta/history"))
    assert table.metadata().partition_columns == ["day"]
    copied = spark.createDataFrame(table.to_pyarrow_table())
    wrong = f"not (digest <=> {digest_in_spark(HISTORY)}) or day <> to_date(finished_at)"
    assert copied.where(wrong).count() == 0
    archived = spark.read.parquet(str(tmp_path / "archive/history"))
    assert everything(copied) == everything(archived)
    attempts = DeltaTable(str(tmp_path / "delta/attempt")).to_pyarrow_table()
    assert attempts["charge"].to_pylist() == ["charge"]


def everything(rows: DataFrame) -> list[str]:
    names = [one.name for one in HISTORY.columns]
    return sorted(repr(row) for row in set(rows.select(*names).collect()))


@pytest.mark.parametrize("is_there", [False, True])
def test_of_two_at_once_one_fails_and_nothing_is_doubled(
    run: Callable[..., None],
    add: Callable[[], AddedToDelta],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_there: bool,
) -> None:
    run(3)
    if is_there:
        add()
        run(3)
    real = files.check_file
    others: list[AddedToDelta] = []

    def overtaken(*given: Any) -> None:
        real(*given)
        monkeypatch.setattr("onceq.spark.archive.delta.check_file", real)
        others.append(add())

    monkeypatch.setattr("onceq.spark.archive.delta.check_file", overtaken)
    with pytest.raises(errors.EnvironmentFault, match="another wrote to it"):
        add()
    assert [one.rows["history"] for one in others] == [3]
    assert rows_of(tmp_path) == (6 if is_there else 3)
    assert add().rows["history"] == 0


def test_one_that_is_killed_has_added_whole_steps(
    route: Route, run: Callable[..., None], tmp_path: Path
) -> None:
    for _ in range(STEPS):
        run(50)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "delta"), route.conninfo]
    found: list[tuple[int, int]] = []
    for point in ("opened", "read", "written", ""):
        child = subprocess.run(
            [*command, route.repository, point], check=False, capture_output=True, text=True
        )
        assert child.returncode in {0, -signal.SIGKILL}, child.stderr
        found.append((child.returncode, rows_of(tmp_path)))
    died = -signal.SIGKILL
    assert found == [(died, 0), (died, 0), (died, 50), (0, 100)]


def test_what_is_not_as_it_was_is_not_added(
    run: Callable[..., None], add: Callable[[], AddedToDelta], route: Route, tmp_path: Path
) -> None:
    with pytest.raises(errors.IllegalState, match="was ever archived"):
        add()
    run(1)
    (path,) = (tmp_path / "archive").rglob("*.parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(errors.FileMismatch, match="not what was archived: nothing of it is added"):
        add()
    path.write_bytes(whole)
    assert add().rows["history"] == 1
    ask(route.conninfo, f"update {route.repository}.archive set archived = archived - 1")
    with pytest.raises(errors.IllegalState, match="of a later time"):
        add()


def test_the_table_of_another_is_refused(
    run: Callable[..., None], add: Callable[[], AddedToDelta], route: Route, tmp_path: Path
) -> None:
    run(1)
    for there in ("archive", ".", "archive/delta"):
        with pytest.raises(errors.InvalidValue, match="name another directory"):
            add_to_delta(tmp_path / there, route.conninfo, repository=route.repository)
    add()
    ask(route.conninfo, f"update {route.repository}.archive set root = root || '/elsewhere'")
    with pytest.raises(errors.IllegalState, match="is a table of"):
        add()


def test_a_position_outlasts_the_log(
    run: Callable[..., None], add: Callable[[], AddedToDelta], tmp_path: Path
) -> None:
    run(1)
    add()
    path = tmp_path / "delta/history"
    table = DeltaTable(str(path))
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    table.create_checkpoint()
    for one in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        one.unlink()  # the position is in the checkpoint alone
    run(1)
    assert add().rows["history"] == 1
    assert rows_of(tmp_path) == 2


def test_rows_without_a_position_are_not_added_again(
    run: Callable[..., None],
    add: Callable[[], AddedToDelta],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(1)
    add()
    monkeypatch.setattr(delta, "APPLICATION", "another")
    with pytest.raises(errors.IllegalState, match="has rows, and not which"):
        add()


def test_a_column_that_is_new_is_added(
    run: Callable[..., None],
    add: Callable[[], AddedToDelta],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    run(1)
    fewer = dataclasses.replace(HISTORY, columns=HISTORY.columns[:-1])
    with monkeypatch.context() as patch:
        patch.setitem(files.OF_KIND, Kind.HISTORY, fewer)
        add()
    run(1)
    assert add().rows["history"] == 1
    table = DeltaTable(str(tmp_path / "delta/history")).to_pyarrow_table()
    assert HISTORY.columns[-1].name in table.column_names
    assert rows_of(tmp_path) == 2


def test_without_its_package_it_says_which_extra_has_it(
    add: Callable[[], AddedToDelta], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(errors.MissingExtra, match=r"onceq\[delta\]"):
        add()
