"""What a crash of the database keeps and loses, in the oracle."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceq.errors import ConnectionLost, DeadlineExceeded, QueueNotFound, StatementRefused
from onceq.model import ops
from onceq.model.element import KillAnswer
from onceq.model.queue import QueueSettings
from proof.oracle import Oracle
from proof.oracle.memory import MemoryClock, MemoryDriver, memory_repository

PROCESS = UUID(int=1)
Place = tuple[Oracle, MemoryClock]


def made(*, durable: bool = True) -> tuple[Place, MemoryDriver]:
    place = memory_repository()
    driver = MemoryDriver(*place)
    driver.perform(ops.CreateQueue(queue="q", settings=QueueSettings(durable=durable)))
    return place, driver


def begun(driver: MemoryDriver) -> tuple[ops.Incarnation, int]:
    """Claims an element and begins to execute it."""
    life = driver.perform(ops.OpenIncarnation(process=PROCESS, host="here", pid=1))
    (queue,) = driver.perform(ops.ListQueues(queue="q"))
    claim = ops.Claim(
        incarnation=life.incarnation, queue_id=queue.queue_id, n=1, turn=1, alone=True
    )
    (element,) = driver.perform(claim)
    driver.perform(
        ops.Begin(
            slot=life.slot, seq=element.seq, token="1", isolation="read committed", alone=False
        )
    )
    return life, element.seq


@pytest.mark.parametrize("durable", [True, False])
def test_a_crash_keeps_what_is_durable(*, durable: bool) -> None:
    place, driver = made(durable=durable)
    driver.perform(ops.Enqueue(queue="q", body=b"x"))
    place[0].crash()
    with pytest.raises(ConnectionLost):
        driver.perform(ops.ListQueues())
    found = MemoryDriver(*place).perform(ops.Dequeue(queue="q"))
    assert (found is not None) is durable


def test_a_clean_shutdown_keeps_what_is_volatile() -> None:
    place, driver = made(durable=False)
    driver.perform(ops.Enqueue(queue="q", body=b"x"))
    place[0].crash(clean=True)
    assert MemoryDriver(*place).perform(ops.Dequeue(queue="q")) is not None


def test_what_ran_in_a_crash_becomes_a_suspect() -> None:
    place, driver = made()
    eid = driver.perform(ops.Enqueue(queue="q", body=b"x"))
    begun(driver)
    place[0].crash()
    other = MemoryDriver(*place)
    assert other.perform(ops.TakeOver(process=UUID(int=2))) == 1
    found = other.perform(ops.ReadElement(eid=eid))
    assert found is not None
    assert (found.aborts, found.is_suspect) == (0, True)


def test_a_death_undoes_its_transaction() -> None:
    place, driver = made()
    eid = driver.perform(ops.Enqueue(queue="q", body=b"x"))
    life, seq = begun(driver)
    take = ops.Take(seq=seq, incarnation=life.incarnation)
    driver.perform(take)
    driver.end()
    other = MemoryDriver(*place)
    assert other.perform(ops.ReadElement(eid=eid)) is not None
    assert other.perform(ops.Kill(eid=eid)) is KillAnswer.KILLED


def test_a_kill_waits_for_a_finish_that_has_begun() -> None:
    place, driver = made()
    eid = driver.perform(ops.Enqueue(queue="q", body=b"x"))
    life, seq = begun(driver)
    (queue,) = driver.perform(ops.ListQueues(queue="q"))
    driver.perform(
        ops.Finish(
            seqs=[seq],
            incarnation=life.incarnation,
            replies=[b""],
            content_type=None,
            token="1",
            queue_id=queue.queue_id,
            n=0,
            turn=1,
            alone=True,
        )
    )
    other = MemoryDriver(*place)
    with pytest.raises(DeadlineExceeded):
        other.perform(ops.Kill(eid=eid))
    driver.perform(ops.Commit())
    assert other.perform(ops.Kill(eid=eid)) is KillAnswer.TOO_LATE


def test_a_transaction_that_failed_takes_nothing_more() -> None:
    _, driver = made()
    driver.perform(ops.Enqueue(queue="q", body=b"x"))
    begun(driver)
    with pytest.raises(QueueNotFound):
        driver.perform(ops.DestroyQueue(queue="none"))
    with pytest.raises(StatementRefused):
        driver.perform(ops.ListQueues())
    driver.perform(ops.Rollback())
    assert [one.name for one in driver.perform(ops.ListQueues())] == ["q", "q.error"]
