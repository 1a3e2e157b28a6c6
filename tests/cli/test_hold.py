"""`onceq error retry` and `give-up`, `--on-failure hold`; `qm.retry_held`, `give_up_held` (G3)."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

import onceq
from onceq.errors import InvalidValue, QueueNotFound
from onceq.model.element import Unheld
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from tests.cli.parts import Cli

HOLDING: Final = onceq.Queue("holding", bytes, bytes, abort_limit=1, on_failure="hold")


def fail(request: bytes, _context: onceq.Context) -> bytes:
    raise KeyError(request.decode())


def _holds(qm: onceq.QueueManager, number: int) -> bool:
    return qm.show("holding").held == number


def hold(qm: onceq.QueueManager, conninfo: str, *rids: str) -> list[uuid.UUID]:
    """Has the requests of a client be held by their queue; their eids."""
    qm.declare(HOLDING)
    with (
        serving(conninfo, qm.repository, HOLDING.handled_by(fail)),
        qm.clerk("ann", HOLDING, window=10) as clerk,
    ):
        for number, rid in enumerate(rids, 1):
            clerk.send(rid, b"pen")
            wait_until(partial(_holds, qm, number))
    return [qm.lookup(rid)[0].eid for rid in rids]


def test_what_a_queue_holds_is_listed_retried_and_given_up(
    qm: onceq.QueueManager, conninfo: str, cli: Cli
) -> None:
    """By its EID, by its rid, and by what chooses it; the rid and the eid stay."""
    eids = hold(qm, conninfo, "1", "2", "3")
    listed = cli.json("error", "list").lines
    assert [(one["rid"], one["queue"], one["state"], one["role"]) for one in listed] == [
        (rid, "holding", "held", "request") for rid in ("3", "2", "1")
    ]
    (group,) = cli.json("error", "list", "--group").lines
    assert (group["count"], group["queue"], group["error_queue"]) == (3, "holding", None)
    dry = cli.json("error", "retry", "--queue", "holding", "--dry-run").lines
    assert [(one["rid"], one["fate"]) for one in dry[:-1]] == [
        ("1", None),
        ("2", None),
        ("3", None),
    ]
    cli("redrive", "--queue", "holding", "--all")  # nothing of it has failed
    assert qm.show("holding").held == 3
    (given_up,) = cli.json("error", "give-up", "2").lines
    assert (given_up["eid"], given_up["fate"]) == (str(eids[1]), "given_up")
    (retried,) = cli.json("error", "retry", str(eids[0])).lines
    assert (retried["rid"], retried["fate"]) == ("1", "retried")
    assert "no queue holds such a one" in cli("error", "retry", str(eids[0]), code=3).err
    assert "give an EID" in cli("error", "retry", code=2).err
    (last,) = cli.json("error", "retry", "--code", "KeyError", "--all").lines
    assert (last["rid"], last["fate"]) == ("3", "retried")

    def mend(request: bytes, _context: onceq.Context) -> bytes:
        return request

    with (
        serving(conninfo, qm.repository, HOLDING.handled_by(mend)),
        qm.clerk("ann", HOLDING, window=10) as clerk,
    ):
        replies = {reply.rid: reply for reply in (clerk.receive(timeout_s=60) for _ in range(3))}
        clerk.acknowledge(list(replies))
    assert {rid: one.outcome.value for rid, one in replies.items()} == {
        "1": "done",
        "2": "failed",
        "3": "done",
    }
    assert [one.error_queue for one in qm.held()] == ["holding.error"]


def test_what_a_queue_holds_is_released_by_async_code_too(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    one, two = hold(qm, conninfo, "1", "2")

    async def release() -> None:
        async with onceq.open_async(conninfo, repository=qm.repository) as other:
            (given_up,) = await other.give_up_held(eid=one)
            (retried,) = await other.retry_held(queue="holding")
            assert (given_up.fate, retried.fate) == (Unheld.GIVEN_UP, Unheld.RETRIED)
            assert (given_up.old.eid, retried.old.eid) == (one, two)
            assert await other.retry_held() == []
            with pytest.raises(QueueNotFound):
                await other.retry_held(queue="nowhere")
            with pytest.raises(InvalidValue):
                await other.give_up_held(limit=0)

    asyncio.run(release())


def test_a_queue_is_told_to_hold_by_the_command(qm: onceq.QueueManager, cli: Cli) -> None:
    cli("queue", "create", "line", "--on-failure", "hold", "--order", "strict")
    assert qm.show("line").settings.on_failure == "hold"
    assert cli.json("queue", "show", "line").item["settings"]["on_failure"] == "hold"
    cli("queue", "alter", "line", "--on-failure", "fail")
    assert qm.show("line").settings.on_failure == "fail"
    for word in ("create", "alter"):
        assert "on_failure" in cli("queue", word, "line", "--on-failure", "keep", code=2).err
    assert qm.show("line").settings.on_failure == "fail"


def test_explain_says_that_a_held_head_blocks_its_line(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    line = onceq.Queue("line", bytes, bytes, abort_limit=1, on_failure="hold", order="strict")
    qm.declare(line)
    first, second = qm.enqueue_many(line, [b"1", b"2"])
    with serving(conninfo, qm.repository, line.handled_by(fail)):
        wait_until(lambda: qm.show("line").held == 1)
        why = qm.explain(eid=second).answer
        assert why is not None
        assert why.name == "head"
        assert "queue line holds it for an operator" in why.words
        qm.give_up_held(eid=first)
        wait_until(lambda: qm.show("line").held == 1 and qm.show("line").depth == 1)
    assert {one.queue: one.held for one in qm.load().queues} == {"line": 1}
    assert 'onceq_queue_elements{queue="line",state="held"} 1' in qm.metrics().text()
