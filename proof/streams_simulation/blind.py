"""Judges that do not look at a promise: a mistake which only that one notices must then be missed.

So it is seen that each promise is looked at by itself, and that the hunts depend on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proof.streams_model.promises import Promises
from proof.streams_model.rules import I2, I3, I5, I7
from proof.streams_simulation.hunting import hunt

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Blind:
    """A judge that does not look at a promise. variant, seed: what it must miss, and where."""

    promise: str
    variant: str
    seed: int

    @contextlib.contextmanager
    def judging(self) -> Generator[None]:
        """Judge so within a block."""
        breach = Promises.breach

        def seen(promises: Promises, promise: str, text: str) -> None:
            if promise != self.promise:
                breach(promises, promise, text)

        setattr(Promises, breach.__name__, seen)
        try:
            yield
        finally:
            setattr(Promises, breach.__name__, breach)


BLIND: Final = (
    Blind(promise=I2, variant="noting-counts-not", seed=9),
    Blind(promise=I3, variant="one-life", seed=2072),
    Blind(promise=I5, variant="epoch-of-a-frame", seed=2),
    Blind(promise=I7, variant="admitted-late", seed=0),
)
"""Each in a schedule in which one promise alone notices the mistake."""


def is_caught(asked: tuple[Blind, Path]) -> bool:
    """Whether one schedule tells a blind judge from one that sees."""
    blind, home = asked
    seeds = range(blind.seed, blind.seed + 1)
    sees = set(hunt(blind.variant, seeds, home).broken) == {blind.promise}
    with blind.judging():
        return sees and not hunt(blind.variant, seeds, home).broken
