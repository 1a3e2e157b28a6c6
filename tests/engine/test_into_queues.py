"""What may not get into a queue: anything into a destroyed one, requests into reply queues."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

import onceq
from onceq.errors import IllegalState, QueueNotEmpty, QueueNotFound, ReceiveTimeout
from onceq.model import ops
from onceq.model.element import Fate
from tests.lives import living
from tests.parts import LIMIT_S, Background, driving, plain, scalar, wait_blocked

if TYPE_CHECKING:
    import uuid
    from collections.abc import Generator

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=1)
REPLIES = onceq.Queue("reply-1", bytes, bytes)


def failed(qm: onceq.QueueManager, conninfo: str, repository: str) -> uuid.UUID:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as life:
        assert life.abort(life.claim_one("raw")) is Fate.FAILED
    assert qm.show("raw.error").held == 1
    return eid


@contextlib.contextmanager
def redriving(
    conninfo: str, repository: str, eid: uuid.UUID, isolation: str
) -> Generator[psycopg.Connection]:
    """A transaction that has redriven an element and not ended."""
    with psycopg.connect(conninfo) as connection:
        connection.execute(f"set transaction isolation level {isolation}".encode())
        connection.execute(f"set local search_path = {repository}".encode())
        connection.execute(f"select * from {repository}.redrive(%s)".encode(), (eid,))
        yield connection


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_queue_is_not_destroyed_under_what_is_being_redriven_into_it(
    qm: onceq.QueueManager, conninfo: str, repository: str, isolation: str
) -> None:
    eid = failed(qm, conninfo, repository)
    with redriving(conninfo, repository, eid, isolation) as connection:
        destroying = Background(lambda: qm.destroy("raw"))
        wait_blocked(conninfo, f"{repository}.destroy_queue", destroying)
        connection.commit()
        with pytest.raises(QueueNotEmpty):
            destroying.result()
    element = qm.dequeue("raw", timeout_s=LIMIT_S)
    assert element is not None
    assert element.eid == eid


def test_a_redrive_with_an_older_snapshot_puts_nothing_into_a_queue_destroyed_since(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    eid = failed(qm, conninfo, repository)
    with psycopg.connect(conninfo) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute(f"select count(*) from {repository}.queue".encode())
        qm.destroy("raw")
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.execute(f"select * from {repository}.redrive(%s)".encode(), (eid,))
    assert qm.show("raw.error").held == 1


def test_races_of_redrive_and_destroy_leave_nothing_in_a_destroyed_queue(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    lost = f"""select count(*) from {repository}.element e
        join {repository}.queue q using (queue_id) where q.destroyed_at is not null"""
    for _ in range(20):
        eid = failed(qm, conninfo, repository)
        with onceq.open(conninfo, repository=repository) as other:
            destroying = Background(partial(other.destroy, "raw"))
            with contextlib.suppress(QueueNotFound):
                qm.redrive(eid)
            with contextlib.suppress(QueueNotEmpty):
                destroying.result()
        assert scalar(conninfo, lost) == 0
        for queue in ("raw", "raw.error"):
            with plain(conninfo) as connection:
                connection.execute(
                    f"delete from {repository}.element e using {repository}.queue q"
                    f" where q.queue_id = e.queue_id and q.name = '{queue}'".encode()
                )


def test_a_refusal_names_the_queue_as_it_is_called(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    qm.declare(onceq.Queue("other", bytes, bytes))
    with qm.clerk("c", RAW), pytest.raises(IllegalState, match='queue "reply-1" is a client'):
        qm.dequeue("reply-1")


def test_nothing_is_enqueued_into_the_replies_of_a_client(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """A client would take it as its reply (G1)."""
    qm.declare(RAW)
    with qm.clerk("c", RAW) as clerk, qm.clerk("other", REPLIES) as forger:
        clerk.send("1", b"x")
        with psycopg.connect(conninfo) as own:
            attempts = (
                lambda: qm.enqueue(REPLIES, b"forged", rid="1"),
                lambda: qm.enqueue(REPLIES, b"forged", priority=7),
                lambda: qm.enqueue_many(REPLIES, [b"forged"]),
                lambda: qm.enqueue(REPLIES, b"forged", connection=own),
                lambda: forger.send("1", b"forged"),
                lambda: forger.send_many([("2", b"forged")]),
                lambda: clerk.alert_late(REPLIES.name, late_s=0),
            )
            for attempt in attempts:
                with pytest.raises(IllegalState, match="replies to a client"):
                    attempt()
                own.rollback()
        with pytest.raises(IllegalState, match="a client's own"):
            qm.register("reply-1", "forger")
        who = ops.Identity(registrant_id=1, epoch=1)
        forged = ops.EnqueueTagged(who=who, queue="reply-1", body=b"")
        with (
            driving(conninfo, repository) as driver,
            pytest.raises(IllegalState, match="a client's own"),
        ):
            driver.perform(forged)
        assert scalar(conninfo, f"select count(*) from {repository}.element") == 1
        with pytest.raises(ReceiveTimeout):
            clerk.receive(timeout_s=0)
