"""The tables of recovery (BN09 4.3): the life of a request, and what follows from what is seen."""

from __future__ import annotations

import itertools

import pytest

from onceq.errors import IllegalState
from onceq.model.ledger import Entry, LastRequest, Noted, decode_entry, encode_entry
from onceq.model.recovery import LEDGER, NONE, PLACES, TRANSITIONS, Move, Place, after

STATES = ("A", "B", "C", "D", "E")


def test_a_request_lives_from_a_to_d() -> None:
    state = NONE
    for event, following in [
        (Move.CONSTRUCTED, "A"),
        (Move.SUBMITTED, "B"),
        (Move.EXECUTED, "C"),
        (Move.PROCESSED, "D"),
        (Move.CONSTRUCTED, "A"),
    ]:
        state = after(state, event)
        assert state == following


def test_only_a_decision_leads_out_of_e() -> None:
    assert {event for state, event in TRANSITIONS if state == "E"} == {
        Move.SUBMITTED,
        Move.DISCARDED,
    }
    assert {after(state, Move.LOST) for state in "ABCD"} == {"E"}
    with pytest.raises(IllegalState, match="state E"):
        after("E", Move.CONSTRUCTED)
    with pytest.raises(IllegalState, match="without a request"):
        after(NONE, Move.SUBMITTED)


def test_every_pair_of_ledger_and_place_has_its_state() -> None:
    noted = [one for one in Noted if one is not Noted.NOTHING]
    assert set(LEDGER) == set(itertools.product(noted, Place))
    assert set(PLACES) == set(Place)
    assert set(LEDGER.values()) == set(STATES)


@pytest.mark.parametrize("noted", [Noted.SUBMITTED, Noted.DONE])
def test_a_ledger_ahead_of_the_repository_is_never_a(noted: Noted) -> None:
    assert LEDGER[noted, Place.NOWHERE] == "E"
    assert "A" not in {LEDGER[noted, place] for place in Place}


@pytest.mark.parametrize(
    ("enqueued", "dequeued", "noted"),
    [
        (None, None, Noted.NOT_SUBMITTED),
        ("1", "1", Noted.NOT_SUBMITTED),
        ("2", "1", Noted.SUBMITTED),
        ("2", "2", Noted.DONE),
    ],
)
def test_a_ledger_says_how_far_its_last_request_came(
    enqueued: str | None, dequeued: str | None, noted: Noted
) -> None:
    last = LastRequest(rid="2", body=b"x")
    entry = Entry(last_request=last, last_enqueued=enqueued, last_dequeued=dequeued)
    assert entry.noted is noted
    text, digest = encode_entry(entry)
    assert decode_entry(text, digest) == entry
    assert decode_entry(text.replace("2", "3"), digest) is None
    assert Entry().noted is Noted.NOTHING
