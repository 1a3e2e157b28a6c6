"""What closes the gaps between a ledger in a file and the repository, one death at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.model import ledger_ops, ops
from tests.clerk.links import struck
from tests.lives import living

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RAW = onceq.Queue("raw", bytes, bytes)


class _Died(BaseException):
    """The client's process has ended."""


def _dying_after(at: type[Any]) -> Callable[[Callable[[ops.Op[Any]], Any], ops.Op[Any]], Any]:
    """Lets a client die after the next Op of this kind."""

    def performing(perform: Callable[[ops.Op[Any]], Any], op: ops.Op[Any]) -> Any:
        answer = perform(op)
        if isinstance(op, at):
            raise _Died
        return answer

    return performing


@pytest.fixture
def ledger(qm: onceq.QueueManager, tmp_path: Path) -> onceq.SqliteLedger:
    qm.declare(RAW)
    return onceq.SqliteLedger(tmp_path / "ann.ledger")


def test_a_send_whose_note_was_lost_was_sent(
    qm: onceq.QueueManager, ledger: onceq.SqliteLedger
) -> None:
    clerk, link = struck(qm, ledger)
    with clerk:
        clerk.recover()
        link.strike = _dying_after(ops.Send)
        with pytest.raises(_Died):
            clerk.send("1", b"x")
    with qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover(policy="discard")
        assert isinstance(found, onceq.Submitted)
        assert "NotSubmitted" in found.rests_on
    with qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert "says Submitted;" in clerk.recover().rests_on


def test_a_request_that_was_noted_and_not_sent_is_a(
    qm: onceq.QueueManager, ledger: onceq.SqliteLedger
) -> None:
    clerk, link = struck(qm, ledger)
    with clerk:
        clerk.recover()
        link.strike = _dying_after(ledger_ops.CommitLedger)
        with pytest.raises(_Died):
            clerk.send("1", b"x", priority=8, properties={"till": 7})
    with qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover()
        assert isinstance(found, onceq.NotSubmitted)
        assert (found.rid, found.request) == ("1", b"x")
        clerk.resubmit()
    with living(qm.located.conninfo, qm.repository) as life:
        element = life.claim_one("raw")
        assert (element.priority, element.properties) == (8, {"till": 7})


def test_a_reply_that_was_processed_does_not_come_again(
    qm: onceq.QueueManager, ledger: onceq.SqliteLedger
) -> None:
    clerk, link = struck(qm, ledger)
    with living(qm.located.conninfo, qm.repository) as life:
        with clerk:
            clerk.recover()
            clerk.send("1", b"x")
            life.run(life.claim_one("raw"), b"reply")
            link.strike = _dying_after(ledger_ops.CommitLedger)
            reply = clerk.receive(timeout_s=60)
            with pytest.raises(_Died):
                clerk.done(reply)
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            assert isinstance(clerk.recover(), onceq.Done)
            assert clerk.rereceive() == reply
            clerk.send("2", b"y")
            assert [one.state for one in qm.lookup("1")] == ["finished"]


def test_a_reply_that_was_processed_does_not_come_again_after_a_discard(
    qm: onceq.QueueManager, ledger: onceq.SqliteLedger
) -> None:
    """The next request was noted, not sent, and given up; then the client died once more."""
    clerk, link = struck(qm, ledger)
    with living(qm.located.conninfo, qm.repository) as life:
        with clerk:
            clerk.recover()
            clerk.send("1", b"x")
            life.run(life.claim_one("raw"), b"reply")
            clerk.done(clerk.receive(timeout_s=60))
            link.strike = _dying_after(ledger_ops.CommitLedger)
            with pytest.raises(_Died):
                clerk.send("2", b"y")
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            assert isinstance(clerk.recover(policy="discard"), onceq.NotSubmitted)
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            found = clerk.recover()
            assert (type(found), found.rid) == (onceq.Done, "1")
            clerk.send("3", b"z")
            assert [one.state for one in qm.lookup("1")] == ["finished"]
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            assert isinstance(clerk.recover(), onceq.Submitted)
