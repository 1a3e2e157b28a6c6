"""Compaction: small runs become one, a file a day, with the same rows; the old stay for a day."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

import onceq
from onceq import errors
from onceq.engine.faultpoints import PlannedFault
from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.model.archive_ops import ArchivedFile, ArchiveManifest, Kind
from onceq.spark.archive import compacting
from onceq.spark.archive.compacting import small_neighbours
from onceq.spark.archive.files import write_files
from onceq.spark.pipelines import Archived, archive, records
from proof.harness.ledger import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WORDS = onceq.Queue("words", str, str, abort_limit=1, keep_body=True)
OLD = """
insert into {}.attempt (ended_at, eid, charge, error)
    values ('2020-02-29 23:59:59.999999+00', gen_random_uuid(), 'charge', 'old')
"""


@pytest.fixture
def route(onceq_url: str, qm: onceq.QueueManager) -> Route:
    qm.declare(WORDS)
    return Route(url="", conninfo=onceq_url, repository=qm.repository)


@pytest.fixture
def run(spark: SparkSession, route: Route, tmp_path: Path) -> Callable[..., Archived]:
    def run(**how: Any) -> Archived:
        root = tmp_path / "archive"
        return archive(root, route.conninfo, repository=route.repository, spark=spark, **how)

    return run


@pytest.fixture
def small_runs(
    route: Route, qm: onceq.QueueManager, run: Callable[..., Archived]
) -> Callable[[int], None]:
    def some(count: int) -> None:
        for _ in range(count):
            qm.enqueue(WORDS, "word")
            assert qm.dequeue(WORDS.name) is not None
            ask(route.conninfo, OLD.format(route.repository))
            run()

    return some


def manifest(route: Route) -> list[ArchivedFile]:
    with spark_driver(route) as driver:
        return driver.perform(ArchiveManifest()).files


def folders(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "archive" / "history").iterdir())


def every_row(spark: SparkSession, route: Route) -> list[str]:
    found: list[str] = []
    for kind in Kind:
        with records(spark, kind, route.conninfo, repository=route.repository) as rows:
            found += [repr(row) for row in rows.collect()]
    return sorted(found)


def pass_a_day(route: Route) -> None:
    late = "update {}.archive_run set replaced_at = replaced_at - interval '24 hours 1 second'"
    ask(route.conninfo, late.format(route.repository))


def test_small_runs_become_one_with_a_file_a_day(
    spark: SparkSession,
    route: Route,
    run: Callable[..., Archived],
    small_runs: Callable[[int], None],
) -> None:
    small_runs(3)
    before, old = every_row(spark, route), manifest(route)
    assert run(compact=4).compacted == 0
    run(keep_days=1)
    done = run(compact=3)
    assert (done.compacted, done.swept) == (3, 0)
    new = manifest(route)
    assert [(one.kind, one.rows, one.is_trimmed) for one in new] == [
        (Kind.ATTEMPT, 3, True),
        (Kind.HISTORY, 3, False),
    ]
    assert new[0].day == date(2020, 2, 29)
    assert {(one.since, one.until) for one in new} == {(0, max(one.until for one in old))}
    assert every_row(spark, route) == before
    assert run(compact=2).compacted == 0
    assert run(keep_days=0).trimmed == {"history": 3, "attempt": 0}
    assert every_row(spark, route) == before


def test_who_has_the_old_manifest_can_read_for_a_day(
    route: Route,
    run: Callable[..., Archived],
    small_runs: Callable[[int], None],
    tmp_path: Path,
) -> None:
    small_runs(2)
    old = manifest(route)
    assert run(compact=2).swept == 0
    assert run().swept == 0
    assert all((tmp_path / "archive" / one.path).exists() for one in old)
    pass_a_day(route)
    assert run().swept == 4  # two kinds of two runs
    assert len(folders(tmp_path)) == 1
    assert all((tmp_path / "archive" / one.path).exists() for one in manifest(route))


def test_what_dies_before_it_has_replaced_them_has_changed_nothing(
    spark: SparkSession,
    route: Route,
    run: Callable[..., Archived],
    small_runs: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    small_runs(2)
    before, old = every_row(spark, route), manifest(route)

    def die(point: str) -> None:
        raise PlannedFault(point)

    with monkeypatch.context() as patch:
        patch.setattr(compacting, "faultpoint", die)
        with pytest.raises(PlannedFault):
            run(compact=2)
    assert manifest(route) == old
    assert len(folders(tmp_path)) == 3
    done = run(compact=2)
    assert (done.compacted, done.swept) == (2, 2)
    assert every_row(spark, route) == before


def test_an_overtaken_run_replaces_nothing(
    route: Route,
    run: Callable[..., Archived],
    small_runs: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_runs(2)
    others: list[Archived] = []

    def overtaken(_: str) -> None:
        monkeypatch.undo()
        others.append(run(compact=2))

    monkeypatch.setattr(compacting, "faultpoint", overtaken)
    with pytest.raises(errors.Fenced):
        run(compact=2)
    assert [one.compacted for one in others] == [2]
    assert [one.rows for one in manifest(route)] == [2, 2]


def test_a_file_that_was_damaged_is_not_put_together(
    route: Route,
    run: Callable[..., Archived],
    small_runs: Callable[[int], None],
    tmp_path: Path,
) -> None:
    small_runs(2)
    old = manifest(route)
    damaged = tmp_path / "archive" / old[0].path
    content = bytearray(damaged.read_bytes())
    content[20] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(errors.FileMismatch, match="not what was archived: nothing is put together"):
        run(compact=2)
    assert manifest(route) == old


def test_rows_that_get_lost_on_the_way_are_missed(
    route: Route,
    run: Callable[..., Archived],
    small_runs: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_runs(2)
    old = manifest(route)

    def fewer(rows: DataFrame, *where: Any) -> list[ArchivedFile]:
        return write_files(rows.limit(1), *where)

    monkeypatch.setattr(compacting, "write_files", fewer)
    with pytest.raises(errors.EnvironmentFault, match="were written, and"):
        run(compact=2)
    assert manifest(route) == old


def test_how_many_runs_is_checked(run: Callable[..., Archived]) -> None:
    with pytest.raises(errors.InvalidValue, match="compact"):
        run(compact=1)


def sized(*megabytes: int) -> Iterable[ArchivedFile]:
    """Runs of these sizes, in this order, of two files each."""
    for number, size in enumerate(megabytes, 1):
        for kind in Kind:
            yield ArchivedFile(
                path=f"{kind}/{number}",
                kind=kind,
                day=date(2026, 11, 22),
                rows=1,
                bytes=size << 19,
                first_us=1,
                last_us=1,
                sha256="",
                since=number,
                run=UUID(int=number),
            )


@pytest.mark.parametrize(
    ("megabytes", "least", "together"),
    [
        ((), 2, []),
        ((1, 1), 3, []),
        ((1, 1, 1), 3, [[1, 2, 3]]),
        ((128, 1, 1, 1), 3, [[2, 3, 4]]),
        ((64, 64, 1, 1, 200, 1, 1), 2, [[1, 2], [3, 4], [6, 7]]),
        ((100, 100, 100), 2, []),
        ((1, 1, 127, 1), 2, [[1, 2], [3, 4]]),
    ],
)
def test_which_runs_are_put_together(
    megabytes: tuple[int, ...], least: int, together: list[list[int]]
) -> None:
    shuffled = list(sized(*megabytes))[::-1]
    found = small_neighbours(shuffled, least)
    assert [[run.int for run in one] for one in found] == together
