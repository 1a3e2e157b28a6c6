"""Runs schedules, and hunts for what a mistake breaks. For the part, for tests and by hand."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proof.streams_simulation.variants import VARIANTS
from proof.streams_simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REPLAY = "python -m proof.streams_simulation --runs 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Some schedules. on_disks: stores have disks. home: an empty directory for them."""

    seeds: range
    on_disks: bool
    home: Path

    def worlds(self) -> Iterator[tuple[int, World]]:
        """Go through one schedule after the other; yield its seed, and what became of it."""
        with tempfile.TemporaryDirectory(dir=self.home) as home:
            for seed in self.seeds:
                yield seed, World(seed, Path(home) if self.on_disks else None).run()

    def again(self, seed: int) -> str:
        """Return how to repeat one."""
        return f"{REPLAY} --first {seed}" + " --disks" * self.on_disks


@dataclass(slots=True)
class Tally:
    """The result of some schedules: what they did, and what was broken in them."""

    schedules: int = 0
    stable: int = 0
    did: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])

    def add(self, other: Tally) -> None:
        """Add the results of others."""
        self.schedules += other.schedules
        self.stable += other.stable
        self.did.update(other.did)
        self.broken += other.broken


def tally(run: Run) -> Tally:
    """Run schedules of what ships."""
    made = Tally()
    for seed, world in run.worlds():
        made.schedules += 1
        made.stable += len(world.promises.stable)
        made.did.update(world.did)
        made.broken += [
            f"{promise}: {text} ({run.again(seed)})"
            for promise, text in world.promises.broken.items()
        ]
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """What a hunt found. schedules: how many it took; broken: the promises and how, or nothing."""

    variant: str
    schedules: int
    broken: dict[str, str] = field(default_factory=dict[str, str])


def hunt(name: str, seeds: range, home: Path) -> Caught:
    """Run schedules with a mistake until one breaks a promise."""
    variant = VARIANTS[name]
    run = Run(seeds=seeds, on_disks=variant.on_disks, home=home)
    with variant.made():
        for count, (_, world) in enumerate(run.worlds(), 1):
            if world.promises.broken:
                return Caught(variant=name, schedules=count, broken=world.promises.broken)
    return Caught(variant=name, schedules=len(seeds))


def hunt_for(asked: tuple[str, range, Path]) -> Caught:
    """Hunt a mistake."""
    return hunt(*asked)


def seeds_that_notice(name: str, seeds: Iterable[int], home: Path) -> Iterator[int]:
    """Yield the seeds of the schedules that notice a mistake."""
    for seed in seeds:
        if hunt(name, range(seed, seed + 1), home).broken:
            yield seed
