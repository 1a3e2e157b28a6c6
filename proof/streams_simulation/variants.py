"""Mistakes in what ships, each of which the simulation must notice: put in by name, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from onceq.streams.model.choice import Insufficient, Log, Promised, choose
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.source import recovering
from onceq.streams.source.feeding import Feeding
from onceq.streams.store import catalogue
from proof.streams_model import loosely
from proof.streams_model.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A mistake. of, name: what it replaces. within: so many schedules, one of which notices."""

    of: Any
    name: str
    by: Any
    within: int
    text: str

    @contextlib.contextmanager
    def made(self) -> Generator[None]:
        """Make the mistake within a block."""
        before = self.of.__dict__[self.name]
        setattr(self.of, self.name, self.by)
        try:
            yield
        finally:
            setattr(self.of, self.name, before)


def _choice(rule: str) -> Callable[..., Log | Insufficient]:
    rules = replace(Rules(), **{rule: False})

    def chosen(own: StoreList, answers: Mapping[str, Promised]) -> Log | Insufficient:
        return loosely.chosen(rules, own, answers, choose(own, answers))

    return chosen


def _greatest_end(self: Feeding, _: tuple[StoreList, ...], known: int) -> int:
    return max([known, *(fed.end for fed in self.stores.values() if not fed.is_noting)])


def _all_readable(self: catalogue.Catalogue, ask: Any) -> range:
    held = self.of(ask.stream)
    return range(max(ask.begin, held.begin), min(ask.end, held.end))


VARIANTS: dict[str, Variant] = {
    "recover-sets": Variant(
        of=recovering, name="choose", by=_choice("recover_sets"), within=30,
        text="a recovery waits for a stable set instead of a recover set",
    ),
    "stable-set": Variant(
        of=Feeding, name="stable_below", by=_greatest_end, within=30,
        text="what one store has is stable",
    ),
    "admitted-late": Variant(
        of=Feeding, name="asked", by=lambda *_: iter(()), within=30,
        text="a store that comes back is not asked to be admitted",
    ),
    "rollback-told": Variant(
        of=Delivering, name="_cut_at", by=lambda *_: None, within=30,
        text="a receiver is not told what an epoch cut",
    ),
    "only-stable-read": Variant(
        of=catalogue.Catalogue, name="readable", by=_all_readable, within=30,
        text="a store shows all it has to a receiver of what is stable",
    ),
}  # fmt: skip
