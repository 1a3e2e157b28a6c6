"""The archive in the database: what is settled, the manifest and its position, what is trimmed."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

import onceq
from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.model.archive_ops import (
    ArchiveBegin,
    ArchiveCommit,
    ArchiveCount,
    ArchiveDead,
    ArchiveDue,
    ArchiveManifest,
    ArchiveOwners,
    ArchivePlan,
    ArchiveReplace,
    ArchiveSettle,
    ArchiveSpend,
    ArchiveTables,
    ArchiveTrim,
    ArchiveTrimmed,
    Kind,
)
from proof.harness.ledger import ask
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORDS = onceq.Queue("words", str, str, backoff_ms=0)
ASKED = onceq.Queue("asked", str, str, abort_limit=1)
ROOT = "/there"
LATE = """
insert into {}.history (finished_at, enqueued_at, queue_id, aborts, role, outcome, eid, rid, sha256)
    values (now(), now(), 1, 0, 'datagram', 'dequeued', gen_random_uuid(), 'late', '')
"""


def reverse(word: str, _: onceq.Context) -> str:
    """Fails what is empty."""
    if not word:
        raise ValueError("it is empty")
    return word[::-1]


@pytest.fixture
def driver(onceq_url: str, qm: onceq.QueueManager) -> Iterator[SparkDriver]:
    qm.declare(WORDS)
    with contextlib.closing(connect(onceq_url)) as connection:
        yield SparkDriver(connection, qm.repository)


def begin(driver: SparkDriver, root: str = ROOT) -> int:
    return driver.perform(ArchiveBegin(root=root)).epoch


def end_some(qm: onceq.QueueManager, count: int) -> None:
    qm.enqueue_many(WORDS, [str(number) for number in range(count)])
    for _ in range(count):
        assert qm.dequeue(WORDS.name) is not None


def look(driver: SparkDriver, epoch: int) -> int:
    """Return what is settled now, whatever is under way."""
    return max(driver.perform(ArchiveSettle(epoch=epoch)).until for _ in range(3))


def settled(driver: SparkDriver, epoch: int) -> int:
    """Return what is settled after two new looks: any transaction, an ANALYZE too, delays them."""
    looks: list[int] = []

    def has_looked() -> bool:
        found = driver.perform(ArchiveSettle(epoch=epoch))
        if found.is_new:
            looks.append(found.until)
        return len(looks) == 2

    wait_until(has_looked)
    return looks[-1]


@pytest.fixture
def records(qm: onceq.QueueManager, onceq_url: str) -> Callable[[], list[int]]:
    query = f"select coalesce(record_no, 1) from {qm.repository}.history order by 1"
    return lambda: [number for (number,) in ask(onceq_url, query)]


def file(rows: int, name: str = "a.parquet", kind: Kind = Kind.HISTORY) -> dict[str, Any]:
    return {
        "path": f"{kind}/run=1/{name}",
        "kind": kind,
        "day": "2026-11-22",
        "rows": rows,
        "bytes": 1,
        "first_us": 1,
        "last_us": 2,
        "sha256": "00",
    }


def commit(driver: SparkDriver, epoch: int, since: int, until: int, *files: dict[str, Any]) -> int:
    run = uuid4()
    driver.perform(ArchivePlan(epoch=epoch, run=run))
    return driver.perform(
        ArchiveCommit(epoch=epoch, since=since, until=until, run=run, files=list(files))
    )


def due(driver: SparkDriver, before: datetime) -> set[date]:
    """Return the days of the history that may be trimmed."""
    found: set[date] = set()
    for table, pages in driver.perform(ArchiveTables(kind=Kind.HISTORY)):
        what: dict[str, Any] = {"table": table, "page": 0, "pages": pages}
        days = driver.perform(ArchiveDue(kind=Kind.HISTORY, before=before, **what))
        found.update(one.day for one in days if one.archived)
    return found


def trim(driver: SparkDriver, epoch: int, *, longer: int = 0) -> int:
    """Trim what ended more days ago; return how many rows of history that was."""
    ((now,),) = driver.connection.execute("select clock_timestamp()").fetchall()
    before = now - timedelta(days=longer)
    what: dict[str, Any] = {"kind": Kind.HISTORY, "before": before}
    days = sorted(due(driver, before))
    for one in driver.perform(ArchiveOwners(before=before)):
        assert driver.perform(ArchiveSpend(registrant_id=one, timeout_s=60.0))
    removed = sum(
        driver.perform(ArchiveTrim(**what, epoch=epoch, days=days, table=table, page=0, pages=9))
        for table, _ in driver.perform(ArchiveTables(kind=Kind.HISTORY))
    )
    driver.perform(ArchiveTrimmed(epoch=epoch, before=before))
    return removed


def trimmed(driver: SparkDriver) -> list[bool]:
    return [one.is_trimmed for one in driver.perform(ArchiveManifest()).files]


def test_records_are_settled_once_all_that_were_under_way_have_ended(
    driver: SparkDriver,
    qm: onceq.QueueManager,
    onceq_url: str,
    records: Callable[[], list[int]],
) -> None:
    epoch = begin(driver)
    end_some(qm, 2)
    with psycopg.connect(onceq_url) as late:
        late.execute(LATE.format(qm.repository).encode())  # it has its number by now
        end_some(qm, 2)
        before = look(driver, epoch)
        assert before < min(records()[-2:])
        assert look(driver, epoch) == before
        late.commit()
    assert settled(driver, epoch) >= max(records())
    assert len(records()) == 5


def test_what_was_looked_at_in_another_cluster_is_looked_at_anew(
    driver: SparkDriver, qm: onceq.QueueManager, records: Callable[[], list[int]]
) -> None:
    """A dump keeps the archive's row, and the cluster that it is restored to has its own ids."""
    epoch = begin(driver)
    end_some(qm, 2)
    far = f"update {qm.repository}.archive set soon = 1, soon_xid = '{2**50}'"
    driver.connection.execute(far.encode())
    assert settled(driver, epoch) >= max(records())


def test_what_was_there_before_the_archive_is_record_one(
    driver: SparkDriver, qm: onceq.QueueManager
) -> None:
    end_some(qm, 3)
    driver.connection.execute(f"update {qm.repository}.history set record_no = null".encode())
    epoch = begin(driver)
    assert settled(driver, epoch) >= 1
    assert driver.perform(ArchiveCount(kind=Kind.HISTORY, since=0, until=1)) == 3
    assert driver.perform(ArchiveCount(kind=Kind.HISTORY, since=1, until=99)) == 0


def test_the_manifest_moves_with_the_position(driver: SparkDriver, qm: onceq.QueueManager) -> None:
    end_some(qm, 3)
    epoch = begin(driver)
    until = settled(driver, epoch)
    with pytest.raises(errors.IllegalState, match="not settled"):
        commit(driver, epoch, 0, until + 1, file(3))
    assert commit(driver, epoch, 0, until, file(2), file(1, "b.parquet")) == 2
    with pytest.raises(errors.IllegalState, match="do not follow"):
        commit(driver, epoch, 0, until, file(3, "c.parquet"))
    found = driver.perform(ArchiveManifest(kind=Kind.HISTORY)).files
    assert [(one.path, one.rows, one.until) for one in found] == [
        ("history/run=1/a.parquet", 2, until),
        ("history/run=1/b.parquet", 1, until),
    ]
    assert driver.perform(ArchiveManifest(kind=Kind.ATTEMPT)).files == []


def test_a_newer_run_fences_the_one_before(driver: SparkDriver) -> None:
    first, second = begin(driver), begin(driver)
    assert second > first
    with pytest.raises(errors.Fenced):
        driver.perform(ArchiveSettle(epoch=first))
    with pytest.raises(errors.Fenced):
        trim(driver, first)
    with pytest.raises(errors.Fenced):
        commit(driver, first, 0, 0)
    with pytest.raises(errors.IllegalState, match="is in /there"):
        begin(driver, "/elsewhere")


def test_a_folder_is_dead_once_nobody_can_commit_it(driver: SparkDriver) -> None:
    epoch = begin(driver)
    until = settled(driver, epoch)
    commit(driver, epoch, 0, until, file(1))
    dies = uuid4()
    driver.perform(ArchivePlan(epoch=epoch, run=dies))
    assert driver.perform(ArchiveDead(epoch=epoch)) == []
    assert driver.perform(ArchiveDead(epoch=begin(driver))) == [dies]


def replace(driver: SparkDriver, epoch: int, *files: dict[str, Any]) -> int:
    """Put files in the place of all that there are."""
    run = uuid4()
    driver.perform(ArchivePlan(epoch=epoch, run=run))
    replaced = {one.run for one in driver.perform(ArchiveManifest()).files if one.run is not None}
    return driver.perform(
        ArchiveReplace(epoch=epoch, replaced=list(replaced), run=run, files=list(files))
    )


@pytest.fixture
def two_runs(driver: SparkDriver, qm: onceq.QueueManager) -> int:
    """The epoch of a run that has committed two folders."""
    end_some(qm, 3)
    epoch = begin(driver)
    until = settled(driver, epoch)
    commit(driver, epoch, 0, until - 1, file(2))
    commit(driver, epoch, until - 1, until, file(1, "b.parquet"))
    return epoch


def test_files_take_the_place_of_others_that_hold_the_same(
    driver: SparkDriver, two_runs: int
) -> None:
    before = driver.perform(ArchiveManifest()).files
    assert replace(driver, two_runs, file(3, "c.parquet")) == 1
    (after,) = driver.perform(ArchiveManifest()).files
    assert (after.path, after.rows) == ("history/run=1/c.parquet", 3)
    assert (after.since, after.until) == (before[0].since, before[1].until)


@pytest.mark.parametrize(
    "files",
    [
        [],
        [file(2, "c.parquet")],
        [file(3, "c.parquet"), file(1, "d.parquet", Kind.ATTEMPT)],
        [{**file(3, "c.parquet"), "day": "2026-11-21"}],
        [{**file(3, "c.parquet"), "last_us": 3}],
    ],
)
def test_files_that_hold_something_else_take_no_place(
    driver: SparkDriver, two_runs: int, files: list[dict[str, Any]]
) -> None:
    before = driver.perform(ArchiveManifest())
    with pytest.raises(errors.IllegalState, match="does not hold what"):
        replace(driver, two_runs, *files)
    assert driver.perform(ArchiveManifest()) == before
    begin(driver)
    with pytest.raises(errors.Fenced):
        replace(driver, two_runs, file(3, "c.parquet"))


@pytest.mark.parametrize(("parts", "whole"), [("a", [False]), ("[ab]", [True])])
def test_a_new_file_is_trimmed_where_all_are_that_it_replaces(
    driver: SparkDriver, qm: onceq.QueueManager, two_runs: int, parts: str, whole: list[bool]
) -> None:
    path = f"path ~ '/{parts}[.]parquet'"
    mark = f"update {qm.repository}.archive_file set is_trimmed = true where {path}"
    driver.connection.execute(mark.encode())
    replace(driver, two_runs, file(3, "c.parquet"))
    assert trimmed(driver) == whole


def test_what_was_replaced_goes_after_a_day_and_another_run(
    driver: SparkDriver, qm: onceq.QueueManager, two_runs: int
) -> None:
    epoch = begin(driver)
    assert epoch > two_runs
    replace(driver, epoch, file(3, "c.parquet"))
    later = begin(driver)
    assert driver.perform(ArchiveDead(epoch=later)) == []
    clock = f"update {qm.repository}.archive_run set replaced_at = replaced_at - interval '25 h'"
    driver.connection.execute(clock.encode())
    assert driver.perform(ArchiveDead(epoch=epoch)) == []
    assert len(driver.perform(ArchiveDead(epoch=later))) == 2


def test_only_what_is_archived_and_old_is_trimmed(
    driver: SparkDriver, qm: onceq.QueueManager, records: Callable[[], list[int]]
) -> None:
    end_some(qm, 3)
    epoch = begin(driver)
    assert trim(driver, epoch) == 0
    until = settled(driver, epoch)
    commit(driver, epoch, 0, until, file(3))
    end_some(qm, 2)
    assert trim(driver, epoch, longer=1) == 0
    assert trim(driver, epoch) == 3
    assert len(records()) == 2
    assert trimmed(driver) == [True]


def test_what_a_queue_or_a_client_still_asks_for_is_not_trimmed(
    driver: SparkDriver, qm: onceq.QueueManager
) -> None:
    """A reply that waits, one received last, what failed and is held: until they are over."""
    qm.declare(ASKED)
    with (
        serving(qm.located.conninfo, qm.repository, ASKED.handled_by(reverse)),
        qm.clerk("till", ASKED, window=3) as clerk,
    ):
        for rid in ("1", "2", "3"):
            clerk.send(rid, "" if rid == "2" else "word")
        wait_until(lambda: len(qm.find(registrant="till")) == 3)
        epoch = begin(driver)
        commit(driver, epoch, 0, settled(driver, epoch), file(3))
        assert trim(driver, epoch) == 0
        assert trimmed(driver) == [False]
        for rid in ("1", "2", "3"):
            clerk.receive(rid=rid, timeout_s=60)
        clerk.acknowledge(clerk.unacknowledged)
        assert trim(driver, epoch) == 1  # "3" was sent and received last, "2" is held
        assert not due(driver, datetime.now(UTC))  # so that no file is read for these two
        assert clerk.send("1", "word").state == "done"
        assert [one.rid for one in qm.find(registrant="till")] == ["3", "2"]
    assert qm.redrive(qm.lookup("2", state="held")[0].eid) is not None


def test_only_what_ended_on_days_whose_files_were_read_is_trimmed(
    driver: SparkDriver, qm: onceq.QueueManager, records: Callable[[], list[int]]
) -> None:
    """Two days by UTC, an hour apart; another time zone of the session has them in one."""
    end_some(qm, 2)
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    for sign, which in (("+", "min"), ("-", "max")):
        moved = f"%s::timestamptz {sign} interval '30 min'"
        where = f"record_no = (select {which}(record_no) from {qm.repository}.history)"
        driver.connection.execute(
            f"update {qm.repository}.history set finished_at = {moved} where {where}".encode(),
            (midnight,),
        )
    driver.connection.execute("set timezone to 'America/New_York'")
    epoch = begin(driver)
    commit(driver, epoch, 0, settled(driver, epoch), file(2))
    what: dict[str, Any] = {"kind": Kind.HISTORY, "before": datetime.now(UTC)}
    first, second = sorted(due(driver, what["before"]))
    assert (first, second) == (date(2026, 2, 28), date(2026, 3, 1))
    for days, left in (([second], 1), ([], 1), ([first], 0)):
        for table, pages in driver.perform(ArchiveTables(kind=Kind.HISTORY)):
            some = ArchiveTrim(**what, epoch=epoch, days=days, table=table, page=0, pages=pages)
            driver.perform(some)
        assert len(records()) == left
    assert not due(driver, what["before"])


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("archive_restore(null, 'x')", "OQ001"),
        ("archive_count('', 0, 1)", "OQ007"),
        ("archive_due_days('history', now(), 'pg_class'::regclass, 0, 1)", "OQ007"),
        ("archive_due_days('attempt', now(), 0, 0, 1)", "OQ007"),
    ],
)
def test_what_is_no_run_no_kind_or_no_table_of_it_is_refused(
    driver: SparkDriver, qm: onceq.QueueManager, call: str, sqlstate: str
) -> None:
    with pytest.raises(psycopg.Error) as refused:
        driver.connection.execute(f"select {qm.repository}.{call}".encode())
    assert refused.value.sqlstate == sqlstate


def test_attempts_have_numbers_too(
    driver: SparkDriver, qm: onceq.QueueManager, onceq_url: str
) -> None:
    columns = "(ended_at, eid, charge) values (now(), gen_random_uuid(), 'charge')"
    ask(onceq_url, f"insert into {qm.repository}.attempt {columns}")
    until = settled(driver, begin(driver))
    assert driver.perform(ArchiveCount(kind=Kind.ATTEMPT, since=0, until=until)) == 1
    assert driver.perform(ArchiveCount(kind=Kind.HISTORY, since=0, until=until)) == 0
