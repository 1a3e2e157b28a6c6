"""The answers to kills, redrives and enqueues, compared with the final state (G3, G4, G8).

Private to the checker. Called once, after the clients have told when they were acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onceq.history import words
from onceq.history.elements import AnsweredKill, Others
from onceq.history.table import NEVER, Element, Table
from onceq.history.violation import Violation

if TYPE_CHECKING:
    from onceq.history import events as ev


def tell_kills(others: Others) -> None:
    """Tells elements when it was first known that they are cancelled."""
    for kill in others.kills:
        element = others.table.named(kill.eid, kill.rid)
        if element is not None and kill.answer == words.KILLED:
            known = element.told_at < 0 or kill.at < element.told_at
            element.told_at = kill.at if known else element.told_at


def judge_kills(others: Others) -> Iterator[Violation]:
    """Yields kills whose answer is not what happened (G8)."""
    for kill in others.kills:
        text = _wrong_answer(kill, others.table.named(kill.eid, kill.rid))
        if text:
            yield Violation("G8", kill.rid, text)


def _wrong_answer(kill: AnsweredKill, element: Element | None) -> str | None:
    outcome = None if element is None else element.outcome
    if kill.answer == words.NOT_FOUND:
        is_known = element is not None and NEVER < element.acked_at < kill.begun_at
        return "a kill did not find what had been acknowledged" if is_known else None
    is_cancelled = outcome == words.CANCELLED
    if (kill.answer == words.KILLED) is is_cancelled and outcome is not None:
        return None
    return f"the kill answered {kill.answer}, history says {outcome}"


def judge_cancelled(table: Table) -> Iterator[Violation]:
    """Yields elements that are cancelled although no kill of them can have taken effect (G8)."""
    for element in table.elements.values():
        if element.outcome == words.CANCELLED and element.kills <= 0:
            yield Violation("G8", element.rid, "is cancelled, and no kill of it took effect")


def judge_redrives(others: Others) -> Iterator[Violation]:
    """Yields redrives that ran the failed element itself, or twice, or without a link (G3)."""
    seen: set[str] = set()
    for redrive in others.redrives:
        old = others.table.elements.get(redrive.eid)
        new = others.table.elements.get(redrive.new_eid or "")
        for text in _wrong_redrive(redrive, old, new):
            yield Violation("G3", redrive.rid, text)
        if redrive.eid in seen and old is not None and old.role == words.REQUEST:
            yield Violation("G3", redrive.rid, "was redriven twice")
        seen.add(redrive.eid)


def _wrong_redrive(redrive: ev.Redriven, old: Element | None, new: Element | None) -> Iterator[str]:
    if old is None or not old.role:
        yield "was redriven, and is nowhere"
        return
    in_place = redrive.new_eid == redrive.eid
    if old.role == words.REQUEST:
        if in_place or redrive.new_rid == redrive.rid:
            yield "a request was redriven as itself"
        if old.outcome != words.FAILED:
            yield f"was redriven, and is {old.outcome}"
    elif not in_place:
        yield f"what owes no reply was redriven as another, {redrive.new_eid}"
    if new is None or not new.role:
        yield f"was redriven as {redrive.new_rid}, which is nowhere"
    elif new is not old and new.correlation_id != old.eid:
        yield f"was redriven as {redrive.new_rid}, which has no link to it"


def judge_enqueued(others: Others, *, all_recorded: bool) -> Iterator[Violation]:
    """Yields datagrams that were lost, and those that nobody enqueued (G4)."""
    table = others.table
    for enqueued in others.enqueued:
        element = table.elements.get(enqueued.eid)
        if element is None or not element.role:
            yield Violation("G4", enqueued.rid, "acknowledged and lost")
    if not all_recorded:
        return
    known = {redrive.new_eid for redrive in others.redrives}
    known.update(enqueued.eid for enqueued in others.enqueued)
    for element in table.elements.values():
        if (
            element.role == words.DATAGRAM
            and element.rid not in others.enqueue_begun
            and element.eid not in known
        ):
            yield Violation("G4", element.rid, "is there and was never enqueued")
