"""Runs the table of cases: each pair in turn, and what is wanted of ours alone.

The other side is started for its pairs and then ended; ours runs through. A system that fell silent
was ended, and is started anew for the next pair, but not for ever.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bench.pairs import Runner, alternate, ratios
from bench.results import Result
from bench.systems import Named, Running, Systems, UnmeasuredError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bench.cases import Against, Case, Command
    from bench.pairs import Pace
    from bench.scene import Scene

OURS = "safe"
STARTS = 3
"""A system that was ended this often is not started again."""
UNTARGETED = 2
"""The most rounds of a pair without a target, unless its case says how many."""


def named(case: Case, against: Against) -> str:
    """Return the name of a pair: `case/other`."""
    return f"{case.name}/{against.named}".replace(" ", "-")


def expected(cases: Sequence[Case]) -> list[str]:
    """Return the names of all results of these cases, in the order of the table."""
    return [name for case in cases for name in (*_pairs(case), *_alone(case))]


def selected(cases: Sequence[Case], wanted: Collection[str]) -> list[Case]:
    """Return what is wanted: whole cases, or results of theirs, by name."""
    parts = [
        replace(
            case,
            against=tuple(one for one in case.against if named(case, one) in wanted),
            floor=case.floor if f"{case.name}/rate" in wanted else None,
            tail=case.tail if f"{case.name}/tail" in wanted else None,
        )
        for case in cases
    ]
    some = [case if case.name in wanted else part for case, part in zip(cases, parts, strict=True)]
    return [one for one in some if expected([one])]


def _pairs(case: Case) -> list[str]:
    return [named(case, against) for against in case.against]


def _alone(case: Case) -> list[str]:
    wanted = {"rate": case.floor, "tail": case.tail}
    return [f"{case.name}/{what}" for what, target in wanted.items() if target is not None]


def run(scene: Scene, cases: Sequence[Case]) -> None:
    """Measure them; each other system is started once, for all of its pairs."""
    told, pace = scene.told, scene.pace
    with scene.ground("pairs") as ground, contextlib.ExitStack() as stack:
        systems = Systems(ground, scene.logs)
        ours = stack.enter_context(contextlib.closing(_Kept(systems)))
        for other in _others(cases):
            with contextlib.closing(_Kept(systems)) as theirs:
                for case in cases:
                    for against in case.against:
                        if against.named == other:
                            told.started(named(case, against))
                            told.found(_pair(case, against, (ours, theirs), pace))
        for case in cases:
            if case.floor is not None or case.tail is not None:
                told.started(f"{case.name}, ours alone")
                for result in _by_itself(case, ours, pace):
                    told.found(result)


def _others(cases: Sequence[Case]) -> list[Named]:
    return list(dict.fromkeys(against.named for case in cases for against in case.against))


class _Kept:
    """Systems, started when first asked for, and kept until they are ended."""

    def __init__(self, systems: Systems) -> None:
        self._systems = systems
        self._running: dict[Named, Running | UnmeasuredError] = {}
        self._starts: Counter[Named] = Counter()

    def get(self, system: Named) -> Running:
        """Return that system, running; UnmeasuredError if it is not available, or not again."""
        found = self._running.get(system)
        if found is None or (isinstance(found, Running) and found.has_ended):
            found = self._running[system] = self._started(system)
        if isinstance(found, UnmeasuredError):
            raise found
        return found

    def _started(self, system: Named) -> Running | UnmeasuredError:
        if self._starts[system] == STARTS:
            return UnmeasuredError(f"it was ended {STARTS} times before", skipped=False)
        self._starts[system] += 1
        try:
            return self._systems.start(system)
        except UnmeasuredError as reason:
            return reason

    def close(self) -> None:
        """End them all."""
        for running in self._running.values():
            if isinstance(running, Running):
                running.close()


def _runner(case: Case, running: Running, ask: Command) -> Runner:
    ready = running.ready
    return Runner(
        name=f"{ready['system']} {ready['setting']}",
        run=partial(running.ask, command={**case.ask, **ask}),
        first=case.first,
        step=case.step,
        most=case.most,
        version=ready["version"],
        weaker=ready["weaker"],
        how=ready.get("how", ""),
    )


def _pair(case: Case, against: Against, kept: tuple[_Kept, _Kept], pace: Pace) -> Result:
    ours, theirs = kept
    command = {**case.ask, **against.ask}
    result = Result(name=named(case, against), question=case.question, target=against.target)
    if against.target is None and case.rounds is None:
        pace = replace(pace, rounds=min(pace.rounds, UNTARGETED))
    pace = pace.of(case.rounds)
    try:
        other = theirs.get(against.named)
        other.require_offer(command)
        sides = alternate(
            (_runner(case, ours.get(_ours(case)), {}), _runner(case, other, against.ask)), pace
        )
    except UnmeasuredError as reason:
        return unmeasured(result, reason)
    return replace(result, sides=sides, rounds=ratios(*sides))


def _ours(case: Case) -> Named:
    return Named(case.ours, OURS)


def _by_itself(case: Case, ours: _Kept, pace: Pace) -> list[Result]:
    rate = Result(name=f"{case.name}/rate", question=case.question, unit="/s", target=case.floor)
    tail = Result(
        name=f"{case.name}/tail",
        question=f"{case.question}: p99 by p50",
        target=case.tail,
        better="less",
    )
    wanted = [one for one in (rate, tail) if one.target is not None]
    try:
        runner = _runner(case, ours.get(_ours(case)), {})
        (side,) = alternate((runner,), pace.of(case.rounds))
    except UnmeasuredError as reason:
        return [unmeasured(one, reason) for one in wanted]
    values = {
        rate.name: tuple(one.per_s for one in side.slices),
        tail.name: tuple(
            one.p99_us / one.p50_us for one in side.slices if one.p50_us and one.p99_us
        ),
    }
    return [replace(one, sides=(side,), rounds=values[one.name]) for one in wanted]


def unmeasured(result: Result, reason: UnmeasuredError) -> Result:
    """Return the result without a value, and why."""
    if reason.skipped:
        return replace(result, skipped=str(reason))
    return replace(result, error=str(reason))
