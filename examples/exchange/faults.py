"""What is done to the parts of a run: drawn from a seed, struck when the work has come to it.

Used by the runner, and by tests. Pure. A strike is due when a share of the bars is booked, and then
a moment has passed. What is not struck before the work ends is reported as such.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from typing import Final

from examples.exchange.market import FEEDS

STORES: Final = ("store-1", "store-2", "store-3")
POSTGRES: Final = "postgres"
TARGETS: Final = (*STORES, *FEEDS, "ledger", "relay", "mover", "tape", POSTGRES)
KILLS: Final = 2
KILLS_LEAST: Final = 20
"""With fewer a run that is struck shows too little: it has failed."""
FIRST_SHARE, LAST_SHARE = 0.03, 0.85
"""Between these shares of the bars booked all strikes fall: there is work left after the last."""


FEEDS_UNTIL: Final = 2 / 3
"""Feeds are struck among the first of the strikes: they have sent all long before it is booked."""


class Deed(enum.StrEnum):
    """What is done to a part."""

    KILL = "kill -9"
    WIPE = "kill -9, and its directory deleted"
    FREEZE = "frozen, with a successor beside it"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """What is to come. share: of the bars booked; delay_s: after that."""

    deed: Deed
    target: str
    share: float
    delay_s: float

    def __str__(self) -> str:
        return f"{self.target} at {self.share:.0%}: {self.deed}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What happened. at_s: since the run began; booked: bars by then.

    recovery_s: until the part was at work again; None when the run ended before.
    """

    deed: Deed
    target: str
    at_s: float
    booked: int
    recovery_s: float | None = None


def _bring_feeds_forward(planned: list[tuple[Deed, str]], chance: random.Random) -> None:
    """Swaps what feeds suffer late with what others suffer early."""
    early = int(len(planned) * FEEDS_UNTIL)
    for place in range(early, len(planned)):
        if planned[place][1] in FEEDS:
            others = [n for n in range(early) if planned[n][1] not in FEEDS]
            other = chance.choice(others)
            planned[place], planned[other] = planned[other], planned[place]


def draw_schedule(seed: int, kills: int = KILLS, delay_max_s: float = 0.5) -> list[Strike]:
    """Returns the strikes in order: each target killed so often, one store wiped, a feed frozen."""
    chance = random.Random(seed)  # noqa: S311 - not a secret: a seed names a schedule
    planned = [(Deed.KILL, target) for _ in range(kills) for target in TARGETS]
    if kills:
        planned += [(Deed.WIPE, chance.choice(STORES)), (Deed.FREEZE, chance.choice(FEEDS))]
    chance.shuffle(planned)
    _bring_feeds_forward(planned, chance)
    width = (LAST_SHARE - FIRST_SHARE) / max(1, len(planned))
    return [
        Strike(
            deed=deed,
            target=target,
            share=FIRST_SHARE + (place + chance.random()) * width,
            delay_s=chance.random() * delay_max_s,
        )
        for place, (deed, target) in enumerate(planned)
    ]
