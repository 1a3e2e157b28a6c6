"""Runs of schedules, and hunts for what a broken variant breaks. Used by the part and by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proof.streams_model.rules import VARIANT_BY_NAME
from proof.streams_model.world import World

if TYPE_CHECKING:
    from proof.streams_model.rules import Rules

REPLAY = "python -m proof.streams_model --seed"


@dataclass(slots=True)
class Tally:
    """The result of some schedules: what they did, and what was broken in them."""

    schedules: int = 0
    recoveries: int = 0
    stable: int = 0
    did: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])

    def add(self, other: Tally) -> None:
        """Add the results of others."""
        self.schedules += other.schedules
        self.recoveries += other.recoveries
        self.stable += other.stable
        self.did.update(other.did)
        self.broken += other.broken


def schedule(seed: int, rules: Rules | None = None) -> World:
    """Go through one schedule."""
    return World(seed, rules).run()


def run_seeds(seeds: tuple[int, int]) -> Tally:
    """Run the schedules of seeds from the first up to the last, excluded, by all rules."""
    tally = Tally()
    for seed in range(*seeds):
        world = schedule(seed)
        tally.schedules += 1
        tally.recoveries += world.promises.completed
        tally.stable += len(world.promises.stable)
        tally.did.update(world.did)
        tally.broken += [
            f"{promise}: {text} ({REPLAY} {seed})"
            for promise, text in world.promises.broken.items()
        ]
    return tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """What a hunt found. schedules: how many it took; broken: the promise and how, or nothing."""

    variant: str
    schedules: int
    promise: str = ""
    text: str = ""


def hunt(name: str, first: int = 0) -> Caught:
    """Run schedules of a variant until one breaks a promise, or as many as it is given."""
    variant = VARIANT_BY_NAME[name]
    rules = variant.rules
    for count in range(1, variant.within + 1):
        broken = schedule(first + count - 1, rules).promises.broken
        if broken:
            promise, text = next(iter(broken.items()))
            return Caught(variant=name, schedules=count, promise=promise, text=text)
    return Caught(variant=name, schedules=variant.within)


def hunt_from(asked: tuple[str, int]) -> Caught:
    """Hunt a variant from some schedule on."""
    return hunt(*asked)
