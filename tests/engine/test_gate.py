"""The gate of a process: many together, or a suspect alone; nobody waits with claims in hand."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from onceq.engine.perform.gate import PATIENCE_FIRST_S, Gate, Way
from onceq.engine.perform.stop import Stop
from onceq.model.element import Element, Lane, Role
from tests.parts import Background


class Clock:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ways(count: int) -> tuple[Clock, list[Way]]:
    clock = Clock()
    gate = Gate(clock)
    return clock, [Way(gate) for _ in range(count)]


def element(*, lane: int) -> Element:
    return Element(
        seq=1,
        eid=UUID(int=1),
        rid="1",
        body=b"",
        role=Role.DATAGRAM,
        queue_id=1,
        lane=lane,
        priority=4,
        aborts=0,
        enqueued_at=datetime(2026, 1, 1, tzinfo=UTC),
        owes_reply=False,
    )


def test_many_are_inside_and_a_suspect_is_refused_at_once() -> None:
    _, (one, other, suspect) = ways(3)
    assert one.enter(alone=False)
    assert other.enter(alone=False)
    assert not suspect.enter(alone=True)


def test_nothing_enters_beside_a_suspect_and_nothing_is_claimed() -> None:
    _, (suspect, other) = ways(2)
    assert suspect.enter(alone=True)
    assert not other.enter(alone=False)
    assert not other.enter(alone=True)
    assert other.may_claim() is None
    suspect.leave()
    assert other.may_claim()
    assert other.enter(alone=False)


def test_who_was_refused_claims_when_all_have_left_and_is_alone_then() -> None:
    _, (inside, suspect, other) = ways(3)
    assert inside.enter(alone=False)
    assert not suspect.enter(alone=True)
    assert suspect.may_claim() is None
    assert other.may_claim() is None
    assert not other.enter(alone=False)  # what it had claimed before goes back
    inside.leave()
    assert inside.may_claim() is None
    assert suspect.may_claim()
    assert not other.enter(alone=False)
    suspect.claimed([element(lane=Lane.SUSPECT)])
    assert suspect.enter(alone=True)
    assert other.may_claim() is None
    suspect.leave()
    assert other.may_claim()


def test_one_that_finds_no_suspect_any_more_keeps_nobody_out() -> None:
    for found in (list[Element](), [element(lane=4)]):
        _, (inside, suspect, other) = ways(3)
        assert inside.enter(alone=False)
        assert not suspect.enter(alone=True)
        inside.leave()
        assert suspect.may_claim()
        suspect.claimed(found)
        assert other.enter(alone=False)
        assert suspect.enter(alone=False)


def test_a_slow_neighbour_keeps_the_others_out_for_half_of_the_time_at_most() -> None:
    clock, (slow, suspect, other) = ways(3)
    assert slow.enter(alone=False)
    patience_s = PATIENCE_FIRST_S
    for _ in range(6):
        assert not suspect.enter(alone=True)
        assert other.may_claim() is None
        clock.now += patience_s
        assert other.may_claim() is False  # not of suspects
        assert not other._gate.may_chain()
        assert suspect.may_claim() is False
        assert other.enter(alone=False)
        other.leave()
        assert not suspect.enter(alone=True)
        assert other.may_claim() is False
        clock.now += patience_s
        assert other.may_claim() is True
        assert other._gate.may_chain()
        patience_s *= 2
    assert not suspect.enter(alone=True)
    clock.now += patience_s - 0.1  # by then the patience is longer than its handler
    slow.leave()
    assert suspect.may_claim()


def test_a_session_that_ends_keeps_nobody_out() -> None:
    _, (inside, suspect, other) = ways(3)
    assert inside.enter(alone=False)
    assert not suspect.enter(alone=True)
    suspect.end()
    assert other.may_claim()
    inside.end()
    assert suspect.enter(alone=True)
    suspect.end()
    assert other.enter(alone=False)


def test_who_waits_for_the_gate_goes_on_when_it_opens_and_at_a_stop() -> None:
    gate = Gate()
    suspect, other = Way(gate), Way(gate)
    stop = Stop()
    assert suspect.enter(alone=True)
    waiting = Background(lambda: other.await_claim(stop))
    suspect.leave()
    assert waiting.result() is True
    assert suspect.enter(alone=True)
    stop.set()
    assert other.await_claim(stop) is False
