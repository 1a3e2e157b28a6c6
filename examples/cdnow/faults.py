"""The kills of a run: drawn from a seed, struck when the work has come to them.

Used by the runner, and by tests. `draw_schedule` is pure. A strike is due when a share of the
orders is booked and then a moment has passed, so that it hits any instant of a micro-batch; it is
struck only while its target is at work, one strike after the other: the next waits until the one
before it was recovered from. What is not struck before the work ends, or its time for strikes,
is reported as such.
"""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DRIVER, CLIENT, POSTMASTER = "Spark driver", "client", "postmaster"
KINDS = (DRIVER, CLIENT, POSTMASTER)
FIRST_SHARE, LAST_SHARE = 0.04, 0.80
"""Between these shares of the orders booked all strikes fall: there is work left after the last."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A kill -9 to come. share: of the orders booked; delay_s: after that; choice: 0 to 1."""

    kind: str
    share: float
    delay_s: float
    choice: float

    def __str__(self) -> str:
        return f"{self.kind} at {self.share:.0%} + {self.delay_s:.2f} s"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A kill -9 that happened. at_s: since the run began; booked: orders by then.

    recovery_s: until its work went on, see `recovery`; None when the run ended before.
    """

    kind: str
    target: str
    at_s: float
    booked: int
    recovery_s: float | None = None


def draw_schedule(seed: int, kills: Mapping[str, int], delay_max_s: float) -> list[Strike]:
    """Returns the strikes in order of time: as many of each kind as `kills` says.

    One of each kind comes before the second of any, for a slow machine that has no time for all.
    """
    chance = random.Random(seed)  # noqa: S311 - not a secret: a seed names a schedule
    kinds: list[str] = []
    for turn in range(max(kills.values(), default=0)):
        left = [kind for kind in KINDS if kills.get(kind, 0) > turn]
        kinds += chance.sample(left, len(left))
    width = (LAST_SHARE - FIRST_SHARE) / max(1, len(kinds))
    return [
        Strike(
            kind=kind,
            share=FIRST_SHARE + (place + chance.random()) * width,
            delay_s=chance.random() * delay_max_s,
            choice=chance.random(),
        )
        for place, kind in enumerate(kinds)
    ]
