"""A reply that is no longer kept: it is told at once, and never waited for. Spec C6, finding 3."""

from __future__ import annotations

import pytest

import onceq
from onceq.errors import IllegalState, Outcome, ReplyGone
from tests.clerk.test_clerk import RAW, WAIT_S, answer_all
from tests.lives import living


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


@pytest.mark.parametrize("rid", ["1", None])
def test_a_reply_that_is_no_longer_kept_is_not_waited_for(
    qm: onceq.QueueManager, conninfo: str, repository: str, rid: str | None
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=5) as clerk:
        clerk.send("1", b"x")
        answer_all(life)
        clerk.receive(timeout_s=WAIT_S)
        clerk.acknowledge(["1"])
        assert clerk.send("1", b"x").state == "done"
        with pytest.raises(ReplyGone) as gone:
            clerk.receive(timeout_s=0, rid=rid)
        assert (gone.value.rid, gone.value.outcome) == ("1", Outcome.NOTHING_HAPPENED)
        assert "attempt" not in str(gone.value)  # how many there were is not known
        with pytest.raises(IllegalState):  # it is said once
            clerk.receive(timeout_s=0, rid=rid)


def test_what_is_outstanding_is_received_before_what_is_gone_is_told(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=5) as clerk:
        clerk.send("1", b"x")
        answer_all(life)
        clerk.receive(timeout_s=WAIT_S)
        clerk.acknowledge(["1"])
        clerk.send_many([("1", b"x"), ("2", b"y")])
        answer_all(life)
        assert clerk.receive(timeout_s=WAIT_S).rid == "2"
        with pytest.raises(ReplyGone):
            clerk.receive(timeout_s=0)


def test_what_rereceive_returns_is_not_said_to_be_gone(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, keep=1) as clerk:
        for rid in ("1", "2"):
            clerk.send(rid, rid.encode())
            answer_all(life)
            clerk.receive(timeout_s=WAIT_S)
        assert clerk.send("1", b"1").state == "done"
        with pytest.raises(ReplyGone, match=r"kept: rereceive\(rid\)"):
            clerk.receive(timeout_s=0, rid="1")
        assert clerk.rereceive("1").rid == "1"
