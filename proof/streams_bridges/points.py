"""The steps of bridges at which their processes are struck, and in which ways. Pure.

The steps of `into` are a position that is found, moved and not committed, moved and committed;
those of a relay are numbers that are planned, sent, and finished. Source: streams.md 10.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from typing import Final

from onceq.streams.bridging import Kind
from proof.part import Size

OF_INTO: Final = (
    *("StreamOpen.before", "StreamOpen.after", "StreamMove.before", "StreamMove.after"),
    *("Commit.before", "Commit.after", "into.moved"),
)
OF_RELAY: Final = (
    *("RelayOpen.before", "RelayOpen.after", "RelayBegin.before", "RelayBegin.after"),
    *("RelayPlan.before", "RelayPlan.after", "relay.planned", "relay.sent"),
    *("RelayFinish.before", "RelayFinish.after"),
)
KINDS: Final = {**dict.fromkeys(OF_INTO, Kind.INTO), **dict.fromkeys(OF_RELAY, Kind.RELAY)}
"""Of each point, whose step it is. The names are those of `onceq.engine.faultpoints`."""
LINKED: Final = frozenset({"relay.sent"})
"""Steps that are done by links to stores: these are cut, and not the database's connection."""
HELD: Final = frozenset({"StreamMove.after", "Commit.before"})
"""Here the row of the position is held: a later life waits until the transaction has ended."""
OCCURRENCES: Final = (1, 2, 5)
"""The first, the second, and a later one."""


class What(enum.StrEnum):
    """What befalls a process at a point.

    CUT: of the connection to the database, before or after the next commit has arrived; or of all
    links to stores, before or after a message is sent. TAKEN: it stands still, while a later life
    does all that there is to do; then it goes on.
    """

    KILL = "kill"
    RAISE = "raise"
    CUT_BEFORE = "cut-before"
    CUT_AFTER = "cut-after"
    TAKEN = "taken"


CUTS: Final = frozenset({What.CUT_BEFORE, What.CUT_AFTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried."""

    point: str
    occurrence: int
    what: What

    def __str__(self) -> str:
        return f"{self.what} at {self.point}, time {self.occurrence}"

    @property
    def kind(self) -> Kind:
        """Which of the two bridges is struck."""
        return KINDS[self.point]

    @property
    def cuts_links(self) -> bool:
        """Whether links to stores are cut."""
        return self.what in CUTS and self.point in LINKED


SMALL: Final = (
    Trial(point="Commit.before", occurrence=1, what=What.CUT_AFTER),
    Trial(point="relay.planned", occurrence=2, what=What.KILL),
    Trial(point="relay.sent", occurrence=5, what=What.CUT_BEFORE),
)
"""What the small size tries, beside the control."""
CONTROL: Final = Trial(point="StreamMove.before", occurrence=1, what=What.TAKEN)
"""What must break when a position is moved, wherever it is."""


def trials(size: Size, chance: random.Random) -> list[Trial]:
    """Return what a size tries, in random order."""
    if size is Size.SMALL:
        return list(SMALL)
    found = [
        Trial(point=point, occurrence=occurrence, what=what)
        for point in KINDS
        for occurrence in OCCURRENCES
        for what in What
    ]
    chance.shuffle(found)
    return found * (10 if size is Size.LONG else 1)
