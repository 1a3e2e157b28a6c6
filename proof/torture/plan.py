"""What is to happen in a run: who takes part, and which fault hits when.

Pure. The schedule is a function of seed and time alone: the same seed gives the same faults at the
same moments, on any machine; a longer run goes on where a shorter one ends. What a fault meets
when it hits is up to the machine.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceq.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTROLS: Final = ("fence", "clerk", "charge", "claim")
"""What can be broken on purpose: the fence of a finish, the clerk's recovery, who is charged for a
connection that broke, and when what was claimed comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault. per_minute: how often; longest_s: how long it lasts at most, where it does.

    target: whom it hits, as the report groups the recoveries. is_calm: it leaves the last CALM_S of
    each cycle alone.
    """

    name: str
    per_minute: float
    target: str
    shortest_s: float = 0.0
    longest_s: float = 0.0
    text: str = ""
    is_calm: bool = False


MINUTE_S: Final = 60.0
CYCLE_S: Final = 120.0
CALM_S: Final = 40.0
"""Of each cycle, its end, in which PostgreSQL and Spark are not killed, so that Spark, which takes
half a minute under this load, comes to the end of a micro-batch.
"""

KINDS: Final = (
    Kind(name="kill client", per_minute=130, target="client", text="kill -9"),
    Kind(name="kill server", per_minute=120, target="server", text="kill -9"),
    Kind(
        name="kill postmaster",
        per_minute=8,
        target="database",
        text="kill -9, then restart",
        is_calm=True,
    ),
    Kind(
        name="kill backend",
        per_minute=12,
        target="database",
        text="kill -9 of one of its own",
        is_calm=True,
    ),
    Kind(name="end client", per_minute=50, target="client", text="pg_terminate_backend"),
    Kind(name="end server", per_minute=50, target="server", text="pg_terminate_backend"),
    Kind(
        name="stop client",
        per_minute=6,
        target="client",
        shortest_s=0.02,
        longest_s=1.0,
        text="SIGSTOP, SIGCONT",
    ),
    Kind(
        name="stop server",
        per_minute=10,
        target="server",
        shortest_s=0.02,
        longest_s=1.0,
        text="SIGSTOP, SIGCONT",
    ),
    Kind(
        name="freeze server",
        per_minute=2,
        target="frozen",
        shortest_s=4.5,
        longest_s=6.0,
        text="SIGSTOP beyond the execution limit",
    ),
    Kind(name="cut client before", per_minute=60, target="cut", text="its COMMIT never arrives"),
    Kind(name="cut client after", per_minute=60, target="cut", text="the answer never arrives"),
    Kind(name="cut server before", per_minute=25, target="cut", text="its COMMIT never arrives"),
    Kind(name="cut server after", per_minute=25, target="cut", text="the answer never arrives"),
    Kind(
        name="silence client",
        per_minute=200,
        target="silent",
        shortest_s=3.0,
        longest_s=5.0,
        text="one connection swallows all, and closes nothing",
    ),
    Kind(
        name="silence server",
        per_minute=70,
        target="silent",
        shortest_s=3.5,
        longest_s=6.0,
        text="one connection swallows all, and closes nothing",
    ),
    Kind(
        name="stall network",
        per_minute=4,
        target="database",
        shortest_s=0.1,
        longest_s=2.0,
        text="nothing passes through one of the two proxies to PostgreSQL",
    ),
    Kind(
        name="fill disk",
        per_minute=1.5,
        target="database",
        shortest_s=0.3,
        longest_s=1.5,
        text="no byte left for PostgreSQL",
    ),
    Kind(
        name="starve server",
        per_minute=2,
        target="server",
        shortest_s=0.2,
        longest_s=0.6,
        text="RLIMIT_AS at what it has, then kill -9",
    ),
    Kind(
        name="kill spark driver",
        per_minute=0.3,
        target="spark",
        text="kill -9 of its Python",
        is_calm=True,
    ),
    Kind(
        name="kill spark java",
        per_minute=0.25,
        target="spark",
        text="kill -9 of its JVM",
        is_calm=True,
    ),
    Kind(name="kill spark executor", per_minute=2, target="spark", text="kill -9 of its Python"),
)
BY_NAME: Final = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A fault to come. choice: picks among its possible targets. lasts_s: 0 for a blow."""

    at_s: float
    kind: str
    choice: int
    lasts_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is asked for.

    seconds: of faults; the end takes longer. place: a directory, made if need be. url: of a scratch
    database, None: a PostgreSQL of its own. spark: the command that serves with Spark, None: none.
    broken: one of CONTROLS, which a run must find. clerks, streams, servers, batches: processes;
    desks: those with several clients each.
    looks_s: how often it is looked whether something is wrong already.
    """

    seconds: float
    seed: int
    place: Path
    url: str | None = None
    spark: tuple[str, ...] | None = None
    broken: str | None = None
    clerks: int = 12
    streams: int = 6
    desks: int = 2
    servers: int = 5
    batches: int = 6
    looks_s: float = 5.0

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= 604_800:
            raise InvalidValue(f"a run lasts 1 s to a week, not {self.seconds:g} s")
        if self.broken not in (None, *CONTROLS):
            raise InvalidValue(f"what can be broken is {' or '.join(CONTROLS)}")


def schedule(seed: int, seconds: float) -> list[Planned]:
    """Returns the faults of a run in their order."""
    faults = [fault for kind in KINDS for fault in _of(kind, seed, seconds)]
    return sorted(faults, key=lambda fault: (fault.at_s, fault.kind))


def _of(kind: Kind, seed: int, seconds: float) -> Iterator[Planned]:
    """Yields the faults of a kind: one in each period, at any moment of it."""
    chance = random.Random(f"{seed} {kind.name}")  # a seeded schedule, no secret
    period_s = MINUTE_S / kind.per_minute
    for number in range(math.ceil(seconds / period_s)):
        at_s = period_s * (number + chance.random())
        if kind.is_calm:
            cycle, within = divmod(at_s, CYCLE_S)
            at_s = cycle * CYCLE_S + within * (1 - CALM_S / CYCLE_S)
        at_s = round(at_s, 4)
        choice = chance.randrange(2**30)
        lasts_s = round(chance.uniform(kind.shortest_s, kind.longest_s), 3)
        if at_s < seconds:
            yield Planned(at_s=at_s, kind=kind.name, choice=choice, lasts_s=lasts_s)
