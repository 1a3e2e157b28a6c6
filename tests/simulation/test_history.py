"""The checker finds each planted violation, and nothing in a history that keeps its promises."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from onceq.history import FinalState, Place, Recorder, check, load
from onceq.history import events as ev

if TYPE_CHECKING:
    from pathlib import Path

WHO: dict[str, Any] = {"registrant": "till-7", "epoch": 1}
NEXT: dict[str, Any] = {"registrant": "till-7", "epoch": 2}


def connected(epoch: int, s_rid: str | None, r_rid: str | None, **others: Any) -> ev.Connected:
    fields: dict[str, Any] = {"was": "connected", "ckpt": None, **others}
    return ev.Connected(registrant="till-7", epoch=epoch, s_rid=s_rid, r_rid=r_rid, **fields)


def received(rid: str, **others: Any) -> ev.Received:
    fields: dict[str, Any] = {
        **WHO,
        "eid": f"reply-{rid}",
        "outcome": "done",
        "digest": rid,
        **others,
    }
    return ev.Received(rid=rid, **fields)


def finished(rid: str, **others: Any) -> Place:
    fields: dict[str, Any] = {"role": "request", "state": "finished", "outcome": "done", **others}
    return Place(registrant="till-7", thread="", rid=rid, eid=f"e-{rid}", **fields)


def effect(rid: str) -> ev.Effect:
    return ev.Effect(key="k", rid=rid, eid=f"e-{rid}")


GOOD: list[ev.Event] = [
    connected(1, None, None, was="new"),
    ev.SendBegun(**WHO, rid="1", expects="done"),
    ev.SendOk(**WHO, rid="1"),
    ev.Executed(rid="1", eid="e-1"),
    ev.ReceiveBegun(**WHO),
    received("1", ckpt=b"c1", answers="1"),
    ev.Rereceived(**WHO, rid="1", eid="reply-1", outcome="done", digest="1"),
    ev.SendBegun(**WHO, rid="2"),
    ev.Fault(what="kill -9", target="till-7"),
    connected(2, "2", "1", ckpt=b"c1"),
    ev.KillBegun(actor="operator", rid="2", eid="e-2"),
    ev.KillAnswered(actor="operator", rid="2", eid="e-2", answer="KILLED"),
    ev.Received(**NEXT, rid="2", eid="reply-2", outcome="cancelled"),
    ev.Satisfied(**NEXT),
]
END = FinalState(
    places=(
        finished("1"),
        finished("2", outcome="cancelled"),
        Place(
            registrant="till-7",
            thread="",
            rid="2",
            eid="reply-2",
            role="reply",
            state="replied",
            outcome="cancelled",
        ),
    ),
    effects=(effect("1"),),
    abort_limit=3,
)


def verdict(history: list[ev.Event], final: FinalState = END) -> set[tuple[str, str | None]]:
    numbered = [replace(one, at=at) for at, one in enumerate(history, 1)]
    return {(found.guarantee, found.rid) for found in check(numbered, final)}


def test_a_history_that_keeps_its_promises_has_no_violation() -> None:
    assert verdict(GOOD) == set()


def with_event(at: int, event: ev.Event) -> list[ev.Event]:
    return [*GOOD[:at], event, *GOOD[at:]]


def in_place(at: int, **changes: Any) -> list[ev.Event]:
    return [*GOOD[:at], replace(GOOD[at], **changes), *GOOD[at + 1 :]]


def ending(*places: Place, effects: tuple[ev.Effect, ...] = (effect("1"),)) -> FinalState:
    return dataclasses.replace(END, places=places, effects=effects)


PLANTED_EVENTS: dict[str, tuple[list[ev.Event], tuple[str, str | None]]] = {
    "a reply to what was never sent": (with_event(6, received("9")), ("G1", "9")),
    "the reply of another request": (in_place(5, answers="7"), ("G1", "1")),
    "a reply that is not outstanding": (with_event(13, received("1", **NEXT)), ("G1", "1")),
    "rereceive differs": (in_place(6, digest="other"), ("G5", "1")),
    "never handed out": (GOOD[:12] + GOOD[13:], ("G5", "2")),
    "a send forgotten": (in_place(9, s_rid=None), ("G6", None)),
    "an older send shown": (with_event(8, ev.SendOk(**WHO, rid="2")), ("G6", "1")),
    "a checkpoint forgotten": (in_place(9, ckpt=None), ("G6", "1")),
    "an epoch given twice": (in_place(9, epoch=1), ("G6", None)),
    "new again": (in_place(9, was="new"), ("G6", None)),
    "never disconnected": (in_place(9, was="disconnected"), ("G6", None)),
    "told another outcome": (in_place(5, outcome="failed"), ("G2", "1")),
    "a kill that history denies": (in_place(11, answer="TOO_LATE"), ("G8", "2")),
    "a kill that did not find": (in_place(11, answer="NOT_FOUND"), ("G8", "2")),
    "was to fail": (in_place(1, expects="failed"), ("G7", "1")),
}
PLANTED_EVENTS["an older send shown"][0][10] = connected(2, "1", "1", ckpt=b"c1")


@pytest.mark.parametrize("name", PLANTED_EVENTS)
def test_a_violation_in_the_events_is_found(name: str) -> None:
    history, wanted = PLANTED_EVENTS[name]
    assert wanted in verdict(history)


FAILED = finished("1", outcome="failed", aborts=3, code="ValueError")
HELD = dataclasses.replace(FAILED, role="failed", state="held", outcome=None)
FAILURE = dataclasses.replace(FAILED, role="reply", state="replied", eid="reply-1")
QUEUED = dataclasses.replace(finished("1"), state="queued", outcome=None)
KILLED = END.places[1]

PLANTED_ENDS: dict[str, tuple[FinalState, tuple[str, str | None]]] = {
    "a lost request": (ending(KILLED, effects=()), ("G4", "1")),
    "an effect twice": (
        ending(finished("1"), KILLED, effects=(effect("1"), effect("1"))),
        ("G2", "1"),
    ),
    "an effect lost": (ending(finished("1"), KILLED, effects=()), ("G2", "1")),
    "an effect unfinished": (ending(QUEUED, KILLED), ("G2", "1")),
    "an effect of what failed": (ending(FAILED, KILLED), ("G2", "1")),
    "an innocent": (ending(FAILED, KILLED, effects=()), ("G7", "1")),
    "charged without an execution": (
        ending(dataclasses.replace(FAILED, aborts=3), KILLED, effects=()),
        ("G7", "1"),
    ),
    "too few aborts": (ending(dataclasses.replace(FAILED, aborts=1), KILLED), ("G7", "1")),
    "an effect of what was killed": (
        ending(finished("1"), KILLED, effects=(effect("1"), effect("2"))),
        ("G8", "2"),
    ),
    "finished twice": (ending(finished("1"), finished("1"), KILLED), ("G4", "1")),
    "finished and queued": (ending(finished("1"), QUEUED, KILLED), ("G4", "1")),
    "never finished": (ending(QUEUED, KILLED, effects=()), ("G12", "1")),
    "out of nothing": (ending(finished("1"), finished("3"), KILLED), ("G4", "3")),
    "replied, not finished": (ending(finished("1"), END.places[2]), ("G4", "2")),
}


@pytest.mark.parametrize("name", PLANTED_ENDS)
def test_a_violation_in_the_end_is_found(name: str) -> None:
    final, wanted = PLANTED_ENDS[name]
    assert wanted in verdict(GOOD, final)


def test_what_was_acknowledged_and_is_nowhere_is_lost_also_when_nobody_executed_it() -> None:
    assert verdict(GOOD[:3], ending(effects=())) == {("G4", "1")}


def test_a_ledger_without_eids_is_judged_by_rids_that_only_one_element_has() -> None:
    once = replace(effect("1"), eid="")
    assert verdict(GOOD, ending(*END.places, effects=(once,))) == set()
    assert verdict(GOOD, ending(*END.places, effects=(once, once))) == {("G2", "1")}
    stray = replace(once, rid="9")
    assert verdict(GOOD, ending(*END.places, effects=(once, stray))) == {("G2", "9")}
    other = dataclasses.replace(finished("1"), registrant="till-8", eid="e-other")
    assert verdict(GOOD, ending(*END.places, other, effects=(once, once))) == set()
    assert verdict(GOOD, ending(*END.places, other, effects=(once,) * 3)) == {("G2", "1")}


def test_a_ghost_that_took_effect_is_found() -> None:
    """Connect had shown that 2 was not submitted; its transaction committed afterwards."""
    history = [*GOOD[:9], connected(2, "1", "1", ckpt=b"c1")]
    final = ending(finished("1"), finished("2"), effects=(effect("1"), effect("2")))
    assert {("G6", "2")} == verdict(history, final)


def failing(executions: int) -> list[ev.Event]:
    """The client is told that its request has failed, which was executed so often."""
    executed: list[ev.Event] = [ev.Executed(rid="1", eid="e-1") for _ in range(executions)]
    failure = received("1", outcome="failed")
    return [*GOOD[:1], ev.SendBegun(**WHO, rid="1"), *GOOD[2:3], *executed, failure]


def test_a_failed_element_that_runs_again_is_found() -> None:
    again = ev.Executed(rid="1", eid="e-1")
    final = ending(FAILED, HELD, FAILURE, effects=())
    assert verdict([*failing(3), again], final) == {("G3", "1")}


def test_an_effect_of_what_was_told_to_have_failed_is_found() -> None:
    assert verdict(failing(3), ending(FAILED, HELD, FAILURE, effects=())) == set()
    assert verdict(failing(3), ending(FAILED, HELD, FAILURE)) == {("G2", "1")}


def test_a_failure_before_the_limit_is_found() -> None:
    early = [dataclasses.replace(one, aborts=2) for one in (FAILED, HELD, FAILURE)]
    assert verdict(failing(2), ending(*early, effects=())) == {("G7", "1")}


def tried_again(times: int, code: str = "Retry", executed: int | None = None) -> list[ev.Event]:
    """Request 1 ran so often, and then once more, in which it finished; nothing was charged."""
    runs = times if executed is None else executed
    again: list[ev.Event] = [ev.Executed(rid="1", eid="e-1") for _ in range(runs)]
    told: list[ev.Event] = [
        ev.Aborted(rid="1", eid="e-1", code=code, excused=True) for _ in range(times)
    ]
    return [*GOOD[:3], *again, *told, *GOOD[3:]]


@pytest.mark.parametrize("limit", [0, 30])
def test_what_is_tried_again_beyond_its_queues_retry_limit_is_found(limit: int) -> None:
    """The limit, and the one after which it runs alone; the next was to be charged (G7)."""
    final = dataclasses.replace(END, retry_limit=limit)
    assert verdict(tried_again(limit + 1), final) == set()
    assert verdict(tried_again(limit + 2), final) == {("G7", "1")}
    assert verdict(tried_again(limit + 2, code="40001"), final) == set(), "it may not have counted"


@pytest.mark.parametrize("limit", [0, 30])
def test_executions_of_which_no_abort_is_recorded_are_bounded_by_the_retry_limit(
    limit: int,
) -> None:
    final = dataclasses.replace(END, retry_limit=limit)
    assert verdict(tried_again(0, executed=limit + 1), final) == set()
    assert verdict(tried_again(0, executed=limit + 2), final) == {("G7", "1")}


def test_each_run_of_what_was_redriven_has_its_retries() -> None:
    """A datagram runs again as itself: what it was charged before, and its retries, are its own."""
    failed, done = (
        Place(
            registrant=None,
            thread=None,
            rid="d",
            eid="e-d",
            role="datagram",
            state="finished",
            outcome=outcome,
            aborts=aborts,
            code=code,
        )
        for outcome, aborts, code in (("failed", 3, "ValueError"), ("done", 2, None))
    )
    taken = dataclasses.replace(failed, role="failed", outcome="dequeued")
    final = ending(
        *END.places,
        failed,
        taken,
        done,
        effects=(effect("1"), ev.Effect(key="k", rid="d", eid="e-d")),
    )
    final = dataclasses.replace(final, retry_limit=0)
    ran: list[ev.Event] = [ev.Executed(rid="d", eid="e-d") for _ in range(3 + 1 + 2 + 1 + 1)]
    assert verdict([*GOOD, *ran], final) == set()
    assert verdict([*GOOD, *ran, ran[0]], final) == {("G7", "d")}


def test_a_send_that_ended_before_it_began_may_be_missing() -> None:
    unsent: list[ev.Event] = [
        *GOOD[:7],
        ev.SendBegun(**WHO, rid="2"),
        ev.SendFailed(**WHO, rid="2", unknown=False),
        connected(2, "1", "1", ckpt=b"c1"),
    ]
    assert verdict(unsent, ending(finished("1"))) == set()


def test_an_older_life_that_writes_late_is_judged_as_what_it_was() -> None:
    late = [*GOOD[:8], GOOD[9], ev.SendOk(**WHO, rid="2"), *GOOD[10:]]
    assert verdict(late) == set()


def test_events_survive_in_their_file(tmp_path: Path) -> None:
    path = tmp_path / "till-7"
    with Recorder(path, "till-7") as recorder:
        for event in GOOD:
            recorder.record(event)
    with path.open("ab") as file:
        file.write(b'{"event": "SendOk", "at"')
    read = load([path])
    assert [replace(one, at=0) for one in read] == [
        replace(one, actor=one.actor or "till-7") for one in GOOD
    ]
    assert [one.at for one in read] == sorted(one.at for one in read)
    assert check(read, END) == []
