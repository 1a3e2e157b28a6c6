"""Queues that keep history for some days: who removes it, and what stops that (Q17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

import onceq
from onceq import telemetry
from onceq.errors import InvalidValue
from onceq.model.retention import Retention
from onceq.model.retention_ops import DueQueue, DueRetention, RetireHistory
from tests.events import emits
from tests.parts import driving, plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from onceq.testing.clock import Clock
    from tests.events import Events

KEPT = onceq.Queue("kept", bytes, bytes, history_days=2)
DAY_S = 86_400.0
HISTORY = "select count(*) from {}.history"


def end(qm: onceq.QueueManager, n: int) -> None:
    qm.declare(KEPT)
    qm.enqueue_many(KEPT, [b"x"] * n)
    for _ in range(n):
        assert qm.dequeue("kept") is not None


def left(qm: onceq.QueueManager) -> int:
    return int(scalar(qm.located.conninfo, HISTORY.format(qm.repository)))


def echo(value: bytes, _: onceq.Context) -> bytes:
    return value


def test_a_server_removes_it(qm: onceq.QueueManager, onceq_clock: Clock) -> None:
    end(qm, 3)
    onceq_clock.advance(3 * DAY_S)
    other = onceq.Queue("other", bytes, bytes)
    with serving(qm.located.conninfo, qm.repository, other.handled_by(echo)):
        wait_until(lambda: left(qm) == 0)


def test_a_step_looks_at_so_many_rows_and_the_next_goes_on(
    qm: onceq.QueueManager, onceq_clock: Clock
) -> None:
    """Of each outcome; what came at one moment goes together, what may not go is passed over."""
    end(qm, 5)
    qm.kill(qm.enqueue(KEPT, b"x"))
    schema, conninfo = qm.repository, qm.located.conninfo
    eids = [row[0] for row in rows(conninfo, f"select eid from {schema}.history order by eid")]
    onceq_clock.advance(3 * DAY_S)
    with plain(conninfo) as connection:  # the first is asked for: something is still in a queue
        connection.execute(
            f"insert into {schema}.element (queue_id, lane, role, rid, eid, enqueued_at, sha256,"
            " body) select queue_id, 12, 'failed', 'x', %s, now(), '', '' from"
            f" {schema}.queue where name = 'kept.error'".encode(),
            (eids[0],),
        )
    queue_id = qm.show("kept").queue_id
    with driving(conninfo, schema) as driver:
        steps: list[int] = []
        while driver.perform(DueRetention()) and len(steps) < 20:
            steps.append(driver.perform(RetireHistory(queue_id=queue_id, n=2)).retired)
        assert driver.perform(DueRetention()) == []
    assert sum(steps) == 5
    assert max(steps) <= 2
    assert [row[0] for row in rows(conninfo, f"select eid from {schema}.history")] == [eids[0]]


def test_if_there_is_an_archive_only_what_is_in_it_goes(
    qm: onceq.QueueManager, onceq_clock: Clock
) -> None:
    end(qm, 3)
    schema, conninfo = qm.repository, qm.located.conninfo
    onceq_clock.advance(3 * DAY_S)
    archive = "insert into {}.archive (root, archived) values ('/srv/archive', {})"
    numbers = [row[0] for row in rows(conninfo, f"select record_no from {schema}.history")]
    with plain(conninfo) as connection:
        connection.execute(archive.format(schema, min(numbers)).encode())
    while qm_due(qm):
        qm.tend()
    found = rows(conninfo, f"select record_no from {schema}.history order by 1")
    assert [row[0] for row in found] == sorted(numbers)[1:]


def qm_due(qm: onceq.QueueManager) -> list[DueQueue]:
    with driving(qm.located.conninfo, qm.repository) as driver:
        return driver.perform(DueRetention())


@emits(telemetry.RetentionFailed)
def test_a_failure_is_logged_and_ends_no_server(
    qm: onceq.QueueManager, onceq_clock: Clock, events: Events
) -> None:
    end(qm, 1)
    schema, conninfo = qm.repository, qm.located.conninfo
    onceq_clock.advance(3 * DAY_S)
    other = onceq.Queue("other", bytes, bytes)
    with psycopg.connect(conninfo) as locking:
        locking.execute(f"lock table {schema}.history in exclusive mode".encode())
        assert qm.tend() == 0
        (event,) = events.of(telemetry.RetentionFailed)
        assert event["queue"] == "kept"
        assert qm_due(qm) == []
    onceq_clock.advance(61)
    with serving(conninfo, schema, other.handled_by(echo)) as server:
        wait_until(lambda: left(qm) == 0)
        assert server.statistics().lives == 1


def test_two_at_once_do_it_once(qm: onceq.QueueManager, onceq_clock: Clock) -> None:
    """Who finds that another one is at it, leaves it."""
    end(qm, 2)
    onceq_clock.advance(3 * DAY_S)
    schema, conninfo = qm.repository, qm.located.conninfo
    queue_id = qm.show("kept").queue_id
    with psycopg.connect(conninfo) as locking, driving(conninfo, schema) as driver:
        locking.execute(f"select from {schema}.retention for update".encode())
        found = driver.perform(RetireHistory(queue_id=queue_id))
        assert (found.retired, found.is_over) == (0, True)
        locking.rollback()
        assert driver.perform(RetireHistory(queue_id=queue_id)).retired == 2


def test_what_is_no_number_of_days_is_refused(qm: onceq.QueueManager) -> None:
    for wrong in (0, -1, 36_501, 1.5, True, "7"):
        with pytest.raises(InvalidValue, match="history_days"):
            onceq.Queue("kept", bytes, bytes, history_days=wrong)  # type: ignore[arg-type] # wrong
        with pytest.raises(InvalidValue, match="history_days"):
            Retention(history_days=wrong)  # type: ignore[arg-type] # wrong
    qm.declare(KEPT)
    with pytest.raises(InvalidValue, match="retention"):
        qm.alter(onceq.AlterQueue(queue="kept", retention=7))  # type: ignore[arg-type] # wrong
    assert qm.show("kept").settings.history_days == 2
    qm.alter(onceq.AlterQueue(queue="kept", retention=Retention()))
    assert qm.show("kept").settings.history_days is None


def test_a_queue_that_is_destroyed_leaves_nothing(qm: onceq.QueueManager) -> None:
    qm.declare(KEPT)
    qm.destroy("kept")
    assert scalar(qm.located.conninfo, f"select count(*) from {qm.repository}.retention") == 0
