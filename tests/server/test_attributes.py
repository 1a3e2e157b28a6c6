"""What travels with an element from its sender to its handler, and to the next (spec Q9)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import InvalidValue
from onceq.model.attributes import ElementType
from tests.lives import living
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

RAW = onceq.Queue("raw", bytes, bytes)
SECOND = onceq.Queue("second", bytes, bytes)
ANSWERS = onceq.Queue("answers", bytes, bytes)
GIVEN: Any = {
    "message_id": "m-1",
    "scratch": {"path": ["client"]},
    "properties": {"colour": "red"},
    "content_type": "text/plain; charset=cp037",
}


@pytest.fixture(autouse=True)
def declared(qm: onceq.QueueManager) -> None:
    for queue in (RAW, SECOND, ANSWERS):
        qm.declare(queue)


def has_all(element: onceq.Element | None, kind: ElementType) -> None:
    assert element is not None
    assert element.type is kind
    assert (element.message_id, element.scratch) == ("m-1", {"path": ["client"]})
    assert (element.content_type, element.code_page) == ("text/plain; charset=cp037", "cp037")
    assert element.properties is not None
    assert element.properties["colour"] == "red"


def enqueued(url: str, repository: str) -> None:
    with onceq.open(url, repository=repository) as manager:
        manager.enqueue(RAW, b"x", reply_to="answers", **GIVEN)


def enqueued_async(url: str, repository: str) -> None:
    async def enqueue() -> None:
        async with onceq.open_async(url, repository=repository) as manager:
            await manager.enqueue(RAW, b"x", reply_to="answers", **GIVEN)

    asyncio.run(enqueue())


@pytest.mark.parametrize("way", [enqueued, enqueued_async])
def test_a_datagram_says_where_its_answer_is_awaited(
    qm: onceq.QueueManager, conninfo: str, repository: str, way: Callable[[str, str], None]
) -> None:
    way(conninfo, repository)
    element = qm.dequeue("raw")
    has_all(element, ElementType.DATAGRAM)
    assert element is not None
    assert element.reply_to == "answers"


def sent(clerk: onceq.Clerk[bytes, bytes]) -> None:
    clerk.send("1", b"x", **GIVEN)


def sent_one_way(clerk: onceq.Clerk[bytes, bytes]) -> None:
    clerk.send_one_way("1", b"x", **GIVEN)
    assert clerk.outstanding == ["1"]
    clerk.where("1")  # reads the answer


def sent_with_others(clerk: onceq.Clerk[bytes, bytes]) -> None:
    clerk.send_many([("1", b"x", GIVEN)])


@pytest.mark.parametrize("send", [sent, sent_one_way, sent_with_others])
def test_each_send_of_a_clerk_has_all_of_it(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    send: Callable[[onceq.Clerk[bytes, bytes]], None],
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=2) as clerk:
        send(clerk)
        element = life.claim_one("raw")
        has_all(element, ElementType.REQUEST)
        life.run(element, b"done")
        assert clerk.receive(timeout_s=60).value == b"done"


def test_an_async_clerk_does_too(conninfo: str, repository: str) -> None:
    async def send() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as manager,
            manager.clerk("till", RAW, window=3) as clerk,
        ):
            await clerk.send("1", b"x", **GIVEN)
            await clerk.send_many([("2", b"x", GIVEN)])

    asyncio.run(send())
    with living(conninfo, repository) as life:
        for element in life.claim("raw", 2):
            has_all(element, ElementType.REQUEST)


def test_many_have_attributes_of_their_own(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    ann = onceq.EndUser("ann")
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=3) as clerk:
        clerk.send_many([("1", b"", ann), ("2", b"", {"message_id": "m-2", "end_user": ann})])
        one, two = life.claim("raw", 2)
        assert (one.message_id, two.message_id) == (str(one.eid), "m-2")
        with pytest.raises(InvalidValue, match="no keyword 'expires_at'"):
            clerk.send_many([("3", b"", {"expires_at": None})])  # type: ignore[list-item] # which is refused


def passes_on(request: bytes, context: onceq.Context) -> bytes:
    context.scratch["path"].append("first")
    if request == b"fails" and context.attempt == 1:
        raise ValueError(request)
    assert context.reply_to is None
    context.enqueue(SECOND, request, message_id=f"after {context.message_id}", reply_to="answers")
    context.enqueue(ANSWERS, b"other pad", scratch={"own": True})
    return b"passed on"


def answers(request: bytes, context: onceq.Context) -> bytes:
    context.scratch["path"].append("second")
    assert context.type is ElementType.DATAGRAM
    assert context.reply_to is not None
    queue = onceq.Queue(context.reply_to, bytes, bytes)
    context.enqueue(queue, request, correlation_id=context.message_id)
    return b""


async def passes_on_async(request: bytes, context: onceq.AsyncContext) -> bytes:
    context.scratch["path"].append("first")
    if request == b"fails" and context.attempt == 1:
        raise ValueError(request)
    another = f"after {context.message_id}"
    await context.enqueue(SECOND, request, message_id=another, reply_to="answers")
    await context.enqueue(ANSWERS, b"other pad", scratch={"own": True})
    return b"passed on"


@pytest.mark.parametrize("first", [passes_on, passes_on_async])
@pytest.mark.parametrize("body", [b"well", b"fails"])
def test_the_scratch_pad_travels_through_a_chain_of_servers(
    qm: onceq.QueueManager, conninfo: str, repository: str, first: Any, body: bytes
) -> None:
    """What an attempt that failed wrote on it is gone, and what it enqueued is, too."""
    chain = (RAW.handled_by(first), SECOND.handled_by(answers))
    with serving(conninfo, repository, *chain), qm.clerk("till", RAW) as clerk:
        clerk.send("1", body, message_id="m", scratch={"path": ["client"]})
        assert clerk.receive(timeout_s=60).value == b"passed on"
        wait_until(lambda: qm.show("answers").depth == 2)
    elements = {one.body: one for one in qm.peek("answers", 9)}
    assert elements[b"other pad"].scratch == {"own": True}
    assert elements[body].scratch == {"path": ["client", "first", "second"]}
    assert elements[body].correlation_id == "after m"


def test_what_was_passed_on_is_gone_with_the_transaction(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    def fails(request: bytes, context: onceq.Context) -> bytes:
        context.enqueue(SECOND, request)
        raise onceq.Reject("no")

    with serving(conninfo, repository, RAW.handled_by(fails)), qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        with pytest.raises(onceq.RequestFailed):
            _ = clerk.receive(timeout_s=60).value
    assert qm.show("second").depth == 0
