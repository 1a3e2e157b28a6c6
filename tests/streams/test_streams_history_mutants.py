"""The checker of streams, broken on purpose in one place at a time, misses a planted history.

The modules are made anew from their texts, one of them changed, in this process: the tables of
`proof.mutants` are of the queues, and each of theirs takes a process.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.streams.test_streams_history import GOOD, PLANTED, planted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.streams.history import kinds

PACKAGE = "onceq.streams.history"
ORDER = ("spans", "rules", "facts", "log", "stores", "sources", "receivers", "checker")
"""The modules that judge; each imports only from those before it."""


class Mutant(NamedTuple):
    """Text that occurs once in a module, and what stands there instead; which history is missed."""

    module: str
    old: str
    new: str
    missed: str


MUTANTS: dict[str, Mutant] = {
    "ignores two lives of one epoch": Mutant(
        "log",
        "if known is not life:",
        "if known is None:",
        "an epoch of two lives",
    ),
    "ignores other contents": Mutant(
        "stores",
        'if content and its and content != its:\n            yield "one-content"',
        'if content and its and content == "":\n            yield "one-content"',
        "kept otherwise",
    ),
    "ignores phantoms": Mutant(
        "stores",
        'yield "no-phantom", f"{span(low, high)} of life {life.life}, which did not send them"',
        "yield from ()",
        "kept and never sent",
    ),
    "ignores what is stable and was not sent": Mutant(
        "sources",
        'yield "stable-sent", f"was told that {span(low, high)} are stable; it sent others"',
        "yield from ()",
        "stable and never sent",
    ),
    "ignores what is stable and cut": Mutant(
        "sources",
        "if cut is not None and cut < life.stable.end:",
        "if cut is not None and cut < life.stable.end - 1:",
        "stable and cut",
    ),
    "ignores stable numbers of two lives": Mutant(
        "sources",
        'yield "stable-unchanged", f"{span(low, high)} are stable, and were of life {other}"',
        "yield from ()",
        "stable of two lives",
    ),
    "asks for a copy less": Mutant(
        "stores",
        "if having - len(names) < copies:",
        "if having - len(names) < copies - 1:",
        "kept as void",
    ),
    "ignores what was given up though stable": Mutant(
        "sources",
        'yield "not-given-up", f"gave {span(low, high)} up, which it was told to be stable"',
        "yield from ()",
        "gave up what is stable",
    ),
    "ignores who is shown what is cut": Mutant(
        "receivers",
        "elif later is not None and last >= later:",
        "elif later is not None and last < 0:",
        "who wants what is stable sees what is cut",
    ),
    "ignores zombies": Mutant(
        "receivers",
        "if cut is not None and last >= cut:",
        "if cut is not None and last < 0:",
        "shown after the fence",
    ),
    "ignores what is shown twice": Mutant(
        "receivers",
        "if any(self._view.over(first, max(self._view.end, first))):",
        "if any(self._view.over(first + 1, max(self._view.end, first))):",
        "shown twice",
    ),
    "ignores gaps": Mutant(
        "receivers",
        "if expected is not None and first > expected:",
        "if expected is not None and first > expected + 1:",
        "a gap",
    ),
    "ignores what was in vain and is stable": Mutant(
        "receivers",
        'self.broken("rolled-back", f"{span(one, other)} were in vain, and are stable")',
        "pass",
        "in vain and stable",
    ),
    "believes every loss": Mutant(
        "receivers",
        'wrong = "they are stable" if is_stable else ""',
        'wrong = ""',
        "lost and stable",
    ),
    "ignores marks": Mutant(
        "receivers",
        "if epoch == event.epoch:",
        "if epoch < 0:",
        "shown again without a mark",
    ),
    "ignores positions that sink": Mutant(
        "receivers",
        "if below < before and store not in self.forgot:",
        "if below < 0 and store not in self.forgot:",
        "a store's position sinks",
    ),
    "ignores positions of what was not shown": Mutant(
        "receivers",
        "if below > most:",
        "if below > most + 9:",
        "a position of what was not shown",
    ),
    "ignores positions of what is not stable": Mutant(
        "receivers",
        "if cut is not None and cut < below:",
        "if cut is not None and cut < below - 1:",
        "a position of what is cut",
    ),
    "ignores false confirmations": Mutant(
        "sources",
        "any(spans.gaps(told.first, told.last))",
        "any(spans.gaps(told.first, told.first))",
        "confirmed and not shown",
    ),
    "ignores holes": Mutant(
        "stores",
        'yield "whole-log", f"its log has no {span(low, high)}"',
        "yield from ()",
        "a hole",
    ),
    "ignores forgotten promises": Mutant(
        "stores",
        "if now < was:",
        "if now < 0:",
        "a promise is forgotten",
    ),
    "ignores what is never shown": Mutant(
        "receivers",
        'yield f"was not shown {span(one, other)}"',
        "yield from ()",
        "not all is shown",
    ),
}


def made_anew(changed: Mutant, patch: pytest.MonkeyPatch) -> ModuleType:
    """The module that judges, with a change in one of those that it is made of."""
    made = ModuleType("")
    for name in ORDER:
        full = f"{PACKAGE}.{name}"
        path = Path(str(importlib.import_module(full).__file__))
        text = path.read_text("utf-8")
        if name == changed.module:
            assert text.count(changed.old) == 1, "fit the mutant to the code as it is now"
            text = text.replace(changed.old, changed.new)
        made = ModuleType(full)
        patch.setitem(sys.modules, full, made)
        exec(compile(text, str(path), "exec"), made.__dict__)
    return made


def rules_broken(checker: Any, events: Sequence[kinds.StreamEvent]) -> set[str]:
    return {one.rule for one in checker.check(events).violations}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_checker_misses_what_it_ignores(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = MUTANTS[name]
    rule, changes = PLANTED[mutant.missed]
    whole = importlib.import_module(f"{PACKAGE}.checker")
    assert rule in rules_broken(whole, planted(changes))
    broken = made_anew(mutant, monkeypatch)
    assert rule not in rules_broken(broken, planted(changes))


def test_made_anew_without_a_change_it_finds_all(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = made_anew(Mutant("", "", "", ""), monkeypatch)
    assert rules_broken(checker, GOOD) == set()
    for rule, changes in PLANTED.values():
        assert rule in rules_broken(checker, planted(changes))


def test_almost_each_rule_has_a_checker_without_it() -> None:
    """Rules that are broken in more than one way have one for one of them."""
    assert len({PLANTED[one.missed][0] for one in MUTANTS.values()}) >= 20
