"""Reports of what becomes of elements (spec Q10): asked for in each way, whatever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine.faultpoints import VARIABLE
from onceq.errors import ConnectionLost, IllegalState, InvalidName, InvalidValue, QueueNotFound
from onceq.model import ops
from tests.lives import living
from tests.parts import plain, serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RAW = onceq.Queue("raw", bytes, bytes)
ACKS = onceq.Queue("acks", onceq.Report, bytes)
ALL = onceq.Reports("acks", arrival=True, delivery=True, expiry=True, exception=True)
BOTH = ["arrival", "delivery"]


@pytest.fixture(autouse=True)
def declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    qm.declare(ACKS)


def reports(qm: onceq.QueueManager) -> list[onceq.Report]:
    return [ACKS.decode_request(one.body, one.content_type) for one in qm.peek("acks", 100)]


def events(qm: onceq.QueueManager) -> list[str]:
    return [one.event.value for one in reports(qm)]


def test_what_is_no_such_wish_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no report is asked for: say one or more of arrival"):
        onceq.Reports("acks")
    with pytest.raises(InvalidName, match="a client's own reply queue"):
        onceq.Reports("reply-7", arrival=True)
    with pytest.raises(InvalidValue, match="expiry is True or False"):
        onceq.Reports("acks", expiry=1)  # type: ignore[arg-type] # which is refused


@pytest.mark.parametrize("wish", ["acks", {"to": "acks"}])
def test_reports_are_asked_for_by_a_value(qm: onceq.QueueManager, wish: Any) -> None:
    with pytest.raises(InvalidValue, match=r"reports is onceq\.Reports"):
        qm.enqueue(RAW, b"", reports=wish)


def sent(clerk: onceq.Clerk[bytes, bytes]) -> None:
    clerk.send("1", b"x", reports=ALL)


def sent_one_way(clerk: onceq.Clerk[bytes, bytes]) -> None:
    clerk.send_one_way("1", b"x", reports=ALL)
    clerk.where("1")  # reads the answer


def sent_with_others(clerk: onceq.Clerk[bytes, bytes]) -> None:
    clerk.send_many([("1", b"x", {"reports": ALL})])


def sent_delayed(clerk: onceq.Clerk[bytes, bytes]) -> None:
    clerk.send("1", b"x", reports=ALL, priority=7)


@pytest.mark.parametrize("send", [sent, sent_one_way, sent_with_others, sent_delayed])
def test_each_way_to_send_asks_for_them(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    send: Callable[[onceq.Clerk[bytes, bytes]], None],
) -> None:
    """By a real server, whose finish is the plain one."""
    with (
        serving(conninfo, repository, RAW.handled_by(lambda request, _: request)),
        qm.clerk("till", RAW, window=2) as clerk,
    ):
        send(clerk)
        assert clerk.receive(timeout_s=60).value == b"x"
    assert events(qm) == BOTH
    assert [(one.client, one.rid) for one in reports(qm)] == [("till", "1")] * 2


def test_an_async_clerk_at_a_desk_asks_for_them_too(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    async def send() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as manager,
            manager.clerks(connections=1) as clerks,
            clerks.clerk("till", RAW) as clerk,
        ):
            await clerk.send("1", b"x", reports=ALL)

    asyncio.run(send())
    assert events(qm) == ["arrival"]


def test_a_batch_reports_each(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    for number in range(3):
        qm.enqueue(RAW, b"x", rid=str(number), reports=ALL)
    qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as life:
        batch = life.claim("raw", 4)
        life.begin(batch[0])
        life.finish_all(batch, [b""] * 4)
        assert events(qm) == ["arrival"] * 3
        life.commit()
    assert sorted(one.rid for one in reports(qm) if one.event == "delivery") == ["0", "1", "2"]


def test_a_report_joins_the_callers_transaction(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with plain(conninfo) as connection:
        for commits in (False, True):
            with contextlib.suppress(ZeroDivisionError), connection.transaction():
                onceq.enqueue(connection, RAW, b"x", repository=repository, reports=ALL)
                if not commits:
                    raise ZeroDivisionError
    assert events(qm) == ["arrival"]
    with plain(conninfo) as connection, connection.transaction():
        assert qm.dequeue("raw", connection=connection) is not None
        assert events(qm) == ["arrival"]
    assert events(qm) == BOTH


def test_a_refused_wish_sends_nothing(qm: onceq.QueueManager) -> None:
    with qm.clerk("till", RAW) as clerk:
        with pytest.raises(QueueNotFound, match='reports cannot go there: queue "no" does not'):
            clerk.send("1", b"x", reports=onceq.Reports("no", delivery=True))
        with pytest.raises(IllegalState, match="is an error queue"):
            qm.enqueue(RAW, b"x", reports=onceq.Reports("raw.error", expiry=True))
        with pytest.raises(InvalidValue, match='elements of queue "raw" cannot go into it'):
            clerk.send_many([("1", b"x", {"reports": onceq.Reports("raw", arrival=True)})])
        assert clerk.send("1", b"x").state == "new"


def test_volatile_queues_report_and_take_reports(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    cheap = onceq.Queue("cheap", bytes, bytes, durable=False)
    qm.declare(cheap)
    qm.enqueue(cheap, b"x", reports=ALL)
    qm.enqueue(RAW, b"x", reports=onceq.Reports("cheap", arrival=True))
    with living(conninfo, repository) as life:
        life.run(life.claim_one("cheap"))
    assert events(qm) == BOTH
    assert [one.type for one in qm.peek("cheap", 9)] == [onceq.ElementType.REPORT]


def test_a_waiting_dequeue_is_woken_by_a_report(qm: onceq.QueueManager) -> None:
    qm.enqueue(RAW, b"x", reports=ALL)
    report = qm.dequeue("acks", timeout_s=60)
    assert report is not None
    assert report.type is onceq.ElementType.REPORT


SERVE = """
import sys
import onceq
queue = onceq.Queue("raw", bytes, bytes)
server = onceq.Server([queue.handled_by(lambda request, context: request)])
with onceq.open(sys.argv[1], repository=sys.argv[2]) as qm:
    if sys.argv[3] == "send":
        reports = onceq.Reports("acks", arrival=True, delivery=True)
        with qm.clerk("till", queue, window=2) as clerk:
            clerk.send("1", b"x", reports=reports)
        sys.exit()
server.run(sys.argv[1], repository=sys.argv[2])
"""


def child(url: str, repository: str, does: str, point: str = "") -> subprocess.Popen[bytes]:
    own = {VARIABLE: point} if point else {}
    words = [sys.executable, "-c", SERVE, url, repository, does]
    return subprocess.Popen(words, env={**os.environ, **own}, stderr=subprocess.DEVNULL)


def killed(process: subprocess.Popen[bytes]) -> None:
    assert process.wait(60) == -signal.SIGKILL, "the fault was not made"


@pytest.mark.parametrize("point", ["Send.before", "Send.after"])
def test_a_client_that_is_killed_has_its_arrival_reported_once(
    qm: onceq.QueueManager, conninfo: str, repository: str, tmp_path: Path, point: str
) -> None:
    killed(child(conninfo, repository, "send", f"{point} 1 kill {tmp_path}"))
    assert events(qm) == ([] if point == "Send.before" else ["arrival"])
    assert child(conninfo, repository, "send").wait(60) == 0
    assert events(qm) == ["arrival"]


@pytest.mark.parametrize(
    "point", ["Claim.after", "Begin.after", "Call.after", "Finish.before", "Finish.after"]
)
def test_a_server_that_is_killed_has_each_delivery_reported_once(
    qm: onceq.QueueManager, conninfo: str, repository: str, tmp_path: Path, point: str
) -> None:
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x", reports=ALL)
        killed(child(conninfo, repository, "serve", f"{point} 1 kill {tmp_path}"))
        assert events(qm).count("delivery") == (point == "Finish.after")
        other = child(conninfo, repository, "serve")
        try:
            assert clerk.receive(timeout_s=60).value == b"x"
        finally:
            other.kill()
            other.wait(60)
    assert events(qm) == BOTH


def test_a_session_that_is_lost_before_its_commit_reports_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life:
        qm.enqueue(RAW, b"x", reports=ALL)
        element = life.claim_one("raw")
        life.begin(element)
        life.finish(element)
        with plain(conninfo) as other:
            other.execute(
                "select pg_terminate_backend(%s)", [life.driver.connection.info.backend_pid]
            )
        with pytest.raises(ConnectionLost):
            life.driver.perform(ops.ListQueues(queue="raw"))
    assert events(qm) == ["arrival"]
