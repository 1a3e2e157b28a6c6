"""What torture excuses: only what a fault that is known did to just that execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq.history.events import ALL, Aborted, Ended, Executed, Fault, KillBegun, Returned
from proof.torture.evidence import Abort, Evidence, limited, undone
from proof.torture.life import ABORT_LIMIT

if TYPE_CHECKING:
    from onceq.history.events import Event

SECOND = 1_000_000_000
WHERE: dict[str, Any] = {"actor": "server server-0", "pid": 7, "backend": 70}
ELSEWHERE: dict[str, Any] = {"actor": "server server-1", "pid": 8, "backend": 80}
DEATH = Abort(eid="e", charge="charge", code="server_died", pid=7)
KILLED = Ended(at=15 * SECOND, target="server-0", pid=7, how="killed")


def executed(at_s: float, eid: str = "e", **where: Any) -> Executed:
    return Executed(at=round(at_s * SECOND), rid=f"r{eid}", eid=eid, **(where or WHERE))


def returned(eid: str) -> Returned:
    return Returned(at=SECOND, rid=f"r{eid}", eid=eid, pid=7)


def aborted(at_s: float, code: str, *, excused: bool = True) -> Aborted:
    actor = WHERE["actor"]
    at = round(at_s * SECOND)
    return Aborted(at=at, rid="re", eid="e", code=code, excused=excused, actor=actor)


def fault(at_s: float, *struck: str, lasts_s: float = 0) -> Fault:
    at, until = round(at_s * SECOND), round((at_s + lasts_s) * SECOND)
    return Fault(what="kill server", at=at, struck=struck, until=until if lasts_s else 0)


def wrong(
    *events: Event, aborts: tuple[Abort, ...] = (), spark: frozenset[str] = frozenset()
) -> list[str]:
    evidence = Evidence(aborts, spark)
    for event in events:
        evidence.take(event)
    for event in events:
        evidence.again(event)
    return list(evidence.wrong())


TWICE = (executed(10), executed(20, **ELSEWHERE))


@pytest.mark.parametrize(
    "excuse",
    [
        fault(11, "server-0"),
        fault(11, ALL),
        fault(9, "server-0"),
        fault(4, "server-0", lasts_s=5),
        aborted(11, "ValueError", excused=False),
        aborted(11, "DeadlockDetected"),
        aborted(13, "TransactionTimeout"),
        fault(13, limited(7)),
        fault(11, undone(7, "e")),
    ],
)
def test_what_was_struck_may_be_executed_again(excuse: Event) -> None:
    events = sorted([*TWICE, excuse], key=lambda event: event.at)
    assert wrong(*events) == []


@pytest.mark.parametrize(
    "excuse",
    [
        fault(11, "server-1"),
        fault(11, "spark driver"),
        fault(21, "server-0"),
        fault(7, "server-0"),
        fault(11, ""),
        aborted(11, "ConnectionLost"),
        aborted(11, "TransactionTimeout"),
        fault(11, limited(7)),
        fault(13, limited(8)),
        fault(9, undone(7, "e")),
        fault(11, undone(8, "e")),
        fault(11, undone(7, "other")),
    ],
)
def test_what_nothing_had_struck_may_not(excuse: Event) -> None:
    events = sorted([*TWICE, excuse], key=lambda event: event.at)
    text = "was executed again, and nothing had struck its execution by server-0 (session 70)"
    assert wrong(*events) == [f"G7 re: {text}"]


def test_what_lasted_and_was_over_before_excuses_nothing() -> None:
    """Though another fault that struck the same lasted longer."""
    over, longer = fault(4, "server-0", lasts_s=1), fault(30, "server-0", lasts_s=5)
    assert len(wrong(*TWICE, over, longer)) == 1


def test_a_kill_excuses_the_batch_that_was_executing_what_it_killed() -> None:
    batch = [executed(10), executed(10.1, "other"), executed(11)]
    kill = KillBegun(at=10 * SECOND, rid="rother", eid="other")
    assert wrong(*batch, kill) == []
    assert len(wrong(*batch, KillBegun(at=10 * SECOND, rid="rx", eid="x"))) == 1
    beside = (executed(10, "f", **ELSEWHERE), executed(11, "f", **ELSEWHERE))
    assert len(wrong(*batch, *beside, kill)) == 1


def test_a_session_that_is_not_known_was_one_of_its_process() -> None:
    lost = executed(10, **dict(WHERE, backend=0))
    others = (executed(9, "o"), lost, executed(20, **ELSEWHERE))
    assert wrong(*others, fault(10, "backend 70")) == []
    assert len(wrong(*others, fault(10, "backend 80"))) == 1
    known = executed(10, **dict(WHERE, backend=71))
    beside = (executed(9, "o"), known, executed(20, **ELSEWHERE))
    assert len(wrong(*beside, fault(10, "backend 70"))) == 1


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([executed(10)], "which nobody had killed"),
        ([executed(10), Ended(target="server-0", pid=7, how="")], "which nobody had killed"),
        ([executed(10), executed(11, "other"), KILLED], "which ran another by then"),
    ],
)
def test_a_death_charges_nobody_else(events: list[Event], text: str) -> None:
    found = wrong(*events, aborts=(DEATH,))
    assert [one.rpartition(", ")[2] for one in found] == [text]
    assert wrong(*events, aborts=(DEATH,), spark=frozenset({"e"})) == []


def test_a_death_charges_one_of_those_that_its_process_was_executing() -> None:
    events = (executed(10), executed(10.5, "f", **dict(WHERE, backend=71)), KILLED)
    aborts = (DEATH, Abort(eid="f", charge="charge", code="server_died", pid=7))
    assert [one.rpartition(", ")[2] for one in wrong(*events, aborts=aborts)] == ["as another was"]


def test_a_death_between_begin_and_handler_charges_what_nobody_has_seen() -> None:
    other = executed(10, "other")
    raised = Aborted(
        at=SECOND, rid="rother", eid="other", code="ValueError", excused=False, actor=WHERE["actor"]
    )
    for ended in (returned("other"), raised):
        beside = executed(10, "beside", **dict(WHERE, backend=71))
        assert wrong(other, ended, KILLED, aborts=(DEATH,)) == []
        assert wrong(beside, other, ended, KILLED, aborts=(DEATH,)) == []
    assert wrong(KILLED, aborts=(DEATH,)) == []


def test_what_raised_and_was_begun_again_by_the_same_process_may_be_charged_for_its_death() -> None:
    raised = (executed(10), aborted(10.1, "ValueError", excused=False))
    other = (executed(11, "other"), returned("other"))
    aborts = (Abort(eid="e", charge="charge", code="ValueError", pid=7), DEATH)
    assert wrong(*raised, *other, KILLED, aborts=aborts) == []
    found = wrong(*raised, executed(11, "other"), KILLED, aborts=aborts)
    assert [one.rpartition(", ")[2] for one in found] == ["which was busy with others"]


@pytest.mark.parametrize(
    "cut",
    [
        fault(11, "backend 70"),
        fault(11, ALL),
        fault(13, limited(7)),
        fault(11, undone(7, "e")),
    ],
)
def test_what_was_cut_and_was_begun_again_by_the_same_process_may_be_charged_for_its_death(
    cut: Fault,
) -> None:
    batch = (executed(10), returned("e"), executed(10.1, "last"), returned("last"))
    next_life = (executed(14, "other", **dict(WHERE, backend=71)), returned("other"))
    events = (*batch, *next_life)
    kill = fault(15, "server-0")
    assert wrong(*events, cut, kill, KILLED, aborts=(DEATH,)) == []
    for too_late in (kill, fault(16, "backend 70"), fault(11, "backend 71")):
        found = wrong(*events, too_late, kill, KILLED, aborts=(DEATH,))
        assert [one.rpartition(", ")[2] for one in found] == ["which ran another by then"]


def test_a_handler_is_charged_as_often_as_it_raised() -> None:
    charged = Abort(eid="e", charge="charge", code="ValueError", pid=7)
    raised = (executed(10), aborted(10.1, "ValueError", excused=False))
    assert wrong(*raised, aborts=(charged,)) == []
    assert len(wrong(*raised, aborts=(charged, charged))) == 1


def test_falls_of_the_database_charge_after_as_many_in_a_row_as_the_limit() -> None:
    fell = Abort(eid="e", charge="suspect", code="database_fell")
    charged = Abort(eid="e", charge="charge", code="database_fell")
    other = Abort(eid="e", charge="environment", code="ConnectionLost")
    assert wrong(aborts=(*[fell] * ABORT_LIMIT, charged)) == []
    assert len(wrong(aborts=(*[fell] * (ABORT_LIMIT - 1), charged))) == 1
    assert len(wrong(aborts=(*[fell] * ABORT_LIMIT, other, charged))) == 1


@pytest.mark.parametrize("charge", ["charge", "reject"])
def test_an_innocent_that_was_charged_for_a_cut_is_found(charge: str) -> None:
    charged = Abort(eid="e", charge=charge, code="ConnectionLost", pid=7)
    cut = fault(10.1, "backend 70")
    found = wrong(executed(10), aborted(10.2, "ConnectionLost"), cut, aborts=(charged,))
    assert found == ["G7 e: was charged for ConnectionLost, and its handler had not raised"]
