"""A server session whose connection broke while its transaction still runs in the database."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.errors import ClaimLost
from onceq.model import ops
from tests.parts import driving, scalar

if TYPE_CHECKING:
    from onceq.engine.driver import PostgresDriver

RAW = onceq.Queue("raw", bytes, bytes)


def open_life(
    driver: PostgresDriver, process: uuid.UUID, former: int | None = None
) -> ops.Incarnation:
    return driver.perform(ops.OpenIncarnation(process=process, host="h", pid=1, former=former))


def begin_to_finish(driver: PostgresDriver, life: ops.Incarnation, queue_id: int) -> None:
    """Claims an element and finishes it, but for the commit."""
    claim = ops.Claim(incarnation=life.incarnation, queue_id=queue_id, n=1, turn=1, alone=True)
    (element,) = driver.perform(claim)
    driver.perform(
        ops.Begin(
            slot=life.slot, seq=element.seq, token="t", isolation="read committed", alone=False
        )
    )
    driver.perform(
        ops.Finish(
            seq=element.seq,
            incarnation=life.incarnation,
            reply=b"",
            content_type=None,
            token="t",
            queue_id=queue_id,
            n=0,
            turn=1,
            alone=True,
        )
    )


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_a_ghost_was_finishing_is_never_stuck(
    qm: onceq.QueueManager, conninfo: str, repository: str, end: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    queue_id = qm.show("raw").queue_id
    process = uuid.uuid4()
    with driving(conninfo, repository) as sibling:
        open_life(sibling, process)
        with driving(conninfo, repository) as ghost, driving(conninfo, repository) as next_life:
            old = open_life(ghost, process)
            begin_to_finish(ghost, old, queue_id)
            new = open_life(next_life, process, old.incarnation)
            assert qm.show("raw").claimed == 1  # the ghost may yet commit: it is not waited for
            assert new.slot != old.slot
            ghost.perform(ops.Commit() if end == "commit" else ops.Rollback())
            ghost.connection.close()
            sibling.perform(ops.TakeOver(process=process))
            info = qm.show("raw")
            assert (info.claimed, info.depth) == (0, 0 if end == "commit" else 1)
    query = f"select count(*) from {repository}.history"
    assert scalar(conninfo, query) == int(end == "commit")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_is_finishing_while_its_incarnation_is_closed_is_never_stuck(
    qm: onceq.QueueManager, conninfo: str, repository: str, end: str
) -> None:
    """At the deadline of a stop another session closes the incarnation."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with driving(conninfo, repository) as server, driving(conninfo, repository) as other:
        life = open_life(server, uuid.uuid4())
        begin_to_finish(server, life, qm.show("raw").queue_id)
        assert other.perform(ops.CloseIncarnation(incarnation=life.incarnation))
        server.perform(ops.Commit() if end == "commit" else ops.Rollback())
        server.connection.close()
        other.perform(ops.TakeOver(process=uuid.uuid4()))
    info = qm.show("raw")
    assert (info.claimed, info.depth) == (0, 0 if end == "commit" else 1)


def test_a_revoked_claim_never_finishes(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    queue_id = qm.show("raw").queue_id
    with driving(conninfo, repository) as server, driving(conninfo, repository) as other:
        life = open_life(server, uuid.uuid4())
        claim = ops.Claim(incarnation=life.incarnation, queue_id=queue_id, n=1, turn=1, alone=True)
        (element,) = server.perform(claim)
        other.perform(ops.CloseIncarnation(incarnation=life.incarnation))
        finish = ops.Finish(
            seq=element.seq,
            incarnation=life.incarnation,
            reply=b"",
            content_type=None,
            token="",
            queue_id=queue_id,
            n=0,
            turn=1,
            alone=True,
        )
        server.connection.execute("set onceq_setting.token = ''")
        with pytest.raises(ClaimLost):
            server.perform(finish)
    assert qm.show("raw").ready + qm.show("raw").waiting == 1
