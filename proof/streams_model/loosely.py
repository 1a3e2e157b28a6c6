"""Choices that lack a rule: what the broken variants put in the place of the product's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.streams.model.choice import Insufficient, Log, Promised, holders, newest
from onceq.streams.model.log import merged
from onceq.streams.model.quorum import are_stable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.streams.model.quorum import StoreList
    from proof.streams_model.rules import Rules

CHOOSING = (
    "by_admission",
    "every_list_recovered",
    "holders_only",
    "creation_promised_by_all",
    "recover_sets",
)
"""The rules that a choice is made by."""


NOTHING = Insufficient(forgot=frozenset(), silent=frozenset())
"""That a variant finds too little where the product does not."""


def chosen(
    rules: Rules, own: StoreList, answers: Mapping[str, Promised], log: Log | Insufficient
) -> Log | Insufficient:
    """Return a choice without the rule that is left out, or `log`, which was made by all."""
    by_person = isinstance(log, Log) and log.accepted is not None
    if by_person or all(getattr(rules, name) for name in CHOOSING):
        return log
    record = newest(answers.values())
    if record is None:
        if rules.creation_promised_by_all or not own.is_stable(answers.keys()):
            return log
        return Log(admitted=0, end=0, lists=(own,), firsts=(), positions={})
    holding = holders(answers)
    lists = record.governs if rules.every_list_recovered else record.lists[-1:]
    counted = set(holding) if rules.holders_only else set(answers)
    enough = are_stable(lists, answers.keys()) and all(
        one.recovers(counted) if rules.recover_sets else one.is_stable(counted) for one in lists
    )
    whole = [one for one in holding.values() if one.whole and one.bridge is not None]
    best = max(whole, key=lambda one: _rank(one, rules), default=None)
    if best is None or best.bridge is None or not enough:
        return log if isinstance(log, Insufficient) else NOTHING
    return Log(
        admitted=best.admitted,
        end=best.end,
        lists=lists,
        firsts=best.bridge.firsts,
        positions=merged(one.positions for one in holding.values()),
    )


def _rank(one: Promised, rules: Rules) -> tuple[int, int]:
    """Return what decides between two logs."""
    if rules.by_admission or one.bridge is None:
        return one.admitted, one.end
    last = max((epoch for epoch, first in one.bridge.firsts if first < one.end), default=0)
    return last, one.end
