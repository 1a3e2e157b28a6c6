"""Where the last request stands: states A to E (spec C3; BN09 4.3), and what that rests on."""

from __future__ import annotations

import pytest

import onceq
from onceq.errors import InvalidValue
from onceq.model.client_state import Done, NotSubmitted, ReplyWaiting, Submitted, WentBack
from tests.lives import living

RAW = onceq.Queue("raw", bytes, bytes)


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


def test_the_states_of_a_request_one_after_the_other(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Each by a client that comes back with nothing but its name."""
    with living(conninfo, repository) as life:
        with qm.clerk("till", RAW) as clerk:
            found = clerk.recover()
            assert isinstance(found, NotSubmitted)
            assert (found.rid, found.ckpt) == (None, None)
            assert "no send" in found.rests_on
            clerk.send("1", b"x")
        with qm.clerk("till", RAW) as clerk:
            found = clerk.recover()
            assert isinstance(found, Submitted)
            assert found.rid == "1"
        life.run(life.claim_one("raw"), b"reply")
        with qm.clerk("till", RAW) as clerk:
            assert isinstance(clerk.recover(), ReplyWaiting)
            clerk.receive(b"ckpt", timeout_s=60)
        with qm.clerk("till", RAW) as clerk:
            found = clerk.recover()
            assert isinstance(found, Done)
            assert (found.rid, found.ckpt) == ("1", b"ckpt")
            assert "rereceive" in found.next_step
            clerk.disconnect()
        with qm.clerk("till", RAW) as clerk:
            found = clerk.recover()
            assert isinstance(found, Done)
            assert "ended" in found.rests_on


def test_a_client_that_knows_its_rid_is_told_about_that_one(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=9) as clerk:
        clerk.send_many([("1", b"x"), ("2", b"y")])
        assert isinstance(clerk.recover("1"), Submitted)
        life.run(life.claim_one("raw"))
        assert isinstance(clerk.recover("1"), ReplyWaiting)
        clerk.receive(timeout_s=60)
        clerk.acknowledge(["1"])
        assert isinstance(clerk.recover("1"), Done)
        assert isinstance(clerk.recover("2"), Submitted)
        assert isinstance(clerk.recover("3"), NotSubmitted)


def test_a_repository_that_went_back_is_never_state_a(qm: onceq.QueueManager) -> None:
    """Finding 10: the client knows that its send had returned, and nothing of it is there."""
    with qm.clerk("till", RAW) as clerk:
        found = clerk.recover("7", acknowledged=True)
        assert isinstance(found, WentBack)
        assert "ask a person" in found.next_step


def test_another_client_with_the_same_rid_is_not_taken_for_this_one(
    qm: onceq.QueueManager,
) -> None:
    with (
        qm.clerk("till", RAW, thread="a") as one,
        qm.clerk("till", RAW, thread="b") as two,
        qm.clerk("other", RAW) as three,
    ):
        one.send("1", b"x")
        assert isinstance(one.recover("1"), Submitted)
        assert isinstance(two.recover("1"), NotSubmitted)
        assert isinstance(three.recover("1"), NotSubmitted)


def test_a_killed_and_an_expired_request_wait_as_replies(qm: onceq.QueueManager) -> None:
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        clerk.cancel_last_request()
        assert isinstance(clerk.recover(), ReplyWaiting)


def test_the_reply_queue_alone_cannot_tell_a_b_and_d_apart(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        assert isinstance(clerk.recover(by="reply queue"), onceq.CannotTell)
        assert isinstance(clerk.recover("1", by="history"), NotSubmitted)
        clerk.send("1", b"x")
        assert isinstance(clerk.recover(by="reply queue"), onceq.CannotTell)
        assert isinstance(clerk.recover("1", by="history"), Submitted)
        life.run(life.claim_one("raw"), b"reply")
        found = clerk.recover(by="reply queue")
        assert isinstance(found, ReplyWaiting)
        assert found.rid == "1"
        assert isinstance(clerk.recover("1", by="history"), ReplyWaiting)
        clerk.receive(timeout_s=60)
        clerk.acknowledge(["1"])
        found = clerk.recover(by="reply queue")
        assert isinstance(found, onceq.CannotTell)
        assert "A, B and D look the same" in found.rests_on
        assert isinstance(clerk.recover("1", by="history"), Done)
        with pytest.raises(InvalidValue, match="rid"):
            clerk.recover(by="history")
        with pytest.raises(InvalidValue, match="one of"):
            clerk.recover(by="hope")  # type: ignore[arg-type] # a mistake
