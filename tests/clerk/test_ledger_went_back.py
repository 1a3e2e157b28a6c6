"""A repository that went back, as a failover does: the way out of state E, and what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import onceq
from onceq.errors import IllegalState
from onceq.model import ledger_ops
from onceq.model.ledger import Entry, LastRequest
from tests.clerk.ledgers import Ground, ground, ledger, other_postgresql

if TYPE_CHECKING:
    from onceq.clerk.ledger import Ledger

RAW = onceq.Queue("raw", bytes, bytes)

__all__ = ["ground", "ledger", "other_postgresql"]


def _processed(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    """Has request 1 processed, its reply not acknowledged; the send of 2, which did, was lost."""
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
        ground.serve_one()
        clerk.receive(timeout_s=60)
        assert clerk._kept is not None
        entry = replace(
            clerk._kept.entry,
            last_request=LastRequest(rid="2", body=b"y"),
            last_enqueued="2",
            last_dequeued="1",
        )
        clerk._link.perform(ledger_ops.WriteLedger(entry=entry))


def test_a_request_lost_with_its_acknowledgement_is_resubmitted(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    _processed(ground, ledger)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert isinstance(clerk.recover(), onceq.WentBack)
        clerk.resubmit()
        assert [one.state for one in ground.qm.lookup("1")] == ["finished"]
        ground.serve_one(b"second")
        assert clerk.receive(timeout_s=60).rid == "2"


@pytest.mark.parametrize("lives", [1, 2])
def test_what_was_processed_before_it_stays_so_when_it_is_given_up(
    ground: Ground, ledger: Ledger[Any, Any], lives: int
) -> None:
    _processed(ground, ledger)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert isinstance(clerk.recover(), onceq.WentBack)
        clerk.discard()
        if lives == 2:
            clerk.connect()
        found = clerk.recover()
        assert (type(found), found.rid) == (onceq.Done, "1")
        clerk.send("3", b"z")
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert isinstance(clerk.recover(), onceq.Submitted)


def test_what_the_repository_lost_of_the_one_before_counts_no_more(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    """Everything is lost; the request was given up, and the next one is known."""
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        entry = Entry(last_request=LastRequest(rid="2"), last_enqueued="2", last_dequeued="1")
        clerk._link.perform(ledger_ops.WriteLedger(entry=entry))
        clerk.connect()
        assert isinstance(clerk.recover(), onceq.WentBack)
        clerk.discard()
        clerk.recover()
        clerk.send("3", b"z")
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert isinstance(clerk.recover(), onceq.Submitted)


def test_a_request_is_not_resubmitted_beside_one_that_came_back(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    """Nothing happens, in the ledger neither: it is still E, until the other was received."""
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
        entry = Entry(
            last_request=LastRequest(rid="3", body=b"z"), last_enqueued="3", last_dequeued="2"
        )
        clerk._link.perform(ledger_ops.WriteLedger(entry=entry))
        clerk.connect()
        assert isinstance(clerk.recover(), onceq.WentBack)
        with pytest.raises(IllegalState):
            clerk.resubmit()
        clerk.connect()
        assert isinstance(clerk.recover(), onceq.WentBack)
        ground.serve_one()
        assert clerk.receive(timeout_s=60).rid == "1"
        clerk.resubmit()
        ground.serve_one()
        assert clerk.receive(timeout_s=60).rid == "3"
