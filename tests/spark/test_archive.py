"""The archive on Spark: each row once in files, as it was; trimming; reading, and pushing down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

import onceq
from onceq import errors
from onceq.engine.faultpoints import PlannedFault
from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.model.archive_ops import ArchiveManifest, Kind
from onceq.spark import reading
from onceq.spark.archive import archiving
from onceq.spark.archive.files import read_files, write_files
from onceq.spark.pipelines import Archived, archive
from onceq.spark.read.relations import relation_of
from onceq.spark.source import OnceqDataSource
from proof.harness.ledger import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WORDS = onceq.Queue("words", str, str, abort_limit=1, keep_body=True)
ODD = """
insert into {}.attempt (ended_at, eid, charge, error)
    values ('2020-02-29 23:59:59.999999+00', gen_random_uuid(), 'charge', E'two\\nlines')
"""


@pytest.fixture
def route(onceq_url: str, qm: onceq.QueueManager) -> Route:
    qm.declare(WORDS)
    return Route(url="", conninfo=onceq_url, repository=qm.repository)


def end_some(qm: onceq.QueueManager, *words: str) -> None:
    qm.enqueue_many(WORDS, list(words))
    for _ in words:
        assert qm.dequeue(WORDS.name) is not None


@pytest.fixture
def run(spark: SparkSession, route: Route, tmp_path: Path) -> Callable[..., Archived]:
    def run(**how: Any) -> Archived:
        root = tmp_path / "archive"
        return archive(root, route.conninfo, repository=route.repository, spark=spark, **how)

    return run


def in_files(spark: SparkSession, route: Route, tmp_path: Path, kind: Kind) -> DataFrame:
    with spark_driver(route) as driver:
        files = driver.perform(ArchiveManifest(kind=kind)).files
    return read_files(spark, tmp_path / "archive", kind, files)


def test_each_row_is_in_files_once_as_it_was(
    spark: SparkSession,
    route: Route,
    qm: onceq.QueueManager,
    run: Callable[..., Archived],
    tmp_path: Path,
) -> None:
    end_some(qm, "one", "", "zwei\x1f\x1e\n", "\N{SNOWMAN}")
    ask(route.conninfo, ODD.format(route.repository))
    first = run()
    assert first.rows == {"history": 4, "attempt": 1}
    end_some(qm, "five")
    assert run().rows == {"history": 1, "attempt": 0}
    assert run().rows == {"history": 0, "attempt": 0}
    spark.dataSource.register(OnceqDataSource)
    for kind, read in ((Kind.HISTORY, "history"), (Kind.ATTEMPT, "attempts")):
        found = in_files(spark, route, tmp_path, kind)
        with reading(read, route.conninfo, repository=route.repository) as options:
            there = spark.read.format("onceq").options(**options).load()
            assert sorted(map(repr, found.collect())) == sorted(map(repr, there.collect()))


def test_what_is_in_files_is_trimmed_once_it_is_old(
    route: Route, qm: onceq.QueueManager, run: Callable[..., Archived]
) -> None:
    end_some(qm, "one", "two")
    ask(route.conninfo, ODD.format(route.repository))
    assert run(keep_days=1).trimmed == {"history": 0, "attempt": 1}
    assert run(keep_days=0).trimmed == {"history": 2, "attempt": 0}
    assert ask(route.conninfo, f"select count(*) from {route.repository}.history") == [(0,)]


@pytest.mark.parametrize("keep_days", [None, 1])
def test_a_file_that_was_damaged_since_is_found_before_it_is_trimmed(
    route: Route,
    qm: onceq.QueueManager,
    run: Callable[..., Archived],
    tmp_path: Path,
    keep_days: int | None,
) -> None:
    end_some(qm, "one")
    run(keep_days=keep_days)
    (path,) = (tmp_path / "archive").rglob("*.parquet")
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(errors.FileMismatch, match="is not what was archived: nothing is trimmed"):
        run(keep_days=0)
    path.unlink()
    with pytest.raises(errors.FileMismatch, match="cannot be read: nothing is trimmed"):
        run(keep_days=0)
    assert ask(route.conninfo, f"select count(*) from {route.repository}.history") == [(1,)]


def test_records_are_archived_some_at_a_time(
    route: Route,
    qm: onceq.QueueManager,
    run: Callable[..., Archived],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end_some(qm, *"abcde")
    monkeypatch.setattr(archiving, "RECORDS", 2)
    assert run().rows["history"] == 5
    with spark_driver(route) as driver:
        ends = sorted({one.until for one in driver.perform(ArchiveManifest()).files})
    assert len(ends) >= 2


def test_what_a_dead_run_has_left_is_swept_and_nothing_else(
    qm: onceq.QueueManager,
    run: Callable[..., Archived],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    end_some(qm, "one")
    others = tmp_path / "archive" / "history" / f"run={UUID(int=7)}"
    others.mkdir(parents=True)  # of another repository
    with monkeypatch.context() as patch:
        patch.setattr(archiving, "faultpoint", _die)
        with pytest.raises(PlannedFault):
            run()
    assert len(list((tmp_path / "archive" / "history").iterdir())) == 2
    done = run()
    assert (done.rows["history"], done.swept) == (1, 1)
    assert len(list((tmp_path / "archive" / "history").iterdir())) == 2
    assert others.exists()
    assert run().swept == 0


def _die(point: str) -> None:
    raise PlannedFault(point)


def test_what_fails_spark_is_the_environments(
    spark: SparkSession,
    qm: onceq.QueueManager,
    run: Callable[..., Archived],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end_some(qm, "one")
    monkeypatch.setattr(archiving, "read_records", lambda own, *_, **__: own.table("nowhere"))
    with pytest.raises(errors.EnvironmentFault, match="Spark failed"):
        run()
    assert type(spark).active() is spark


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ("s3://bucket/a", "a directory that all"),
        ("s3:/bucket/a", "a directory that all"),
        ("hdfs:/a", "a directory that all"),
        ("/tmp/a*", "is a pattern"),
        ("/dev/null/a", "cannot be the archive"),
    ],
)
def test_what_cannot_be_an_archive_is_refused(root: str, said: str) -> None:
    with pytest.raises(errors.InvalidValue, match=said):
        archive(root)


def test_an_overtaken_run_archives_nothing(
    route: Route,
    qm: onceq.QueueManager,
    run: Callable[..., Archived],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end_some(qm, "one")
    others: list[Archived] = []
    entered: list[bool] = []

    def overtaken(*arguments: Any) -> Any:
        if not entered:
            entered.append(True)
            others.append(run())
        return write_files(*arguments)

    monkeypatch.setattr(archiving, "write_files", overtaken)
    with pytest.raises(errors.Fenced):
        run()
    assert others[0].rows["history"] == 1
    with spark_driver(route) as driver:
        assert [one.rows for one in driver.perform(ArchiveManifest()).files] == [1]


def test_only_columns_that_are_wanted_are_read(
    spark: SparkSession, route: Route, qm: onceq.QueueManager
) -> None:
    end_some(qm, "one")
    spark.dataSource.register(OnceqDataSource)
    with reading("history", route.conninfo, repository=route.repository) as options:
        source = spark.read.format("onceq").options(**options)
        table = source.schema("outcome string, queue string").load()
        assert table.where("queue = 'words'").collect() == [("dequeued", "words")]
    with pytest.raises(errors.InvalidValue, match=r"'colour': what can be read is record_no, rid"):
        relation_of("history").only(["rid", "colour"])


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("rid = 'r'", 0),
        ("queue = 'words'", 4),
        ("queue in ('words', 'others') and role = 'datagram'", 4),
        ("started_at is null", None),
        ("finished_at > timestamp '2001-01-01 00:00:00'", 4),
        ("finished_at <= timestamp '2001-01-01 00:00:00'", 0),
        ("body = cast('one' as binary)", None),
        ("aborts < 1 and aborts >= 0", 4),
        ("eid like '0%' or queue = 'words'", 4),
        ("queue like 'wor%'", 4),
        ("not (queue = 'words')", 0),
        ("registrant = 'x'", 0),
    ],
)
def test_conditions_mean_the_same_wherever_they_are_decided(
    spark: SparkSession, route: Route, qm: onceq.QueueManager, condition: str, rows: int | None
) -> None:
    end_some(qm, "one", "two", "three", "four")
    spark.dataSource.register(OnceqDataSource)
    with reading("history", route.conninfo, repository=route.repository) as options:
        table = spark.read.format("onceq").options(**options).load()
        pushed = table.where(condition).count()
        everything = spark.createDataFrame(table.collect(), table.schema)
        assert pushed == everything.where(condition).count()
    assert rows is None or pushed == rows
