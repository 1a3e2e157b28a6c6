"""More is lost than a list allows, and a person accepts that: by chance of its own.

So schedules without a disaster stay as they are.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from onceq.streams.model.losses import Acceptance
    from proof.streams_model.world import World

OFTEN = 0.02
STRUCK = 0.3
"""The share of schedules that have disasters."""
ACCEPTED = 0.7
"""The share of lives that begin with an acceptance, while more is lost than a list allows."""
WIPED = 0.5
"""The share of acceptances whose stores that do not answer are wiped; the others come back."""


class Disasters:
    """What befalls disks beyond what the lists of a world allow, and what a person does then.

    away: stores that were given up, and are not started until the loss is accepted.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.away: set[str] = set()
        self._world = world
        self._chance = random.Random(~seed)
        self._often = self._chance.random() * OFTEN * (self._chance.random() < STRUCK)

    @property
    def is_struck(self) -> bool:
        """Whether more is lost, and not filled again, than a list allows."""
        return not self._world.promises.may_lose("")

    def is_accepted(self) -> bool:
        """Whether a person begins a life that goes on without what is lost."""
        return self.is_struck and self._chance.random() < ACCEPTED

    def strike(self) -> None:
        """Perhaps let more disks of the list in use be wiped than it allows; stop all sources."""
        if self._chance.random() >= self._often:
            return
        world, own = self._world, self._world.lists[self._world.at]
        held = [disk for name, disk in world.disks.items() if name in own.stores and disk.admitted]
        is_settled = all(one.bridge is not None and one.bridge.lists == (own,) for one in held)
        is_settled = is_settled and world.promises.lists == (own,)
        if not is_settled or world.promises.lost or len(held) < 2:
            return
        self._chance.shuffle(held)
        for disk in held[: self._chance.randrange(1, len(held))]:
            self._wipe(disk.name)
        world.stop_sources()
        world.did["disks wiped beyond what a list allows"] += self.is_struck

    def _wipe(self, store: str) -> None:
        self._world.disks[store].wipe()
        self._world.promises.lost.add(store)

    def accepted(self, rest: Acceptance, silent: frozenset[str]) -> Acceptance | None:
        """Return what a person accepts, who knows all receivers; None: what was left is gone too.

        What does not answer is wiped, or kept away with what it has.
        """
        world = self._world
        if not any(disk.admitted for name, disk in world.disks.items() if name not in silent):
            return None
        if self._chance.random() < WIPED:
            for store in sorted(silent):
                self._wipe(store)
        else:
            self.away |= silent
            for store in silent:
                world.disks[store].up = False
        nexts = [reading[0].next for reading in world.readings.values() if reading is not None]
        below = max(rest.below, rest.end, len(world.promises.stable), *nexts, 0)
        return structs.replace(rest, below=below + self._chance.randrange(3))
