"""The abort limit and the error queue of one dequeue and of one handler (Q4)."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

import onceq
from onceq.errors import InvalidName, InvalidValue, QueueNotEmpty
from tests.parts import rows, serving, wait_until

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=3)
OTHER = onceq.Queue("other", bytes, bytes, backoff_ms=0, abort_limit=2)


def held_in(qm: onceq.QueueManager) -> dict[str, int]:
    return {one.name: one.held for one in qm.queues() if one.held}


def roll_back(qm: onceq.QueueManager, connection: psycopg.Connection[Any], **terms: Any) -> int:
    """Dequeues on these terms in vain; returns how often the element was aborted before."""
    element = qm.dequeue("raw", timeout_s=60, connection=connection, **terms)
    assert element is not None
    connection.rollback()
    return element.aborts


def test_a_dequeue_fails_what_it_rolls_back_on_its_terms(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        assert roll_back(qm, connection) == 0
        assert roll_back(qm, connection, abort_limit=2, error_queue="review") == 1
        assert qm.dequeue("raw", connection=connection) is None
    assert held_in(qm) == {"review": 1}
    (held,) = qm.held()
    assert (held.queue, held.error_queue, held.attempts) == ("raw", "review", 2)


def test_the_terms_of_one_dequeue_are_not_those_of_another(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    """Even if both are held at once by the same queue manager."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"1", b"2"])
    with psycopg.connect(conninfo) as one, psycopg.connect(conninfo) as two:
        assert qm.dequeue("raw", connection=one, abort_limit=1) is not None
        assert qm.dequeue("raw", connection=two) is not None
        one.rollback()
        two.rollback()
        wait_until(lambda: held_in(qm) == {"raw.error": 1})
        wait_until(lambda: qm.show("raw").claimed == 0)
    assert qm.show("raw").depth == 1


def test_terms_go_with_what_they_are_of(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """A life that dequeues for ever on terms keeps those of what it holds, and no others."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"1", b"2", b"3"])
    with psycopg.connect(conninfo) as connection:
        for _ in range(3):
            assert qm.dequeue("raw", connection=connection, abort_limit=1) is not None
            connection.commit()
    assert len(rows(conninfo, f"select from {repository}.terms")) == 1
    qm.close()
    assert rows(conninfo, f"select from {repository}.terms") == []


def test_a_tagged_and_an_async_dequeue_have_terms(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    me = qm.register("raw", "robot")[0]
    qm.enqueue(RAW, b"1")
    with psycopg.connect(conninfo) as connection:
        taken = qm.dequeue_tagged("raw", me, b"t", connection=connection, abort_limit=1)
        assert taken is not None
        connection.rollback()
        wait_until(lambda: held_in(qm) == {"raw.error": 1})

    async def dequeue() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as other,
            await psycopg.AsyncConnection.connect(conninfo) as connection,
        ):
            await other.enqueue(RAW, b"2")
            assert await other.dequeue(
                "raw", connection=connection, error_queue="review", abort_limit=1
            )
            await connection.rollback()

    asyncio.run(dequeue())
    assert held_in(qm) == {"raw.error": 1, "review": 1}


def test_a_handler_has_terms(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    """For each of its queues its own; a handler that has none fails as its queue says."""

    def fail(_body: bytes, _context: onceq.Context) -> bytes:
        raise ValueError("no")

    handled = (RAW.handled_by(fail, abort_limit=1, error_queue="review"), OTHER.handled_by(fail))
    qm.declare(RAW)
    qm.declare(OTHER)
    qm.enqueue(RAW, b"1")
    qm.enqueue(OTHER, b"2")
    with serving(conninfo, repository, *handled):
        wait_until(lambda: sum(held_in(qm).values()) == 2)
        assert held_in(qm) == {"review": 1, "other.error": 1}
        with pytest.raises(QueueNotEmpty):
            qm.destroy("review")
    assert {one.queue: one.attempts for one in qm.held()} == {"raw": 1, "other": 2}


@pytest.mark.parametrize(
    ("terms", "kind", "says"),
    [
        ({"abort_limit": 0}, InvalidValue, "abort_limit is an int from 1 to 1000"),
        ({"abort_limit": "3"}, InvalidValue, "abort_limit is an int from 1 to 1000"),
        ({"error_queue": "no name"}, InvalidName, "no name"),
        ({"error_queue": "raw"}, InvalidValue, "is the queue itself"),
        ({"abort_limits": 3}, InvalidValue, "abort_limits"),
    ],
)
def test_wrong_terms_are_refused_at_once(
    qm: onceq.QueueManager, conninfo: str, terms: Any, kind: type[Exception], says: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")

    def book(body: bytes, _context: onceq.Context) -> bytes:
        return body

    with psycopg.connect(conninfo) as connection:
        with pytest.raises(kind, match=says):
            qm.dequeue("raw", connection=connection, **terms)
        with pytest.raises(kind, match=says):
            RAW.handled_by(book, **terms)
    assert qm.show("raw").ready == 1


def test_terms_that_could_have_no_effect_are_refused(qm: onceq.QueueManager, conninfo: str) -> None:
    """Outside of a transaction no dequeue is aborted; a client's own queue holds no failures."""
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with pytest.raises(InvalidValue, match="connection="):
        qm.dequeue("raw", abort_limit=1)
    with psycopg.connect(conninfo) as connection, pytest.raises(InvalidValue, match="reply-N"):
        qm.dequeue("raw", connection=connection, error_queue="reply-7")
    assert qm.show("raw").claimed == 0
    assert qm.attempts(eid) == []
