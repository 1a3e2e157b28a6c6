"""How the power cuts are judged, without a device: what a cut may take, and what it may not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceq.errors import EmbeddedStartFailed
from onceq.history.events import (
    AcknowledgeBegun,
    Acknowledged,
    Executed,
    FinalState,
    Place,
    Received,
    SendBegun,
    SendOk,
)
from proof.part import Size
from proof.powercut import devices, part
from proof.powercut.drive import Cache, Cut, Ground, Kind
from proof.powercut.page import FSYNC_OFF, outcome
from proof.powercut.part import AMOUNTS, SYSTEMS, plans
from proof.powercut.trial import Plan, Round, has_refused
from proof.powercut.verdict import Past, Verdict

if TYPE_CHECKING:
    from onceq.history.events import Event
    from proof.part import Order

CUT = Cut(image=Path("frozen"), began_ns=100, ended_ns=200)
ANN: dict[str, Any] = {"registrant": "ann", "epoch": 1}
PLAN = Plan(name="round-0", kind=Kind(system="ext4", cache=Cache.LOST), cuts=1, settings={})


def sent(rid: str, begun: int, acknowledged: int) -> list[Event]:
    return [SendBegun(rid=rid, at=begun, **ANN), SendOk(rid=rid, at=acknowledged, **ANN)]


def test_what_was_acknowledged_before_the_cut_began_counts_and_nothing_later() -> None:
    events = [*sent("a", 1, 99), *sent("b", 2, 100), *sent("c", 150, 160), *sent("d", 200, 210)]
    past = Past(events, CUT)
    assert past.sent == {("ann", "a")}
    assert past.in_doubt == {("ann", "b"), ("ann", "c")}


def test_a_reply_seen_during_the_cut_was_handed_out_and_proves_nothing() -> None:
    reply = Received(rid="a", eid="1", outcome="done", at=150, **ANN)
    past = Past([*sent("a", 1, 50), reply], CUT)
    assert past.told == []
    assert past.handed == {("ann", "a")}


def place(rid: str, eid: str, role: str = "request", state: str = "finished") -> Place:
    return Place(
        registrant="ann", thread="", rid=rid, eid=eid, role=role, state=state, outcome=None
    )


def test_what_began_to_run_during_the_cut_may_be_unknown_and_nothing_before_it() -> None:
    before, during = Executed(rid="a", eid="1", at=99), Executed(rid="b", eid="2", at=100)
    again = Executed(rid="b", eid="2", attempt=2, at=101)  # its first abort came too late
    past = Past([before, during], CUT)
    past.settle(FinalState(places=(), effects=()))
    assert past.events == [before]
    past = Past([before, during, again], CUT)
    past.settle(FinalState(places=(place("b", "2"),), effects=()))
    assert past.events == [before, during]


def test_what_came_before_a_call_that_took_effect_happened_and_the_rest_may_have() -> None:
    events: list[Event] = [
        *sent("a", 1, 100),
        Received(rid="a", eid="9", outcome="done", at=110, **ANN),
        AcknowledgeBegun(rids=("a",), at=120, **ANN),
        Acknowledged(rids=("a",), at=130, **ANN),
        *sent("b", 140, 150),
    ]
    for places, happened in (
        ((place("a", "1"), place("b", "2")), events[:6]),
        ((place("a", "1"),), [*events[:4], events[5]]),
        ((place("a", "1"), place("a", "9", "reply", "ready")), [events[0], events[3], events[5]]),
        ((place("a", "1", state="queued"),), [events[0], events[3], events[5]]),
    ):
        past = Past(events, CUT)
        past.settle(FinalState(places=places, effects=()))
        assert past.events == happened


def rounds(plan: Plan, *wrong: str) -> Round:
    ground: Any = None  # no disk: it is not run
    found = Round(plan=plan, ground=ground, place=Path(), chance=random.Random(1))
    found.verdicts += [
        Verdict(
            wrong=[one] if one else [],
            recovered=True,
            lossy=one == "lost",
            refused=one == "refused",
            acknowledged=7,
            lost=1,
        )
        for one in wrong
    ]
    return found


@pytest.mark.parametrize(
    ("control", "proves"),
    [
        (("lost", "refused", ""), True),
        (("lost", ""), False),
        (("TimeoutError: the machine is slow", "TimeoutError: it is", "lost"), False),
    ],
)
def test_a_control_that_keeps_what_it_should_lose_is_a_violation(
    *, control: tuple[str, ...], proves: bool
) -> None:
    unsafe = replace(PLAN, name="control-0", settings={"fsync": "off"})
    found = outcome([rounds(PLAN, "", ""), rounds(unsafe, *control)], 1)
    assert (found.violations == []) is proves
    assert proves or FSYNC_OFF in found.violations[0]
    assert found.controls[0].broke == sum(one in {"lost", "refused"} for one in control)


def test_a_device_that_fails_fails_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise devices.DeviceFailed("mount ended with status 32")

    unsafe = replace(PLAN, name="control-0", settings={"fsync": "off"})
    found = rounds(unsafe)
    found.ground = Ground(Path())
    monkeypatch.setattr(found.ground, "powered", fails)
    witness: Any = None
    with pytest.raises(devices.DeviceFailed):
        found.judge(CUT, witness, [])


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (EmbeddedStartFailed("PostgreSQL ended while starting in /x"), True),
        (EmbeddedStartFailed("PostgreSQL in /x did not answer within 60 s"), False),
        (TimeoutError("slow"), False),
    ],
)
def test_only_a_postgresql_that_ends_has_refused(error: Exception, *, refused: bool) -> None:
    assert has_refused(error) is refused


def test_what_is_wrong_is_named_with_the_way_to_repeat_it() -> None:
    unsafe = replace(PLAN, name="control-0", settings={"fsync": "off"})
    found = outcome([rounds(PLAN, "", "lost"), rounds(unsafe, "lost")], 7)
    assert found.violations == [
        "round-0, cut 1: lost (python -m proof --only power-cut --seed 7)",
    ]


def test_every_kind_of_disk_is_tried_with_both_defaults() -> None:
    tried = [
        (one.kind.system, one.kind.cache, bool(one.settings))
        for one in plans(AMOUNTS[Size.PROOF])
        if not one.is_control
    ]
    assert len(set(tried)) == 2 * len(SYSTEMS) * len(Cache)
    assert sum(one.cuts for one in plans(AMOUNTS[Size.PROOF]) if not one.is_control) == 150


def test_a_machine_that_cannot_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PROGRAMS", ("mkfs.nothing",))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    order: Any = None  # nothing of it is looked at
    skipped: Order = order
    assert part.run(skipped).skipped == (
        "mkfs.nothing not found (xfsprogs, e2fsprogs, mount have them)"
    )
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert part.run(skipped).skipped == "loop devices and mounts need root"
