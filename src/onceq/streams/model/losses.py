"""What a person accepts as lost, so that a source goes on without it, and what follows. Pure.

More stores than a list allows have lost what they had, or will never answer again: no recovery can
know what was stable. A person who has read what is left says so: where the log ends, and at which
number messages go on. The numbers between are void for ever: who was shown other messages under
them is told, and no number is given twice. Source: streams.md 3 and 5; spec G11.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from onceq.errors import InvalidValue

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
LOST_MAX: Final = 1_000_000_000
"""So many numbers can be lost at once: more is a slip of the pen."""
SHOWN_MAX: Final = 200
"""So much of a text is shown that cannot be read."""
_TEXT: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})@([0-9]{1,10})((?:\s+\S+)+)\s*")
LOSS_EXAMPLE: Final = "500-1000812@1795858723 127.0.0.1:7402 127.0.0.1:7403"
MARGIN: Final = 1_000_000
"""So many numbers more are left out than anybody knows of, unless a person knows better."""


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """That an epoch was begun without a part of what was stable, since a person accepted it.

    first: where the log that was left ended. count: so many numbers from there on are void, and so
    is, of every store that was not in this epoch, what it has behind `first`.
    """

    epoch: Natural
    first: Natural
    count: Annotated[int, msgspec.Meta(ge=0, le=LOST_MAX)]

    @property
    def below(self) -> int:
        """Where messages go on."""
        return self.first + self.count


Losses = tuple[Lost, ...]


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What a person accepts: that what some stores had is lost. It holds for one state of a stream.

    end: where the log ends that is left; below: where messages go on. epoch: the last one of which
    a store knows that has answered. stores: that are given up.
    """

    end: Natural
    below: Natural
    epoch: Natural
    stores: frozenset[str]

    def covers(self, rest: Acceptance | None) -> bool:
        """Whether this is what a person would have to accept, of whatever greater number."""
        return (
            rest is not None
            and (self.end, self.epoch) == (rest.end, rest.epoch)
            and self.below >= rest.below
            and self.stores >= rest.stores
        )

    def text(self) -> str:
        """Return it as `acceptance` reads it."""
        return f"{self.end}-{self.below}@{self.epoch} {' '.join(sorted(self.stores))}"

    def with_margin(self) -> Acceptance:
        """Return it with a margin behind what is known: what was lost may have been more."""
        return replace(self, below=self.below + MARGIN)


def acceptance(text: str) -> Acceptance | None:
    """Return what a text accepts; of an empty one nothing: None. Raises InvalidValue."""
    if not text.strip():
        return None
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InvalidValue(
            f"accept_loss is {text[:SHOWN_MAX]!r}: give what StoresForgot told: where the log"
            " ends, where messages go on, and the stores that are given up, such as"
            f" {LOSS_EXAMPLE!r}"
        )
    end, below, stores = int(match[1]), int(match[2]), frozenset(match[4].split())
    if not end <= below <= end + LOST_MAX:
        raise InvalidValue(
            f"accept_loss is {text[:SHOWN_MAX]!r}: messages go on at {below}, and the log ends at"
            f" {end}: give a number from there to {LOST_MAX:,} behind it"
        )
    return Acceptance(end=end, below=below, epoch=int(match[3]), stores=stores)


def is_lost(number: int, losses: Losses) -> bool:
    """Whether a number is void since it was lost."""
    return any(one.first <= number < one.below for one in losses)


def void_below(losses: Losses) -> int:
    """Return below which number nothing new is sent; 0: nothing was ever lost."""
    return max((one.below for one in losses), default=0)


def still_stable(stable: int, admitted: int, losses: Losses) -> int:
    """Return below which number all that a store knows as stable still is.

    admitted: the epoch that it was in: what was accepted as lost after that, it does not know.
    """
    return min((stable, *(one.first for one in losses if one.epoch > admitted)))
