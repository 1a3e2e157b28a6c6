"""The calls of a queue manager that meet fault points, each so that it can be begun again.

Used by proof/fault_programs.py. What must happen once leaves a row in the ledger of effects, in the
same transaction; the rest may happen any number of times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import uuid
from typing import TYPE_CHECKING, Any, Final

import onceq
from onceq import errors
from onceq.model.element import KillAnswer
from proof.harness.ledger import EFFECTS, ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    from onceq.model.element import Element

THINGS: Final = onceq.Queue("things", str, str, abort_limit=100, backoff_ms=0)
FRAGILE: Final = onceq.Queue("fragile", str, str, abort_limit=1, backoff_ms=0)
ASKED: Final = onceq.Queue("asked", str, str, abort_limit=100, backoff_ms=0)
TAGGED: Final = onceq.Queue("tagged", str, str, abort_limit=100, backoff_ms=0)
HOLDING: Final = onceq.Queue("holding", str, str, abort_limit=1, backoff_ms=0, on_failure="hold")
SPARE: Final = onceq.Queue("spare", str, str)
QUEUES: Final = (THINGS, FRAGILE, ASKED, TAGGED, HOLDING)
POINTS_AT: Final = "points"
"""Where the processes of a trial note which points they have reached."""
RECEIVED: Final = 100
"""Added to the number of a reply, to note that the reply was received."""
WAIT_S: Final = 10.0
LOOK_S: Final = 0.05
TICK_S: Final = 0.002


def times(place: Path, point: str) -> int:
    """Returns how often any process of the trial has reached a point."""
    path = place / POINTS_AT / point
    return path.stat().st_size if path.exists() else 0


def administer(qm: onceq.QueueManager) -> None:
    """Makes queues, changes one, and destroys one."""
    for queue in (*QUEUES, SPARE):
        qm.declare(queue)
    qm.stop(THINGS.name, enqueue=True, dequeue=False)
    qm.start(THINGS.name, enqueue=True, dequeue=False)
    while qm.dequeue(SPARE.name) is not None:  # what a former life left
        pass
    qm.enqueue_many(SPARE, ["a", "b"])
    while qm.dequeue(SPARE.name) is not None:  # as many as there are
        pass
    qm.destroy(SPARE.name)


def register(qm: onceq.QueueManager) -> None:
    """Makes a registration and ends it, and another that ends when its client is forgotten."""
    handle = qm.register(THINGS.name, "passer-by")[0]
    qm.deregister(THINGS.name, handle)
    qm.register(THINGS.name, "leaver")
    qm.forget("leaver", forced=True)
    name = f"finisher-{uuid.uuid4()}"  # a closed one never comes back
    qm.register(THINGS.name, name)
    qm.close_client(name, forced=True)


def enqueue_tagged(qm: onceq.QueueManager, count: int) -> None:
    """Enqueues t1, t2, ... once each: the tag says where a former life stopped."""
    handle = qm.register(THINGS.name, "robot")[0]
    last = qm.read_last(THINGS.name, handle)
    done = 0 if last is None or last.tag is None else int(last.tag)
    for number in range(done + 1, count + 1):
        body = THINGS.encode_request(f"t{number}")
        qm.enqueue_tagged(THINGS.name, handle, body, str(number).encode())


def tag_in_transactions(
    qm: onceq.QueueManager, connection: psycopg.Connection[Any], count: int
) -> None:
    """Reads one element, kills another and takes the first, each once: the tag is the last step.

    What a step enqueues, and does, and its tag are one transaction of the caller's.
    """
    handle = qm.register(TAGGED.name, "clockwork")[0]
    step = 0 if handle.tag is None else int(handle.tag)
    steps = (_read_one, _kill_one, _take_one)
    while step < count * len(steps):
        if steps[step % len(steps)](qm, handle, str(step + 1).encode(), connection):
            connection.commit()
            step += 1
        else:  # a dead life still holds it
            connection.rollback()


def _read_one(qm: onceq.QueueManager, handle: Any, tag: bytes, connection: Any) -> bool:
    eid = qm.enqueue(TAGGED, "to be taken", connection=connection)
    return qm.read_tagged(TAGGED.name, handle, eid, tag, connection=connection) is not None


def _kill_one(qm: onceq.QueueManager, handle: Any, tag: bytes, connection: Any) -> bool:
    eid = qm.enqueue(TAGGED, "to be killed", connection=connection)
    killed = qm.kill_tagged(TAGGED.name, handle, eid, tag, connection=connection)
    return killed is KillAnswer.KILLED


def _take_one(qm: onceq.QueueManager, handle: Any, tag: bytes, connection: Any) -> bool:
    taken = qm.dequeue_tagged(TAGGED.name, handle, tag, timeout_s=WAIT_S, connection=connection)
    return taken is not None


def _note(connection: psycopg.Connection[Any], repository: str, element: Element, key: str) -> None:
    insert = f"insert into {repository}.{EFFECTS} (key, rid, eid) values (%s, %s, %s)"
    connection.execute(insert.encode(), [key, element.rid, str(element.eid)])


def enqueue_in_transactions(
    qm: onceq.QueueManager, connection: psycopg.Connection[Any], count: int
) -> None:
    """Enqueues e1, e2, ... in the caller's transactions, each with a row that records it."""
    for number in range(1, count + 1):
        with connection.transaction():
            row = connection.execute(
                f"insert into {qm.repository}.enqueued values (%s)"
                " on conflict do nothing returning 1".encode(),
                [number],
            ).fetchone()
            if row is not None:
                qm.enqueue(THINGS, f"e{number}", connection=connection)
        connection.commit()


def dequeue_in_transactions(
    qm: onceq.QueueManager, connection: psycopg.Connection[Any], count: int
) -> None:
    """Takes everything in the caller's transactions, each once in vain before it is kept."""
    while _noted(connection, qm.repository) < count:  # what is lost ends the trial by its limit
        for keep in (False, True):
            element = qm.dequeue(
                THINGS.name, timeout_s=WAIT_S, connection=connection, abort_limit=1000
            )
            if element is not None:
                key = THINGS.decode_request(element.body)
                _note(connection, qm.repository, element, key)
            if keep:
                connection.commit()
            else:
                connection.rollback()


def _noted(connection: psycopg.Connection[Any], repository: str) -> int:
    query = f"select count(distinct key) from {repository}.{EFFECTS} where key ~ '^[te]'"
    row = connection.execute(query.encode()).fetchone()
    connection.rollback()
    return 0 if row is None else int(row[0])


def kill_and_redrive(qm: onceq.QueueManager, connection: psycopg.Connection[Any]) -> None:
    """Kills an element; lets another fail, has it run again, and takes it for good."""
    qm.kill(qm.enqueue(FRAGILE, "to be killed"))
    eid = qm.enqueue(FRAGILE, "to fail")
    if qm.dequeue(FRAGILE.name, eid=eid, timeout_s=WAIT_S, connection=connection) is None:
        raise RuntimeError("what was enqueued is not there")
    connection.rollback()
    with contextlib.suppress(errors.QueueNotFound):
        qm.dequeue(FRAGILE.name, timeout_s=0, connection=connection)  # settles what was taken
    connection.rollback()
    driven = qm.redrive(eid)
    if driven is None:
        raise RuntimeError("what has failed is not held")
    qm.resolve(driven[0])


def hold_and_release(qm: onceq.QueueManager, connection: psycopg.Connection[Any]) -> None:
    """Has a queue hold two at their abort limit; retries one, gives up the other."""
    for release in (qm.retry_held, qm.give_up_held):
        eid = qm.enqueue(HOLDING, "to be held")
        if qm.dequeue(HOLDING.name, eid=eid, timeout_s=WAIT_S, connection=connection) is None:
            raise RuntimeError("what was enqueued is not there")
        connection.rollback()
        qm.dequeue(HOLDING.name, timeout_s=0, connection=connection)  # settles what was taken
        connection.rollback()
        if not release(eid=eid):
            raise RuntimeError("what has reached its abort limit is not held")


def take_the_rest(qm: onceq.QueueManager) -> None:
    """Takes for good what was redriven or retried, including what a dead life still holds."""
    pause = threading.Event()
    for queue in (FRAGILE, HOLDING):
        while qm.show(queue.name).depth:  # what is never released ends the trial by its limit
            qm.retry_held(queue=queue.name)
            if qm.dequeue(queue.name) is None:
                pause.wait(LOOK_S)


def reply_by_hand(
    qm: onceq.QueueManager, connect: Callable[[], psycopg.Connection[Any]], rid: str
) -> None:
    """A client's request, taken and answered in the caller's transaction."""
    with qm.clerk("asker", ASKED) as clerk:
        _answer(qm, connect, clerk)
        if int(clerk.last_sent or 0) < int(rid):
            clerk.send(rid, "what is it?")
            _answer(qm, connect, clerk)


def _answer(
    qm: onceq.QueueManager,
    connect: Callable[[], psycopg.Connection[Any]],
    clerk: onceq.Clerk[str, str],
) -> None:
    with connect() as connection:
        while clerk.outstanding:  # what is lost ends the trial by its limit
            element = qm.dequeue(ASKED.name, timeout_s=0, connection=connection)
            if element is not None:
                _note(connection, qm.repository, element, f"asked {element.rid}")
                qm.reply(connection, element, ASKED.encode_reply("it is this"))
            connection.commit()
            with contextlib.suppress(errors.ReceiveTimeout):
                _receive(qm, clerk, connection)


def _receive(
    qm: onceq.QueueManager, clerk: onceq.Clerk[str, str], connection: psycopg.Connection[Any]
) -> None:
    """Receives a reply in the caller's transactions, once in vain before it is kept."""
    insert = f"insert into {qm.repository}.enqueued values (%s)".encode()
    for end in (connection.rollback, connection.commit):
        reply = clerk.receive(timeout_s=LOOK_S, connection=connection)
        connection.execute(insert, [RECEIVED + int(reply.rid)])
        end()


# --- servers -----------------------------------------------------------------------------------


def stop_after(
    server: onceq.Server, place: Path, noted: list[Path], wanted: dict[str, int]
) -> None:
    """Stops a server when files are there, and points were reached often enough."""
    pause = threading.Event()
    while not all(path.exists() for path in noted) or any(
        times(place, name) < often for name, often in wanted.items()
    ):
        pause.wait(TICK_S)
    server.stop()


def die_in_a_handler(queue: onceq.Queue[bytes, bytes], url: str, repository: str) -> None:
    """Lets a process of its own die in a handler, and waits until somebody has judged it."""

    def die(_body: bytes, _context: onceq.Context) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it lives")

    pid = os.fork()
    if pid == 0:
        onceq.Server([queue.handled_by(die)]).run(url, repository=repository)
    os.waitpid(pid, 0)
    pause = threading.Event()
    while ask(url, f"select from {repository}.server where pid = {pid}"):
        pause.wait(TICK_S)
