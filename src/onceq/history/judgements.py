"""The judgement of each element, with all that is known of it (G2, G3, G4, G6, G7, G8, G12).

Private to the checker. Called once for each element, after all events have been taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onceq.history import words
from onceq.history.blame import Facts
from onceq.history.elements import Others
from onceq.history.events import FinalState
from onceq.history.table import NEVER, Element, Table
from onceq.history.violation import Violation

UNHEARD_MAX = 2
"""How often one element may be charged for a server that died before it said what it executes."""

FOREVER = 2**63 - 1

Wrong = tuple[str, str]
"""A guarantee, and how it was broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The facts by which all elements are judged. runs: see Others.

    redriven: the eids with a recorded redrive; linked: these, and those that a datagram names.
    """

    final: FinalState
    facts: Facts
    runs: dict[str, set[str]]
    redriven: frozenset[str]
    linked: frozenset[str]

    def faults_of(self, element: Element, end: int) -> int:
        """Returns how many faults may have touched an element from its first execution to `end`."""
        if not element.executed:
            return self.facts.faults.touching((), 0, end)
        actors = self.runs.get(element.eid, {element.ran_by})
        slack = self.final.slack
        return self.facts.faults.touching(actors, element.ran_first - slack, end)


def judge_all(table: Table, others: Others, final: FinalState, facts: Facts) -> Iterator[Violation]:
    """Yields what is wrong with elements. Most are done, once, uncharged, and need no questions."""
    around = _circumstances(table, others, final, facts)
    effects = final.effects_expected if final.effects_each is None else final.effects_each
    for element in table.elements.values():
        if (
            element.outcome == words.DONE
            and element.ends == 1
            and element.effects == effects
            and element.executed == facts.executions
            and not (element.lives or element.held or element.aborts or element.void)
            and not (element.raised or element.retried)
            and element.attempt <= 1
        ):
            continue
        for guarantee, text in _judge(element, around):
            yield Violation(guarantee, element.rid, text)


def _circumstances(table: Table, others: Others, final: FinalState, facts: Facts) -> Circumstances:
    redriven = frozenset(one.eid for one in others.redrives)
    return Circumstances(
        final=final,
        facts=facts,
        runs=others.runs,
        redriven=redriven,
        linked=redriven.union(
            one.correlation_id
            for one in table.elements.values()
            if one.role == words.DATAGRAM and one.correlation_id is not None
        ),
    )


def _judge(element: Element, around: Circumstances) -> Iterator[Wrong]:
    if element.is_volatile:
        return
    if not element.role:
        yield from _nowhere(element)
        return
    yield from _placed(element, around)
    yield from _effects(element, around.final)
    if around.final.aborts_recorded and element.raised != element.charges:
        counted = f"{element.charges} are counted"
        yield "G7", f"{element.raised} charged aborts are recorded, and {counted}"
    if element.executed or element.started or element.aborts or element.retried:
        yield from _charges(element, around)
        yield from _retries(element, around)
        yield from _executions(element, around)
    elif element.outcome == words.DONE and _is_told(element, around):
        yield "G2", "is done, and was never executed"


def _is_told(element: Element, around: Circumstances) -> bool:
    """Whether an execution of it would have been recorded."""
    name = "" if element.who is None else element.who[0]
    final = around.final
    return final.all_recorded and around.facts.executions and name not in final.unrecorded


def _nowhere(element: Element) -> Iterator[Wrong]:
    if element.effects:
        yield "G2", "its effect is there and it has not finished"
    if element.held or element.unheld:
        yield "G4", "is in an error queue, and is nowhere in history"
    elif element.executed or element.started:
        yield "G4", "was executed, and is nowhere"


# --- places (G4, G12) -------------------------------------------------------------------------


def _placed(element: Element, around: Circumstances) -> Iterator[Wrong]:
    request = element.role == words.REQUEST
    if element.lives > 1 or (request and element.ends > 1):
        yield "G4", f"in several places: {element.places()}"
    elif request and element.ends and element.lives:
        yield "G4", f"finished and still there: {element.places()}"
    if around.final.finished and element.lives:
        yield "G12", f"never finished: {element.places()}"
    if element.outcome == words.FAILED:
        yield from _failed(element, around)
    elif element.held:
        yield "G4", f"is in an error queue, and is {element.outcome or element.state}"


def _failed(element: Element, around: Circumstances) -> Iterator[Wrong]:
    redriven = element.eid in around.linked or element.lives or element.ends > 1
    if element.held + element.unheld > 1:
        yield "G4", "is in several error queues"
    elif element.held and element.eid in around.redriven and element.role == words.REQUEST:
        yield "G4", "was redriven, and is still in its error queue"
    elif not (element.held or element.unheld or redriven):
        yield "G4", "has failed, and is not in its error queue"


# --- effects (G2, G6, G8) ---------------------------------------------------------------------


def _effects(element: Element, final: FinalState) -> Iterator[Wrong]:
    outcome = element.outcome
    if not element.effects:
        if outcome == words.DONE and final.effects_expected:
            yield "G2", "is done and its effect is not there"
        return
    if element.void:
        yield "G6", "an effect of what connect had shown as not submitted"
    if outcome is None:
        yield "G2", "its effect is there and it has not finished"
    elif outcome == words.CANCELLED:
        yield "G8", "was killed, and its effect is there"
    elif outcome not in words.PROCESSED:
        yield "G2", f"is {outcome}, and its effect is there"
    elif final.effects_each not in {None, element.effects}:
        yield "G2", f"{element.effects} effects are there, not {final.effects_each}"


# --- executions and charges (G3, G7) ----------------------------------------------------------


def _charges(element: Element, around: Circumstances) -> Iterator[Wrong]:
    limit, aborts = around.final.abort_limit, element.aborts
    if limit is not None:
        if element.failed_after not in {NEVER, limit}:
            yield "G7", f"failed after {element.failed_after} aborts, the limit is {limit}"
        if aborts > limit or element.attempt > limit:
            most = max(aborts, element.attempt)
            yield "G7", f"was at attempt {most}, the limit is {limit}"
    if element.attempt > aborts + 1:
        yield "G7", f"was at attempt {element.attempt}, and {aborts} aborts are counted"
    yield from _evidence(element, around)


def _evidence(element: Element, around: Circumstances) -> Iterator[Wrong]:
    """A charge needs an execution that was not excused, unless its process then died."""
    aborts, until = element.aborts, FOREVER
    if element.told_at != NEVER:
        until = element.told_at + around.final.slack
    faults = around.faults_of(element, until)
    excused = max(0, element.excused - faults)
    if aborts and around.facts.starts:
        if element.started - excused - (element.outcome == words.DONE) < aborts:
            text = f"charged {aborts} times, started {element.started} times"
            yield "G7", f"{text}, of which {element.excused} were excused"
    elif around.facts.executions and aborts:
        unheard = around.facts.faults.unheard(UNHEARD_MAX)
        if element.executed - excused - (element.outcome == words.DONE) + unheard < aborts:
            text = f"charged {aborts} times, executed {element.executed} times"
            yield "G7", f"{text}, of which {element.excused} were excused"
    if element.raised > element.charges + faults and element.outcome != words.CANCELLED:
        yield "G7", f"{element.raised} executions failed, and {aborts} aborts are counted"


def _retries(element: Element, around: Circumstances) -> Iterator[Wrong]:
    """Free retries are limited: as many as the limit says, and the one that makes a suspect."""
    free = _free(element, around.final)
    if element.retried > free and element.retried > free + around.faults_of(element, FOREVER):
        limit = f"the retry limit is {around.final.retry_limit}"
        yield "G7", f"was tried again {element.retried} times and not charged, {limit}"


def _free(element: Element, final: FinalState) -> int:
    """Returns how many executions may go uncharged: for each run, the limit and one more."""
    return max(1, element.ends + element.lives) * (final.retry_limit + 1)


def _executions(element: Element, around: Circumstances) -> Iterator[Wrong]:
    told, outcome = element.told_at, element.outcome
    if told != NEVER and outcome in words.FAILED_OR_EXPIRED and told < element.ran_at:
        yield "G3", "was executed after its failure had been told"
    elif told != NEVER and outcome == words.CANCELLED and told < element.ran_before:
        yield "G3", "was executed twice after it was known to be cancelled"
    free = _free(element, around.final)
    excused = element.charges + 1 + element.excused + free
    if element.executed > excused:
        faults = around.faults_of(element, element.ran_at)
        if element.executed > excused + faults:
            text = f"executed {element.executed} times, charged {element.aborts} times"
            yield "G7", f"{text}, and {faults} faults could touch it"
