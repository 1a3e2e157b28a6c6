"""Faults excuse what they could have touched, and nothing else (G7)."""

from __future__ import annotations

import dataclasses

import pytest

from onceq.history import check
from onceq.history import events as ev
from onceq.history.events import FinalState, Place

MANY = 500
SECOND = 1_000_000_000
PLACE = Place(
    registrant="till",
    thread="",
    rid="1",
    eid="e",
    role="request",
    state="finished",
    outcome="done",
)
SENT: list[ev.Event] = [
    ev.Connected(registrant="till", epoch=1, was="new", s_rid=None, r_rid=None, ckpt=None, at=1),
    ev.SendBegun(registrant="till", epoch=1, rid="1", at=2),
    ev.SendOk(registrant="till", epoch=1, rid="1", at=3),
]


def runs(times: int, begin: int = SECOND) -> list[ev.Event]:
    return [
        ev.Executed(rid="1", eid="e", at=begin + number, actor="server server-0")
        for number in range(times)
    ]


def kills(target: str, at: int = SECOND, times: int = MANY) -> list[ev.Event]:
    return [ev.Fault(what="kill -9", target=target, at=at + number) for number in range(times)]


def verdict(events: list[ev.Event], aborts: int = 0, slack: int = 0) -> bool:
    """Whether a charge, or the want of one, is found wrong."""
    place = dataclasses.replace(PLACE, aborts=aborts)
    effect = ev.Effect(key="1", rid="1", eid="e")
    final = FinalState(places=(place,), effects=(effect,), abort_limit=5, slack=slack)
    return "G7" in {one.guarantee for one in check([*SENT, *events], final)}


@pytest.mark.parametrize("target", ["till", "notes-0", "client"])
def test_kills_of_clients_excuse_no_execution(target: str) -> None:
    notes = [ev.EnqueueBegun(rid="n", actor="notes notes-0", at=4)]
    assert verdict([*notes, *runs(200), *kills(target)])
    assert verdict([*notes, *runs(1), *kills(target)], aborts=4)
    assert not verdict([*notes, *runs(1), *kills(target)])


def test_kills_of_the_server_that_executed_it_excuse_it_at_their_time() -> None:
    assert not verdict([*runs(200), *kills("server-0")])
    assert verdict([*runs(200), *kills("server-0", at=10 * SECOND)])
    assert verdict([*runs(200), *kills("server-0", at=4)])
    assert not verdict([*runs(200), *kills("server-0", at=4)], slack=SECOND)


def test_kills_of_another_server_do_not() -> None:
    other = ev.Executed(rid="2", eid="f", at=5, actor="server server-1")
    assert verdict([other, *runs(200), *kills("server-1")])
    assert verdict([other, *runs(200)])


def test_what_hits_everybody_excuses_at_its_time() -> None:
    assert not verdict([*runs(200), *kills("")])
    assert verdict([*runs(200), *kills("", at=10 * SECOND)])


def test_few_charges_are_of_servers_that_died_unheard() -> None:
    assert not verdict([*runs(2), *kills("server-0")], aborts=3)
    assert verdict([*runs(2), *kills("server-0")], aborts=4)
    assert verdict(runs(2), aborts=2)


def test_exceptions_that_were_not_charged() -> None:
    raised = [
        ev.Aborted(rid="1", eid="e", code="ValueError", at=SECOND + number) for number in range(3)
    ]
    assert verdict([*runs(4), *raised, *kills("till")])
    assert not verdict([*runs(4), *raised, *kills("server-0")])
