"""The search: every state that can be reached, breadth first; then whether every run ends.

Known states are kept as 64-bit fingerprints (SipHash, keyed anew in each process): two of n states
share one with a probability of at most n * n / 2**65. A state that shares one is not looked at, so
that a run may overlook something, and never accuses wrongly.

Liveness (G12): with the faults off, what is left is the graph of the steps that come by themselves.
Each state is to end well: every run from it comes to a good end. So a state without such a step
must be a good end, and no run may go in a circle. A state that was not expanded, because the limit
was reached, is taken to end well.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from proof.model.clients import clients
from proof.model.database import crashes
from proof.model.elements import wishes
from proof.model.executions import ideal_server, sessions
from proof.model.layout import PROGRESS, Moves, Rules, Setting, State, World
from proof.model.promises import broken_in, is_good_end
from proof.model.servers import server_faults
from proof.model.spark import spark

if TYPE_CHECKING:
    from collections.abc import Callable


Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""One truth for each state, by its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a search. is_all: every state that can be reached was expanded.

    broken: the guarantee that was broken first, if any; trace: a shortest way there, in words.
    end: where it leads to. steps, depth, seconds: of the search.
    """

    setting: str
    states: int
    steps: int
    depth: int
    seconds: float
    is_all: bool
    broken: str | None = None
    trace: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


class Search:
    """One search of a setting under rules."""

    def __init__(self, setting: Setting, rules: Rules) -> None:
        self.w = World(setting, rules)
        self._rules = self._pick()
        self._known: dict[int, int] = {}
        self._parents = array("I")
        self._targets = array("I")
        self._ends = array("Q")
        self._steps = 0
        self._depth = 0
        self._since = time.perf_counter()

    def _pick(self) -> list[Callable[[World, State, Moves], None]]:
        """Return the rules that the setting needs."""
        setting = self.w.setting
        wanted: tuple[tuple[object, Callable[[World, State, Moves], None]], ...] = (
            (setting.clients, clients),
            (setting.entries, sessions),
            (not setting.entries and not setting.spark, ideal_server),
            (setting.spark, spark),
            (setting.wishes, wishes),
            (setting.entries and setting.faults, server_faults),
            ("database" in setting.may, crashes),
        )
        return [rule for is_wanted, rule in wanted if is_wanted]

    def moves(self, s: State) -> Moves:
        """Return every step from a state."""
        out: Moves = []
        for rule in self._rules:
            rule(self.w, s, out)
        return out

    def run(self, limit: int) -> Found:
        """Search until all is found, something is broken, or there are `limit` states."""
        start = self.w.start()
        self._known[hash(start)] = 0
        self._parents.append(0)
        frontier, first = [start], 0
        while frontier and len(self._known) < limit:
            following: list[State] = []
            for place, s in enumerate(frontier):
                verdict = self._expand(s, first + place, following)
                if verdict is not None:
                    return self._broken(*verdict)
                if len(self._known) >= limit:
                    break
            first += len(frontier)
            frontier = following
            self._depth += 1
        return self._live(is_all=not frontier)

    def _expand(self, s: State, number: int, following: list[State]) -> tuple[str, int] | None:
        """Add the states after s; return a guarantee that is broken, and in which state."""
        known, w, targets = self._known, self.w, self._targets
        may_rest = True
        out = self.moves(s)
        for kind, _, draft in out:
            n = bytes(draft)
            key = hash(n)
            index = known.get(key)
            if index is None:
                index = known[key] = len(known)
                self._parents.append(number)
                following.append(n)
                guarantee = broken_in(w, n)
                if guarantee is not None:
                    return guarantee, index
            if kind == PROGRESS:
                may_rest = False
                targets.append(index)
        self._steps += len(out)
        self._ends.append(len(targets))
        if may_rest and not is_good_end(w, s):
            return "G12", number
        return None

    # --- liveness ---------------------------------------------------------------------------------

    def _live(self, *, is_all: bool) -> Found:
        """Peel off what ends well, from the ends backwards; what is left goes in circles."""
        ends = np.frombuffer(self._ends, dtype=np.uint64).astype(np.int64)
        targets = np.frombuffer(self._targets, dtype=np.uint32)
        sources = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        restless = np.zeros(len(self._known), dtype=bool)
        restless[sources] = True
        while len(sources):
            open_still = restless[targets]
            targets, sources = targets[open_still], sources[open_still]
            left = np.zeros_like(restless)
            left[sources] = True
            if (left == restless).all():
                break
            restless = left
        circling = np.flatnonzero(restless)
        if not len(circling):
            return self._found(None, is_all=is_all)
        first = int(circling[0])
        found = self._broken("G12", first)
        return replace(found, trace=self._circle(first, restless), is_all=is_all)

    def _circle(self, number: int, restless: Flags) -> tuple[str, ...]:
        """Return the way to a state from which a run goes in a circle, and the circle."""
        lines = list(self._trace(number))
        s = self._states_to(number)[-1]
        met = {hash(s): len(lines)}
        while True:
            s, text = self._restless_step(s, restless)
            lines.append(text)
            if hash(s) in met:
                lines.append(f"and so on, from after step {met[hash(s)]}, for ever")
                return tuple(lines)
            met[hash(s)] = len(lines)

    def _restless_step(self, s: State, restless: Flags) -> tuple[State, str]:
        for kind, label, draft in self.moves(s):
            index = self._known.get(hash(bytes(draft)))
            if kind == PROGRESS and index is not None and restless[index]:
                return bytes(draft), self.w.say(s, label)
        raise AssertionError("a state that goes in circles has a step that does")

    # --- traces ----------------------------------------------------------------------------------

    def _states_to(self, number: int) -> list[State]:
        """Return the states on the shortest way to a state, run again from the start."""
        way = [number]
        while way[-1]:
            way.append(self._parents[way[-1]])
        states = [self.w.start()]
        for index in reversed(way[:-1]):
            states.append(self._step_to(states[-1], index)[0])
        return states

    def _step_to(self, s: State, index: int) -> tuple[State, str]:
        for _, label, draft in self.moves(s):
            n = bytes(draft)
            if self._known.get(hash(n)) == index:
                return n, self.w.say(s, label)
        raise AssertionError("the parent of a state has a step to it")

    def _trace(self, number: int) -> tuple[str, ...]:
        """Return the steps to a state, in words."""
        states = self._states_to(number)
        return tuple(self._step_to(s, self._known[hash(n)])[1] for s, n in pairwise(states))

    def _broken(self, guarantee: str, number: int) -> Found:
        end = self.w.describe(self._states_to(number)[-1])
        return replace(self._found(guarantee, is_all=False), trace=self._trace(number), end=end)

    def _found(self, broken: str | None, *, is_all: bool) -> Found:
        return Found(
            setting=self.w.setting.name,
            states=len(self._known),
            steps=self._steps,
            depth=self._depth,
            seconds=time.perf_counter() - self._since,
            is_all=is_all,
            broken=broken,
        )


def search(setting: Setting, rules: Rules | None = None, limit: int = 2**31) -> Found:
    """Search a setting, by all rules when none are given, up to a number of states."""
    return Search(setting, rules or Rules()).run(limit)
