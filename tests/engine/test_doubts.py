"""The connection is cut at a commit, on either side of it: the client sees the same, and learns
the truth by the means of architecture 3: the clerk by connect, the server by its next life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.errors import ConnectionLost, IllegalState, InDoubt, OperatingError, Outcome
from onceq.model.client_state import ClientState
from tests.engine.pooler import Pooler, pooling
from tests.lives import living
from tests.parts import plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)
WAIT_S = 60

sides = pytest.mark.parametrize("side", ["before", "after"])


@pytest.fixture
def pooler(conninfo: str) -> Generator[Pooler]:
    """What stands between, and cuts."""
    with pooling(conninfo, "session") as one:
        yield one


@pytest.fixture
def cut_qm(pooler: Pooler, repository: str) -> Generator[onceq.QueueManager]:
    """A queue manager that may be cut off."""
    with onceq.open(pooler.url, repository=repository) as qm:
        qm.declare(RAW)
        yield qm


def reconnect(clerk: onceq.Clerk[bytes, bytes]) -> None:
    def connected() -> bool:
        try:
            clerk.connect()
        except OperatingError:
            return False
        return True

    wait_until(connected)


@sides
def test_a_send_in_doubt(pooler: Pooler, cut_qm: onceq.QueueManager, side: str) -> None:
    with cut_qm.clerk("till", RAW) as clerk:
        pooler.cut = (rb"\.send_one\(", side)
        with pytest.raises(InDoubt) as doubt:
            clerk.send("1", b"x")
        assert doubt.value.outcome is Outcome.UNKNOWN
        with pytest.raises(IllegalState, match="connect"):
            clerk.send("2", b"y")
        reconnect(clerk)
        assert clerk.last_sent == (None if side == "before" else "1")
        assert len(cut_qm.resolve("1")) == (side == "after")
        if side == "after":
            assert clerk.state is ClientState.REQ_SENT
        else:
            assert clerk.send("1", b"x").state == "new"  # and it runs once, either way
        assert cut_qm.show("raw").depth == 1


@sides
def test_a_receive_in_doubt(
    pooler: Pooler, cut_qm: onceq.QueueManager, conninfo: str, repository: str, side: str
) -> None:
    with living(conninfo, repository) as life, cut_qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        life.run(life.claim_one("raw"), b"reply")
        pooler.cut = (rb"\.receive\(", side)
        with pytest.raises(InDoubt):
            clerk.receive(b"ckpt", timeout_s=WAIT_S)
        reconnect(clerk)
        if side == "before":
            assert (clerk.state, clerk.checkpoint) == (ClientState.REQ_SENT, None)
            reply = clerk.receive(b"ckpt", timeout_s=WAIT_S)
        else:
            assert (clerk.state, clerk.checkpoint) == (ClientState.REPLY_RECVD, b"ckpt")
            reply = clerk.rereceive()
        assert reply.value == b"reply"


@sides
def test_a_disconnect_in_doubt(
    pooler: Pooler, cut_qm: onceq.QueueManager, conninfo: str, repository: str, side: str
) -> None:
    with living(conninfo, repository) as life, cut_qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        life.run(life.claim_one("raw"), b"reply")
        clerk.receive(b"ckpt", timeout_s=WAIT_S)
        pooler.cut = (rb"\.disconnect\(", side)
        with pytest.raises(InDoubt):
            clerk.disconnect()
        reconnect(clerk)
        assert clerk.was_disconnected is (side == "after")
        assert (clerk.last_sent, clerk.last_received) == ("1", "1")


@sides
def test_an_enqueue_in_doubt_is_resolved_by_a_question(
    pooler: Pooler, cut_qm: onceq.QueueManager, side: str
) -> None:
    pooler.cut = (rb"\.enqueue\(", side)
    with pytest.raises(InDoubt):
        cut_qm.enqueue(RAW, b"x", rid="mine")
    cut_qm.connect()
    assert len(cut_qm.resolve("mine")) == (side == "after")


@sides
def test_a_read_is_never_in_doubt(pooler: Pooler, cut_qm: onceq.QueueManager, side: str) -> None:
    pooler.cut = (rb"\.queues ", side)
    with pytest.raises(ConnectionLost) as lost:
        cut_qm.queues()
    assert lost.value.outcome is Outcome.NOTHING_HAPPENED
    cut_qm.connect()
    assert cut_qm.queues()


CUTS = {
    "commit": rb"^commit",
    "finish": rb"\.claim_one\(",
    "begin": rb"^begin isolation",
    "claim": rb"\.claim_one\(",
    "abort": rb"\.abort\(",
}


@sides
@pytest.mark.parametrize("at", CUTS)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_server_cut_off_executes_once(
    pooler: Pooler,
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    at: str,
    side: str,
    *,
    asynchronous: bool,
) -> None:
    qm.declare(RAW)
    insert = f"insert into {repository}.effects values (%s)".encode()
    with plain(conninfo) as setup:
        setup.execute(f"create table {repository}.effects (rid text)".encode())
    failed: list[str] = []

    def fails_once(rid: str) -> None:
        if rid in failed:
            return
        failed.append(rid)
        if at == "finish" and rid == "1":  # the claim before it was the same function
            pooler.cut = (CUTS[at], side)
        elif at == "abort":
            raise ValueError("once")

    def handle(request: bytes, context: onceq.Context) -> bytes:
        context.connection.execute(insert, (context.rid,))
        fails_once(context.rid)
        return request

    async def handle_async(request: bytes, context: onceq.AsyncContext) -> bytes:
        await context.connection.execute(insert, (context.rid,))
        fails_once(context.rid)
        return request

    handled = RAW.handled_by(handle_async if asynchronous else handle)
    pooler.cut = None if at == "finish" else (CUTS[at], side)
    with (
        serving(pooler.url, repository, handled) as server,
        qm.clerk("till", RAW) as clerk,
    ):
        for rid in ("1", "2"):
            assert clerk.transceive(rid, b"x", timeout_s=WAIT_S).value == b"x"
        assert server.statistics().lives == 2
    effects = rows(
        conninfo, f"select rid, count(*) from {repository}.effects group by 1 order by 1"
    )
    assert effects == [("1", 1), ("2", 1)]
    charged = scalar(conninfo, f"select max(aborts) from {repository}.history")
    assert charged <= (at == "abort")
