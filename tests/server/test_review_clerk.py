"""What a clerk shows after calls in an unusual order (G6, C6, C17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.errors import IllegalState
from onceq.model.client_state import ClientState, Done
from tests.parts import LIMIT_S, rows, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

RAW = onceq.Queue("raw", bytes, bytes)


def same(request: bytes, _context: onceq.Context) -> bytes:
    return request


@pytest.fixture
def served(qm: onceq.QueueManager, conninfo: str, repository: str) -> Iterator[onceq.QueueManager]:
    """A queue manager whose queue is served."""
    qm.declare(RAW)
    with serving(conninfo, repository, RAW.handled_by(same)):
        yield qm


def test_acknowledged_in_another_order_nothing_is_left_to_wait_for(
    served: onceq.QueueManager,
) -> None:
    with served.clerk("c", RAW, window=2) as clerk:
        clerk.send_many([("1", b"1"), ("2", b"2")])
        for rid in ("2", "1"):
            clerk.receive(timeout_s=LIMIT_S, rid=rid)
            clerk.acknowledge([rid])
    with served.clerk("c", RAW) as clerk:
        assert (clerk.last_sent, clerk.last_received) == ("2", "1")
        assert clerk.state is ClientState.CONNECTED
        assert isinstance(clerk.recover(), Done)
        assert clerk.transceive("3", b"3", timeout_s=LIMIT_S).value == b"3"
        clerk.disconnect()


def test_an_acknowledgement_keeps_the_checkpoint_of_a_receive(served: onceq.QueueManager) -> None:
    with served.clerk("c", RAW, window=3) as clerk:
        clerk.send_many([("1", b"1"), ("2", b"2"), ("3", b"3")])
        clerk.receive(timeout_s=LIMIT_S, rid="1")
        clerk.receive(b"two", timeout_s=LIMIT_S, rid="2")
        for freed, shown in ((["1"], ("2", b"two")), (["2"], ("2", b"two"))):
            clerk.acknowledge(freed)
            assert (clerk.last_received, clerk.checkpoint) == shown
            with served.clerk("c", RAW, window=3) as later:
                assert (later.last_received, later.checkpoint) == shown
            clerk.connect()
            while clerk.outstanding:
                clerk.receive(timeout_s=LIMIT_S)
        clerk.acknowledge(["3"])
        assert (clerk.last_received, clerk.checkpoint) == ("3", None)


def test_a_checkpoint_is_never_shown_with_another_reply(served: onceq.QueueManager) -> None:
    with served.clerk("c", RAW) as clerk:
        clerk.send("1", b"1")
        clerk.receive(b"one", timeout_s=LIMIT_S)
        clerk.transceive("2", b"2", timeout_s=LIMIT_S)
        clerk.disconnect()
        clerk.connect()
        assert (clerk.last_received, clerk.checkpoint) == ("2", None)


def test_sent_again_after_its_reply_was_received_it_is_received_again(
    served: onceq.QueueManager,
) -> None:
    with served.clerk("c", RAW) as clerk:
        first = clerk.transceive("1", b"1", timeout_s=LIMIT_S)
        assert clerk.send("1", b"1").state == "replied"
        assert clerk.receive(timeout_s=LIMIT_S) == first


def test_a_reply_that_cannot_come_is_not_waited_for(served: onceq.QueueManager) -> None:
    with served.clerk("c", RAW, window=2) as clerk:
        clerk.send("1", b"1")
        with pytest.raises(IllegalState, match="not outstanding"):
            clerk.receive(rid="2")
        assert clerk.receive(timeout_s=LIMIT_S).rid == "1"


def test_connecting_again_uses_up_no_id(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    for _ in range(3):
        with qm.clerk("a", RAW):
            pass
        qm.register("raw", "b")
    found = rows(conninfo, f"select registrant_id, name from {repository}.registrant order by 1")
    assert found == [(1, "a"), (2, "b")]
