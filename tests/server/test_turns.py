"""The server's Program by itself: whose turn it is, and queues that are made anew."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onceq.model import ops
from onceq.model.queue import QueueInfo, QueueSettings
from onceq.server.program import LOOK_AGAIN_IDLE, Served, ServerSession, serve

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_MAX = 5_000


def info(name: str, queue_id: int) -> QueueInfo:
    return QueueInfo(
        queue_id=queue_id,
        name=name,
        kind="request",
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
    session = ServerSession(
        process=uuid.UUID(int=1),
        host="here",
        pid=1,
        served=tuple(Served(name, "read committed") for name in names),
    )
    claims: list[ops.Claim] = []
    program = serve(session)
    answer: Any = None
    for _ in range(STEPS_MAX):
        op = program.send(answer)
        match op:
            case ops.OpenIncarnation():
                answer = ops.Incarnation(slot=1, incarnation=7, backend_pid=1)
            case ops.ListQueues(queue=str(name)):
                answer = [info(name, queue_id(name, len(claims)))]
            case ops.Claim():
                claims.append(op)
                answer = []
            case ops.Sweep():
                answer = ops.Observation(value=0, holders=[])
            case ops.Stopping():
                answer = False
            case _:
                answer = True
        if len(claims) >= enough:
            break
    program.close()
    return claims


def test_every_queue_has_both_kinds_of_turn() -> None:
    ids = {"a": 1, "b": 2}
    claims = idle_claims(["a", "b"], lambda name, _: ids[name], 40)
    for queue_id in ids.values():
        assert {claim.turn % 2 for claim in claims if claim.queue_id == queue_id} == {0, 1}


def test_an_idle_session_finds_a_queue_that_was_made_anew() -> None:
    claims = idle_claims(["a"], lambda _, claimed: 1 if claimed < 5 else 2, LOOK_AGAIN_IDLE + 5)
    assert claims[0].queue_id == 1
    assert claims[-1].queue_id == 2


def test_the_first_claim_of_a_session_is_durable() -> None:
    """Until it has claimed something: what brings the database down would come back for ever."""
    claims = idle_claims(["a"], lambda _, __: 1, 20)
    assert not any(claim.may_lose for claim in claims)
