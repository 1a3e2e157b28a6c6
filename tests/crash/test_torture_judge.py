"""What torture judges beyond the history checker: each planted wrong is found."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from onceq.history.events import (
    Connected,
    Doubted,
    Effect,
    EnqueueBegun,
    Enqueued,
    Executed,
    Fault,
    FinalState,
    Place,
    ReceiveBegun,
    Received,
    Recorder,
    SendBegun,
    SendFailed,
    SendOk,
)
from onceq.history.events.files import StoredFinal, save_final
from proof.torture.evidence import ABORTS_NAME, Abort
from proof.torture.judge import STATED, Judgement, judge
from proof.torture.life import ABORT_LIMIT
from proof.torture.recoveries import Marks, Waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceq.history.events import Event

WHO: dict[str, Any] = {"registrant": "clerk-0", "epoch": 1}
NEXT: dict[str, Any] = {"registrant": "clerk-0", "epoch": 2}


def connected(who: dict[str, Any], s_rid: str | None = None) -> Connected:
    was = "new" if s_rid is None and who is WHO else "connected"
    return Connected(was=was, s_rid=s_rid, r_rid=None, ckpt=None, **who)


def finished(rid: str, eid: str, role: str = "request", who: str | None = "clerk-0") -> Place:
    return Place(
        registrant=who,
        thread=None if who is None else "",
        rid=rid,
        eid=eid,
        role=role,
        state="finished",
        outcome="done",
    )


def replied(rid: str, eid: str) -> Place:
    return Place(
        registrant="clerk-0",
        thread="",
        rid=rid,
        eid=eid,
        role="reply",
        state="replied",
        outcome="done",
    )


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Judgement]:
    """Judges events and lines, given the final state."""

    def given(events: list[Event], final: FinalState, lines: str = "") -> Judgement:
        (tmp_path / "events").mkdir()
        (tmp_path / "lines").mkdir()
        (tmp_path / "lines" / "clerk-0").write_text(lines)
        with Recorder(tmp_path / "events" / "clerk-0-1.events", "clerk clerk-0") as recorder:
            for event in events:
                recorder.record(event)
        stated = dataclasses.replace(STATED, places=final.places, effects=final.effects)
        save_final(stated, tmp_path / "events")
        return judge(tmp_path, StoredFinal.open(tmp_path / "events"))

    return given


def sound() -> tuple[list[Event], FinalState]:
    """One request, sent in doubt, which took effect; its reply, printed; one datagram."""
    events: list[Event] = [
        connected(WHO),
        SendBegun(rid="r", **WHO),
        SendFailed(rid="r", unknown=True, **WHO),
        connected(NEXT, "r"),
        Executed(rid="r", eid="e", actor="server server-0"),
        ReceiveBegun(**NEXT),
        Received(rid="r", eid="p", outcome="done", answers="r", ckpt=b"0", **NEXT),
        Fault(what="cut client after", target="client"),
        EnqueueBegun(rid="notes-0.1"),
        Enqueued(rid="notes-0.1", eid="n"),
        Executed(rid="n", eid="n", actor="server server-0"),
    ]
    places = (replied("r", "p"), finished("r", "e"), finished("n", "n", "datagram", None))
    effects = (Effect(key="r", rid="r", eid="e"), Effect(key="n", rid="n", eid="n"))
    return events, FinalState(places=places, effects=effects, abort_limit=5)


def test_a_sound_run(judged: Callable[..., Judgement]) -> None:
    events, final = sound()
    found = judged(events, final, "r\n")
    assert found.violations == []
    assert (found.doubts.took_effect, found.doubts.total) == (1, 1)
    assert found.faults == {"cut client after": 1}
    assert found.acknowledged == 1


def replaced(final: FinalState, **changes: Any) -> FinalState:
    return dataclasses.replace(final, **changes)


def test_what_was_printed_twice_or_never(judged: Callable[..., Judgement]) -> None:
    events, final = sound()
    found = judged(events, final, "x\nx\n")
    assert found.violations == [
        "C8 x: was printed 2 times",
        "C8 r: its reply was handed out, and never printed",
    ]


def test_what_was_ordered_once_and_booked_twice(judged: Callable[..., Judgement]) -> None:
    events, final = sound()
    events[1:1] = [SendBegun(rid="q", **WHO), SendOk(rid="q", **WHO)]
    events[3:3] = [Executed(rid="q", eid="f", actor="server server-0")]
    places = (*final.places, finished("q", "f"))
    effects = (*final.effects, Effect(key="r", rid="q", eid="f"))
    found = judged(events, replaced(final, places=places, effects=effects), "r\n")
    assert "G2 r: was ordered once, and booked by several requests" in found.violations


def test_what_is_known_of_every_end_is_judged(judged: Callable[..., Judgement]) -> None:
    """Each books one effect, and fails after as many aborts as the limit."""
    events, final = sound()
    early = dataclasses.replace(
        finished("n", "n", "datagram", None), outcome="failed", aborts=ABORT_LIMIT - 1
    )
    effects = (*final.effects[:1], Effect(key="another", rid="r", eid="e"))
    found = judged(
        events, replaced(final, places=(*final.places[:2], early, HELD), effects=effects), "r\n"
    )
    assert "G2 r: 2 effects are there, not 1" in found.violations
    aborts = f"failed after {ABORT_LIMIT - 1} aborts, the limit is {ABORT_LIMIT}"
    assert f"G7 n: {aborts}" in found.violations


def test_what_evidence_marks_and_waits_find_is_in_the_judgement(
    judged: Callable[..., Judgement],
) -> None:
    events, final = sound()
    late = time.monotonic_ns() + 700_000_000_000
    found = judged([*events, Executed(rid="n", eid="n", actor="server server-0", at=late)], final)
    texts = "\n".join(found.violations)
    assert "G7 n: was executed again, and nothing had struck its execution by server-0" in texts
    assert "G12 cut client after client: was felt for 700 s" in texts
    assert "G12 notes-0.1: waited 700 s after the last fault" in texts


HELD = Place(
    registrant=None, thread=None, rid="n", eid="n", role="failed", state="held", outcome=None
)


@pytest.mark.parametrize(
    ("more", "times"), [((), 0), ((finished("n", "n", "datagram", None),) * 2, 2), ((HELD,), 0)]
)
def test_a_datagram_that_is_lost_or_doubled(
    judged: Callable[..., Judgement], more: tuple[Place, ...], times: int
) -> None:
    """What is held in an error queue has its end in history too: alone it is no place."""
    events, final = sound()
    found = judged(
        events, replaced(final, places=(*final.places[:2], *more), effects=final.effects[:1]), "r\n"
    )
    assert f"G4 n: an acknowledged datagram is in {times} places" in found.violations


def test_a_doubt_that_was_resolved_wrongly(judged: Callable[..., Judgement]) -> None:
    events, final = sound()
    events[3:] = [connected(NEXT), Doubted(what="finish", eids=("gone",))]
    found = judged(events, final)
    assert (found.doubts.did_not, found.acknowledged) == (1, 0)
    assert found.doubts.finishes == 1
    wrong = [text for text in found.violations if text.startswith("G6 doubt")]
    assert len(wrong) == 2


def test_a_doubt_that_took_effect_and_is_nowhere(judged: Callable[..., Judgement]) -> None:
    events, final = sound()
    found = judged(events, replaced(final, places=final.places[2:]), "r\n")
    assert any("sends in doubt ['r']" in text for text in found.violations)


def test_a_client_that_dies_while_it_records_a_send_of_many(
    judged: Callable[..., Judgement],
) -> None:
    events: list[Event] = [
        connected(WHO),
        *(SendBegun(rid=rid, alone=False, **WHO) for rid in ("r", "q")),
        SendOk(rid="r", **WHO),
        connected(NEXT, "q"),
    ]
    for number, rid in enumerate(("r", "q")):
        events.append(Executed(rid=rid, eid=f"e{number}", actor="server server-0"))
    replies = (replied("r", "p0"), replied("q", "p1"))
    places = (*replies, finished("r", "e0"), finished("q", "e1"))
    effects = (Effect(key="r", rid="r", eid="e0"), Effect(key="q", rid="q", eid="e1"))
    final = FinalState(places=places, effects=effects, abort_limit=5)
    assert judged(events, final).violations == []


def test_what_nobody_sent_cancelled_or_executed(judged: Callable[..., Judgement]) -> None:
    events, final = sound()
    places = (
        *final.places,
        dataclasses.replace(finished("s", "s1", who="stranger"), outcome="cancelled"),
        finished("n2", "n2", "datagram", None),
        finished("t", "t1"),
        finished("u", "u1", who="stream-spark"),
    )
    effects = (*final.effects, *(Effect(key=eid, rid=eid, eid=eid) for eid in ("n2", "t1", "u1")))
    found = judged(events, replaced(final, places=places, effects=effects), "r\n")
    texts = "\n".join(found.violations)
    assert "stranger: is there, and nobody sent it" in texts
    assert "n2: is there and was never enqueued" in texts
    assert "is cancelled, and no kill of it took effect" in texts
    assert "G2 t: is done, and was never executed" in texts
    assert "G2 u:" not in texts


@pytest.mark.parametrize(("state", "wrong"), [("new", 0), ("queued", 1)])
def test_a_send_that_was_shown_as_vain_and_was_there_when_it_was_sent_again(
    judged: Callable[..., Judgement], state: str, *, wrong: int
) -> None:
    events, final = sound()
    again: dict[str, Any] = {"rid": "r", **NEXT}
    events[3:4] = [connected(NEXT), SendBegun(**again), SendOk(state=state, **again)]
    found = judged(events, final, "r\n")
    assert (found.doubts.did_not, found.doubts.unheard) == (1, 0)
    assert len([text for text in found.violations if text.startswith("G6 doubt")]) == wrong


def test_what_nobody_could_compare_is_counted_apart(judged: Callable[..., Judgement]) -> None:
    events, final = sound()
    again: dict[str, Any] = {"rid": "r", **NEXT}
    events[3:4] = [
        connected(NEXT),
        SendBegun(**again),
        SendFailed(unknown=True, **again),
        connected({**NEXT, "epoch": 3}, "r"),
    ]
    events[7:9] = []
    found = judged(events, final)
    assert (found.doubts.did_not, found.doubts.unheard, found.doubts.took_effect) == (0, 1, 1)


def test_a_fault_that_is_felt_for_too_long() -> None:
    second = 1_000_000_000
    marks = Marks()
    for what, target, at in (("kill server", "server-0", 1), ("kill spark java", "", 2)):
        marks.take(Fault(what=what, target=target, at=at * second))
    marks.take(Executed(rid="r", eid="e", actor="server server-0", at=100 * second))
    reply = Received(rid="r", eid="p", outcome="done", at=500 * second, **WHO)
    marks.take(reply)
    assert list(marks.late()) == []
    marks.take(Fault(what="kill server", target="server-0", at=101 * second))
    marks.take(Fault(what="kill client", target="clerk-0", at=600 * second))
    marks.take(Enqueued(rid="n", eid="n", at=1201 * second))
    texts = list(marks.late())
    assert [text.partition(":")[0] for text in texts] == [
        "G12 kill server server-0",
        "G12 kill client clerk-0",
    ]


def test_what_waits_for_two_minutes_while_others_do_not_is_found() -> None:
    """Before it is executed, or before it is executed again."""
    second = 1_000_000_000
    ran = {"sound": (0, 100, 210), "late": (0, 121), "again": (0, 10, 140), "other": (50, 80)}

    def found(*names: str, suspect: str = "") -> list[str]:
        waits = Waits()
        waits.take(Fault(what="fill disk", at=210 * second))
        for name in names:
            sent, *moments = ran[name]
            at = max(1, sent * second)
            waits.take(SendOk(rid=name, eid=name, at=at, actor="client clerk-0", **WHO))
            for moment in moments:
                waits.take(Executed(rid=name, eid=name, at=moment * second))
        return list(waits.late(frozenset({suspect})))

    assert found("sound", "late", "again") == []  # everything waits: nobody is overtaken
    assert found(*ran) == [
        "G12 late: waited 121 s, and others did not",
        "G12 again: waited 130 s, and others did not",
    ]
    assert found(*ran, suspect="late") == ["G12 again: waited 130 s, and others did not"]


def test_a_suspect_too_does_not_wait_for_more_than_a_minute_after_the_last_fault() -> None:
    second = 1_000_000_000
    waits = Waits()
    for name, executed_s in [("sound", 160), ("late", 171)]:
        waits.take(SendOk(rid=name, eid=name, at=second, actor="client clerk-0", **WHO))
        waits.take(Executed(rid=name, eid=name, at=executed_s * second))
    waits.take(Fault(what="fill disk", at=90 * second, until=110 * second))
    assert list(waits.late(frozenset({"late"}))) == ["G12 late: waited 61 s after the last fault"]


def test_the_aborts_that_the_database_knows_of_need_evidence(
    judged: Callable[..., Judgement], tmp_path: Path
) -> None:
    events, final = sound()
    abort = Abort(eid="e", charge="charge", code="ConnectionLost", pid=1)
    (tmp_path / ABORTS_NAME).write_bytes(msgspec.json.encode(abort) + b"\n")
    found = judged(events, final, "r\n")
    assert found.violations == [
        "G7 e: was charged for ConnectionLost, and its handler had not raised"
    ]
