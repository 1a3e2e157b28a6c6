"""The clerk's calls, states and windows: spec C1, C6, C17, C18, G5, G6, finding 3."""

from __future__ import annotations

import datetime as dt

import pytest

import onceq
from onceq.errors import (
    Cancelled,
    Fenced,
    IllegalState,
    InvalidName,
    QueueNotFound,
    QueueStopped,
    ReceiveTimeout,
    ReplyGone,
    RequestFailed,
    RidReused,
    TooLarge,
)
from onceq.model.client_state import ClientState
from onceq.model.element import KillAnswer
from tests.lives import Life, living
from tests.parts import scalar

RAW = onceq.Queue("raw", bytes, bytes)
WAIT_S = 60


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


def answer(life: Life, reply: bytes = b"reply") -> None:
    """Executes the next request."""
    life.run(life.claim_one("raw"), reply)


def answer_all(life: Life) -> None:
    """Executes what waits; each reply is its request."""
    for _ in range(1000):
        claimed = life.claim("raw")
        if not claimed:
            return
        life.run(claimed[0], claimed[0].body)


def test_a_session_from_connect_to_disconnect(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        assert (clerk.state, clerk.last_sent, clerk.last_received, clerk.checkpoint) == (
            ClientState.CONNECTED,
            None,
            None,
            None,
        )
        sent = clerk.send("1", b"request")
        assert sent.state == "new"
        assert (clerk.state, clerk.outstanding) == (ClientState.REQ_SENT, ["1"])
        answer(life)
        reply = clerk.receive(b"ckpt", timeout_s=WAIT_S)
        assert (reply.rid, reply.value, reply.attempts) == ("1", b"reply", 1)
        assert (clerk.state, clerk.last_received) == (ClientState.REPLY_RECVD, "1")
        assert clerk.checkpoint == b"ckpt"
        clerk.disconnect()
        assert clerk.state is ClientState.DISCONNECTED
    with qm.clerk("till", RAW) as clerk:
        assert clerk.was_disconnected
        assert (clerk.last_sent, clerk.last_received, clerk.checkpoint) == ("1", "1", b"ckpt")
        assert clerk.state is ClientState.CONNECTED
        assert clerk.send("2", b"on").state == "new"
    assert scalar(conninfo, f"select count(*) from {repository}.element") == 1


def test_a_send_is_stable_when_it_returns(qm: onceq.QueueManager) -> None:
    for number in range(1, 4):
        with qm.clerk(f"till-{number}", RAW) as clerk:
            for rid in range(1, number + 1):
                clerk.connect()
                if clerk.state is ClientState.REQ_SENT:
                    assert clerk.cancel_last_request() is KillAnswer.KILLED
                    with pytest.raises(Cancelled):
                        _ = clerk.receive(timeout_s=WAIT_S).value
                clerk.send(str(rid), b"x")
        with qm.clerk(f"till-{number}", RAW) as clerk:
            assert clerk.last_sent == str(number)


def test_rereceive_is_identical_across_lives_until_the_next_send(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life:
        with qm.clerk("till", RAW) as clerk:
            clerk.send("1", b"x")
            answer(life)
            reply = clerk.receive(b"one", timeout_s=WAIT_S)
            assert [clerk.rereceive() for _ in range(3)] == [reply] * 3
        for _ in range(2):
            with qm.clerk("till", RAW) as clerk:
                assert clerk.state is ClientState.REPLY_RECVD
                assert clerk.rereceive() == reply
        with qm.clerk("till", RAW) as clerk:
            clerk.send("2", b"y")
            with pytest.raises(IllegalState, match="'2' is outstanding: call recover"):
                clerk.rereceive()
            answer(life, b"two")
            assert clerk.receive(timeout_s=WAIT_S).value == b"two"


def test_the_next_send_frees_the_reply_before_it(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """C17: the rid and checkpoint stay until the next receive."""
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        answer(life)
        clerk.receive(b"one", timeout_s=WAIT_S)
        assert len(qm.lookup("1")) == 2
        clerk.send("2", b"y")
        assert [one.state for one in qm.lookup("1")] == ["finished"]
        clerk.connect()
        assert (clerk.last_received, clerk.checkpoint) == ("1", b"one")
        assert clerk.outstanding == ["2"]


def test_a_receive_without_a_checkpoint_may_come_again(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        answer(life)
        reply = clerk.receive(timeout_s=WAIT_S)
        clerk.connect()
        assert clerk.state is ClientState.REQ_SENT
        assert clerk.receive(timeout_s=WAIT_S) == reply
        clerk.send("2", b"y")  # now the receive of "1" is stable
        clerk.connect()
        assert (clerk.last_received, clerk.last_sent) == ("1", "2")


def test_receive_waits_up_to_its_deadline_and_loses_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        with pytest.raises(ReceiveTimeout) as late:
            clerk.receive(timeout_s=0.05)
        assert late.value.outcome is onceq.Outcome.NOTHING_HAPPENED
        answer(life)
        assert clerk.receive(timeout_s=WAIT_S).value == b"reply"


ILLEGAL = {
    "receive": lambda clerk: clerk.receive(timeout_s=0),
    "rereceive": lambda clerk: clerk.rereceive(),
    "cancel": lambda clerk: clerk.cancel_last_request(),
    "send": lambda clerk: clerk.send("9", b""),
    "disconnect": lambda clerk: clerk.disconnect(),
}


@pytest.mark.parametrize(
    ("state", "call"),
    [
        (ClientState.CONNECTED, "receive"),
        (ClientState.CONNECTED, "rereceive"),
        (ClientState.CONNECTED, "cancel"),
        (ClientState.REQ_SENT, "send"),
        (ClientState.REQ_SENT, "rereceive"),
        (ClientState.REQ_SENT, "disconnect"),
        (ClientState.REPLY_RECVD, "receive"),
        (ClientState.DISCONNECTED, "send"),
        (ClientState.DISCONNECTED, "receive"),
        (ClientState.DISCONNECTED, "rereceive"),
        (ClientState.DISCONNECTED, "cancel"),
        (ClientState.DISCONNECTED, "disconnect"),
    ],
    ids=lambda one: getattr(one, "value", one),
)
def test_a_call_illegal_in_its_state_is_an_error_without_effect(
    qm: onceq.QueueManager, conninfo: str, repository: str, state: ClientState, call: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        if state in {ClientState.REQ_SENT, ClientState.REPLY_RECVD}:
            clerk.send("1", b"x")
        if state is ClientState.REPLY_RECVD:
            answer(life)
            clerk.receive(timeout_s=WAIT_S)
        if state is ClientState.DISCONNECTED:
            clerk.disconnect()
        assert clerk.state is state
        before = qm.lookup()
        with pytest.raises(IllegalState, match="not legal in state"):
            ILLEGAL[call](clerk)
        assert clerk.state is state
        assert qm.lookup() == before


def test_an_older_life_is_fenced(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as old:
        old.send("1", b"x")
        answer(life)
        with qm.clerk("till", RAW) as new:
            for call in (
                lambda: old.receive(timeout_s=0),
                lambda: old.receive(b"ckpt", timeout_s=0),
                old.cancel_last_request,
                old.recover,
            ):
                with pytest.raises(Fenced):
                    call()
            assert new.receive(timeout_s=WAIT_S).value == b"reply"
            with pytest.raises(Fenced):
                old.receive(timeout_s=0)
        old.connect()  # a life of its own again
        assert old.receive(timeout_s=WAIT_S).value == b"reply"


def test_an_older_life_frees_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=2) as old:
        old.send("1", b"x")
        answer(life)
        reply = old.receive(timeout_s=WAIT_S)
        with qm.clerk("till", RAW, window=2) as new:
            with pytest.raises(Fenced):
                old.acknowledge(["1"])
            assert new.receive(timeout_s=WAIT_S) == reply


def test_threads_of_a_client_have_lives_of_their_own(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with (
        living(conninfo, repository) as life,
        qm.clerk("till", RAW, thread="a") as one,
        qm.clerk("till", RAW, thread="b") as two,
    ):
        one.send("1", b"of a")
        two.send("1", b"of b")
        answer_all(life)
        assert one.receive(timeout_s=WAIT_S).value == b"of a"
        assert two.receive(timeout_s=WAIT_S).value == b"of b"


def test_the_same_rid_gets_the_same_answer(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=5) as clerk:
        first = clerk.send("1", b"x")
        again = clerk.send("1", b"x")
        assert (again.state, again.eid) == ("queued", first.eid)
        with pytest.raises(RidReused):
            clerk.send("1", b"other")
        answer_all(life)
        assert clerk.send("1", b"x").state == "replied"
        with pytest.raises(RidReused):
            clerk.send("1", b"other")
        assert clerk.receive(timeout_s=WAIT_S).value == b"x"
        clerk.acknowledge(["1"])
        assert clerk.send("1", b"x").state == "done"
        with pytest.raises(RidReused):
            clerk.send("1", b"other")
        with pytest.raises(ReplyGone) as gone:
            clerk.receive(timeout_s=WAIT_S)
        assert gone.value.rid == "1"
        assert not life.claim("raw")


def test_a_failed_request_says_how(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        element = life.claim_one("raw")
        for _ in range(5):
            life.driver.connection.execute(
                f"update {repository}.element set claimed_by = %s where seq = %s".encode(),
                (life.incarnation, element.seq),
            )
            life.abort(element)
        reply = clerk.receive(timeout_s=WAIT_S)
        assert reply.outcome is onceq.RequestOutcome.FAILED
        with pytest.raises(RequestFailed) as failed:
            _ = reply.value
        found = (failed.value.rid, failed.value.code, failed.value.text, failed.value.attempts)
        assert found == ("1", "test", "as the test says", 5)
        assert clerk.rereceive() == reply


# --- C6: a window -------------------------------------------------------------------------------


def test_a_window_of_requests_is_streamed_acknowledged_and_resumed(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    rids = [str(n) for n in range(6)]
    with living(conninfo, repository) as life:
        with qm.clerk("till", RAW, window=6) as clerk:
            sent = clerk.send_many([(rid, rid.encode()) for rid in rids[:4]])
            assert [one.state for one in sent] == ["new"] * 4
            clerk.send("4", b"4")
            clerk.send("5", b"5", priority=9)
            with pytest.raises(IllegalState, match="window is 6"):
                clerk.send("6", b"6")
            answer_all(life)
            assert clerk.receive(rid="3", timeout_s=WAIT_S).value == b"3"
            some = clerk.receive_many(2, timeout_s=WAIT_S)
            assert [one.rid for one in some] == ["5", "0"]  # as they were executed
            assert clerk.acknowledge(["3", "5"], checkpoint=b"recorded") == 2
            assert clerk.unacknowledged == ["0"]
            with pytest.raises(IllegalState, match="not received"):
                clerk.acknowledge(["1"])
        with qm.clerk("till", RAW, window=6) as clerk:  # with nothing but its name
            assert clerk.checkpoint == b"recorded"
            assert clerk.last_received == "5"
            assert clerk.outstanding == ["0", "1", "2", "4"]
            rest = clerk.receive_many(10, timeout_s=WAIT_S)
            assert [one.rid for one in rest] == ["0", "1", "2", "4"]
            with pytest.raises(IllegalState):
                clerk.receive(timeout_s=0)
            assert clerk.acknowledge([one.rid for one in rest]) == 4
            assert clerk.acknowledge([]) == 0
            clerk.disconnect()
    assert scalar(conninfo, f"select count(*) from {repository}.element") == 0


def test_rereceive_is_of_the_last_of_a_window(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """And a send of a window acknowledges nothing."""
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=3) as clerk:
        clerk.send_many([("1", b"x"), ("2", b"y")])
        answer_all(life)
        clerk.receive(timeout_s=WAIT_S)
        last = clerk.receive(timeout_s=WAIT_S)
        assert clerk.rereceive() == last
        clerk.send("3", b"z")
        clerk.connect()
        assert clerk.outstanding == ["1", "2", "3"]


def test_a_failed_send_of_many_sends_none(qm: onceq.QueueManager) -> None:
    with qm.clerk("till", RAW, window=9) as clerk:
        with pytest.raises(TooLarge):
            clerk.send_many([("1", b"x"), ("2", bytes(2**20 + 1))])
        with pytest.raises(InvalidName):
            clerk.send_many([("1", b"x"), ("", b"y")])
        assert clerk.state is ClientState.CONNECTED
        assert qm.show("raw").depth == 0
        assert clerk.send("1", b"x").state == "new"


# --- C1: cancel, and refusals -------------------------------------------------------------------


def test_cancel_last_request(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        assert clerk.cancel_last_request() is KillAnswer.KILLED
        assert clerk.cancel_last_request() is KillAnswer.KILLED
        with pytest.raises(Cancelled) as cancelled:
            _ = clerk.receive(timeout_s=WAIT_S).value
        assert cancelled.value.rid == "1"
        clerk.send("2", b"y")
        answer(life)
        assert clerk.cancel_last_request() is KillAnswer.TOO_LATE
        assert clerk.receive(timeout_s=WAIT_S).value == b"reply"


def test_a_refused_send_leaves_the_session_as_it_was(qm: onceq.QueueManager) -> None:
    lost = onceq.Queue("nowhere", bytes, bytes)
    with qm.clerk("other", lost) as clerk:
        with pytest.raises(QueueNotFound):
            clerk.send("1", b"x")
        assert clerk.state is ClientState.CONNECTED
    qm.stop("raw", dequeue=False)
    with qm.clerk("till", RAW) as clerk:
        with pytest.raises(QueueStopped):
            clerk.send("1", b"x")
        assert (clerk.state, clerk.last_sent) == (ClientState.CONNECTED, None)
        qm.start("raw")
        clerk.send("1", b"x", not_before=dt.datetime(2100, 1, 1, tzinfo=dt.UTC))
        assert [one.state for one in qm.lookup("1")] == ["waiting"]
