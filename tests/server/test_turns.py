"""The server's Program by itself: whose turn it is, and queues that are made anew."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onceq.model import ops
from onceq.model.element import Element, Lane, Role
from onceq.model.queue import QueueInfo, QueueKind, QueueSettings
from onceq.server.program import (
    TAKE_OVER_EVERY,
    Served,
    ServerSession,
    serve,
)

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_MAX = 5_000
ANSWERS: dict[type[ops.Op[Any]], Any] = {
    ops.OpenIncarnation: ops.Incarnation(slot=1, incarnation=7, backend_pid=1),
    ops.Sweep: ops.Observation(value=0, holders=[]),
    ops.MayTend: False,
    ops.Stopping: False,
    ops.TakeOver: 0,
    ops.Finish: ops.Finished(following=[]),
}


def nothing_new(numbers: list[int]) -> ops.Sighting:
    return ops.Sighting(
        missing=0,
        numbers=numbers,
        ready=[False] * len(numbers),
        stopped=[False] * len(numbers),
        due_s=None,
        seen=ops.Observation(value=0, holders=[]),
        ticks=False,
    )


def info(name: str, queue_id: int) -> QueueInfo:
    return QueueInfo(
        queue_id=queue_id,
        name=name,
        kind=QueueKind.REQUEST,
        settings=QueueSettings(),
        enqueue_started=True,
        dequeue_started=True,
        ready=0,
        claimed=0,
        waiting=0,
        suspect=0,
        held=0,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        oldest_at=None,
    )


def idle_claims(
    names: list[str], queue_id: Callable[[str, int], int], enough: int
) -> list[ops.Claim]:
    """Runs the Program over empty queues until it has claimed so often; returns its claims."""
    taken = steps(names, queue_id, enough)
    return [op for op in taken if isinstance(op, ops.Claim)]


def steps(
    names: list[str],
    queue_id: Callable[[str, int], int],
    enough: int,
    *,
    claimed: tuple[Element, ...] = (),
) -> list[ops.Op[Any]]:
    """Runs the Program until it has claimed so often; returns what it did.

    claimed: what it gets, one at a time; then the queues are empty.
    """
    session = ServerSession(
        process=uuid.UUID(int=1),
        host="here",
        pid=1,
        served=tuple(Served(name, "read committed") for name in names),
    )
    taken: list[ops.Op[Any]] = []
    claims = 0
    waiting = list(claimed)
    program = serve(session)
    answer: Any = None
    for _ in range(STEPS_MAX):
        op = program.send(answer)
        taken.append(op)
        match op:
            case ops.ListQueues(queue=str(name)):
                answer = [info(name, queue_id(name, claims))]
            case ops.Sleep():
                watches = not op.first and op.within_s is None
                answer = ops.Rest.WATCH if watches else ops.Rest.LOOK
            case ops.Survey():
                answer = nothing_new([queue_id(name, claims) for name in op.queues])
            case ops.Claim():
                claims += 1
                answer = waiting[:1]
                del waiting[:1]
            case _:
                answer = ANSWERS.get(type(op), True)
        if claims >= enough:
            break
    program.close()
    return taken


def suspect() -> Element:
    return Element(
        seq=1,
        eid=uuid.UUID(int=1),
        rid="1",
        body=b"",
        role=Role.DATAGRAM,
        queue_id=1,
        lane=Lane.SUSPECT,
        priority=4,
        aborts=0,
        enqueued_at=datetime(2026, 1, 1, tzinfo=UTC),
        owes_reply=False,
    )


def test_every_queue_has_both_kinds_of_turn() -> None:
    ids = {"a": 1, "b": 2}
    claims = idle_claims(["a", "b"], lambda name, _: ids[name], 40)
    for queue_id in ids.values():
        assert {claim.turn % 2 for claim in claims if claim.queue_id == queue_id} == {0, 1}


def test_an_idle_session_finds_a_queue_that_was_made_anew() -> None:
    claims = idle_claims(["a"], lambda _, claimed: 1 if claimed < 5 else 2, 10)
    assert claims[0].queue_id == 1
    assert claims[-1].queue_id == 2


def test_the_first_claim_of_a_session_is_durable() -> None:
    """Until it has claimed something: what brings the database down would come back for ever."""
    claims = idle_claims(["a"], lambda _, __: 1, 20)
    assert not any(claim.may_lose for claim in claims)


def test_an_idle_session_looks_for_the_dead() -> None:
    taken = steps(["a"], lambda _, __: 1, 20)
    assert sum(isinstance(op, ops.Survey) for op in taken) > 1


def test_a_suspect_begins_alone() -> None:
    taken = steps(["a"], lambda _, __: 1, 2, claimed=(suspect(),))
    (begun,) = [op for op in taken if isinstance(op, ops.Begin)]
    assert begun.alone


def test_a_session_that_always_finds_one_more_looks_for_the_dead() -> None:
    """And as it begins. Each execution is two turns: one that finds it, one that finds nothing."""
    claimed = tuple(suspect() for _ in range(2 * TAKE_OVER_EVERY + 1))
    taken = steps(["a"], lambda _, __: 1, len(claimed), claimed=claimed)
    assert sum(isinstance(op, ops.TakeOver) for op in taken) == 3
