"""The spans of a request, from its send to its reply: by clerks and servers of every kind (Q14)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from psycopg.conninfo import conninfo_to_dict

import onceq
from onceq.errors import QueueNotFound, ReceiveTimeout
from onceq.model.trace import KEY
from tests.otel.parts import (
    ATTEMPT,
    NAME,
    TYPE,
    Exported,
    attributes,
    linked,
    parent,
    span_id,
    trace_id,
)
from tests.parts import LIMIT_S, plain, serving, wait_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

ORDERS = onceq.Queue("orders", str, str, backoff_ms=0, abort_limit=3)


def echo(request: str, context: onceq.Context) -> str:
    assert KEY not in (context.properties or {})
    return request


async def echo_async(request: str, context: onceq.AsyncContext) -> str:
    assert KEY not in (context.properties or {})
    return request


def by_clerk(url: str, repository: str) -> None:
    with onceq.open(url, repository=repository) as qm, qm.clerk("till", ORDERS) as clerk:
        assert clerk.transceive("1", "secret body", timeout_s=LIMIT_S).value == "secret body"
        clerk.acknowledge(["1"])


def at_desk(url: str, repository: str) -> None:
    with (
        onceq.open(url, repository=repository) as qm,
        qm.clerks() as clerks,
        clerks.clerk("till", ORDERS) as clerk,
    ):
        assert clerk.transceive("1", "secret body", timeout_s=LIMIT_S).value == "secret body"
        clerk.acknowledge(["1"])


def by_async_clerk(url: str, repository: str) -> None:
    async def main() -> None:
        async with (
            onceq.open_async(url, repository=repository) as qm,
            qm.clerk("till", ORDERS) as clerk,
        ):
            reply = await clerk.transceive("1", "secret body", timeout_s=LIMIT_S)
            assert reply.value == "secret body"
            await clerk.acknowledge(["1"])

    asyncio.run(main())


def at_async_desk(url: str, repository: str) -> None:
    async def main() -> None:
        async with (
            onceq.open_async(url, repository=repository) as qm,
            qm.clerks() as clerks,
            clerks.clerk("till", ORDERS) as clerk,
        ):
            reply = await clerk.transceive("1", "secret body", timeout_s=LIMIT_S)
            assert reply.value == "secret body"
            await clerk.acknowledge(["1"])

    asyncio.run(main())


@pytest.mark.parametrize("handler", [echo, echo_async])
@pytest.mark.parametrize("client", [by_clerk, at_desk, by_async_clerk, at_async_desk])
def test_a_request_from_its_send_to_its_reply(
    exported: Exported,
    conninfo: str,
    repository: str,
    client: Callable[[str, str], None],
    handler: Any,
) -> None:
    with serving(conninfo, repository, ORDERS.handled_by(handler)):
        client(conninfo, repository)
        exported.wait_for("finish")
    sent, claimed, processed, finished = (
        exported.one(name) for name in ("send", "claim", "process", "finish")
    )
    received, acknowledged = exported.one("receive"), exported.one("acknowledge")
    assert [one.name for one in (sent, claimed, processed, finished)] == [
        "send orders",
        "claim orders",
        "process orders",
        "finish orders",
    ]
    assert (received.name, acknowledged.name) == (
        "receive reply-{client}",
        "acknowledge reply-{client}",
    )
    kinds = {attributes(one)[TYPE]: one.kind for one in exported.spans}
    assert kinds == {
        "send": SpanKind.PRODUCER,
        "receive": SpanKind.CLIENT,
        "process": SpanKind.CONSUMER,
        "settle": SpanKind.CLIENT,
    }
    for one in (claimed, processed, finished):
        assert linked(one) == [span_id(sent)]
        assert trace_id(one) != trace_id(sent), "links, and never a parent, lead across a queue"
        assert attributes(one)["messaging.destination.name"] == "orders"
        assert attributes(one)[ATTEMPT] == 1
    assert (parent(sent), parent(claimed), parent(processed)) == (None, None, None)
    assert parent(finished) == span_id(processed)
    for one in exported.spans:
        assert attributes(one)["messaging.system"] == "onceq"
        assert attributes(one)["messaging.message.id"] == "1"
        assert one.status.status_code is StatusCode.UNSET
        assert "error.type" not in attributes(one)
    assert (sent.start_time or 0) <= (claimed.start_time or 0) <= (claimed.end_time or 0)


def test_nothing_of_a_body_or_of_a_database_is_in_a_span(
    exported: Exported, conninfo: str, repository: str
) -> None:
    def fail(request: str, _: onceq.Context) -> str:
        raise ValueError(f"{request}, {conninfo}")

    with (
        serving(conninfo, repository, ORDERS.handled_by(fail)),
        onceq.open(conninfo, repository=repository) as qm,
        qm.clerk("till", ORDERS) as clerk,
    ):
        clerk.send("1", "secret body", properties={"colour": "secret red"})
        assert clerk.receive(timeout_s=LIMIT_S).code == "ValueError"
        exported.wait_for("abort", 3)
    said = "".join(one.to_json() for one in exported.spans)
    assert "secret" not in said
    assert repository not in said
    assert str(conninfo_to_dict(conninfo)["host"]) not in said


@pytest.fixture
def served(exported: Exported, conninfo: str, repository: str) -> Generator[None]:
    with serving(conninfo, repository, ORDERS.handled_by(echo)):
        yield
        exported.wait_for("finish")


@pytest.mark.usefixtures("served")
def test_whatever_sends_is_linked_to(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    def processed(rid: str) -> int:
        (one,) = exported.wait_for("process", rid=rid)
        (found,) = linked(one)
        return found

    with qm.clerk("till", ORDERS) as clerk:
        clerk.send_one_way("one way", "x")
        clerk.receive(timeout_s=LIMIT_S)
    assert processed("one way") == span_id(exported.one("send_one_way", rid="one way"))
    with qm.clerk("many", ORDERS, window=3) as clerk:
        clerk.send_many([("a", "x"), ("b", "x", onceq.EndUser("ann"))])
        assert clerk.receive(rid="b", timeout_s=LIMIT_S).end_user == onceq.EndUser("ann")
    many = exported.one("send", **{"messaging.batch.message_count": 2})
    assert {processed("a"), processed("b")} == {span_id(many)}
    eid = str(qm.enqueue(ORDERS, "x"))
    assert processed(eid) == span_id(exported.one("enqueue", rid=eid))
    qm.enqueue(ORDERS, "x", rid="named")
    assert processed("named") == span_id(exported.one("enqueue", rid="named"))
    eids = [str(one) for one in qm.enqueue_many(ORDERS, ["x", "y"])]
    both = exported.one("enqueue", **{"messaging.batch.message_count": 2})
    assert {processed(one) for one in eids} == {span_id(both)}
    with plain(conninfo) as connection, connection.transaction():
        qm.enqueue(ORDERS, "x", rid="in ours", connection=connection)
        onceq.enqueue(connection, ORDERS, "x", rid="ours", repository=qm.repository)
    for rid in ("in ours", "ours"):
        assert processed(rid) == span_id(exported.one("enqueue", rid=rid))


@pytest.mark.usefixtures("served")
def test_a_ledger_sees_nothing_of_it(
    exported: Exported, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    ledger = onceq.SqliteLedger(tmp_path / "till.ledger")
    with qm.clerk("till", ORDERS, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", "x")
        clerk.receive(timeout_s=LIMIT_S)
    (processed,) = exported.wait_for("process", rid="1")
    assert linked(processed) == [span_id(exported.one("send"))]
    assert KEY.encode() not in (tmp_path / "till.ledger").read_bytes()


def test_a_handler_runs_in_its_span(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    """What it sends, and what else it has spans for, belong to it."""
    done = onceq.Queue("done", str, str)
    qm.declare(done)
    seen: list[int] = []

    def pass_on(request: str, context: onceq.Context) -> str:
        seen.append(trace.get_current_span().get_span_context().span_id)
        properties = context.properties
        qm.enqueue(done, request, properties=properties, connection=context.connection)
        return request

    with (
        serving(conninfo, qm.repository, ORDERS.handled_by(pass_on)),
        qm.clerk("till", ORDERS) as clerk,
    ):
        clerk.send("1", "x", properties={"colour": "red"})
        clerk.receive(timeout_s=LIMIT_S)
        exported.wait_for("finish")
    processed, passed = exported.one("process"), exported.one("enqueue")
    assert seen == [span_id(processed)]
    assert parent(passed) == span_id(processed)
    (element,) = qm.peek("done")
    assert element.properties == {"colour": "red"}
    assert element.trace is not None
    assert f"{trace_id(passed):032x}-{span_id(passed):016x}" in element.trace
    assert qm.dequeue("done", timeout_s=LIMIT_S) == element
    assert linked(exported.one("dequeue")) == [span_id(passed)]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_dequeue_is_one_span_whatever_it_consists_of(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    qm.declare(ORDERS)
    assert qm.dequeue("orders") is None
    qm.enqueue(ORDERS, "x", rid="1")
    with psycopg.connect(conninfo) as connection:
        assert qm.dequeue("orders", connection=connection) is not None
    assert [attributes(one)[NAME] for one in exported.spans] == ["enqueue", "dequeue"]
    assert linked(exported.one("dequeue", rid="1")) == [span_id(exported.one("enqueue"))]


def test_what_fails_says_by_what(exported: Exported, qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)
    with pytest.raises(QueueNotFound):
        qm.enqueue(onceq.Queue("none", str, str), "x")
    failed = exported.one("enqueue")
    assert attributes(failed)["error.type"] == "QueueNotFound"
    assert failed.status.status_code is StatusCode.ERROR
    with qm.clerk("till", ORDERS) as clerk:
        clerk.send("1", "x")
        with pytest.raises(ReceiveTimeout):
            clerk.receive(timeout_s=0)
    assert exported.of("receive") == [], "a look that finds nothing has no span"


def test_what_is_durations_are_measured(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    def fail_once(request: str, context: onceq.Context) -> str:
        if context.attempt == 1:
            raise ValueError(request)
        return request

    with (
        serving(conninfo, qm.repository, ORDERS.handled_by(fail_once)),
        qm.clerk("till", ORDERS) as clerk,
    ):
        clerk.transceive("1", "x", timeout_s=LIMIT_S)
        exported.wait_for("finish")
    assert exported.durations() == {
        "messaging.client.operation.duration": {
            ("send", None): 1,
            ("claim", None): 2,
            ("abort", None): 1,
            ("finish", None): 1,
            ("receive", None): 1,
        },
        "messaging.process.duration": {("process", "ValueError"): 1, ("process", None): 1},
    }


def test_a_task_that_is_cancelled_leaves_no_span_open(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    """It waits for a lock, in the middle of its enqueue."""
    qm.declare(ORDERS)
    table = f"{qm.repository}.element"

    async def main() -> None:
        async with onceq.open_async(conninfo, repository=qm.repository) as other:
            sending = asyncio.create_task(other.enqueue(ORDERS, "x"))
            await asyncio.to_thread(wait_blocked, conninfo, "enqueue")
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    with psycopg.connect(conninfo) as connection:
        connection.execute(f"lock table {table} in access exclusive mode".encode())
        asyncio.run(main())
    assert attributes(exported.one("enqueue"))["error.type"] == "_OTHER"
