"""What a part of the proof is: a size goes in, measures and violations come out.

Used by every part and by the runner. A part never decides whether the proof has passed: it states
what it reached and what it found broken, and the runner compares.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Size(enum.StrEnum):
    """How much is tried: in `make test`, in `make proof`, and in the long run."""

    SMALL = "small"
    PROOF = "proof"
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A row of the table of goals. what: as docs/reliability.md names it; both in whole numbers.

    goal: None where a figure is only stated.
    """

    what: str
    reached: int
    goal: int | None = None

    @property
    def is_met(self) -> bool:
        """Whether the goal was reached, where there is one."""
        return self.goal is None or self.reached >= self.goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run of a part came to.

    violations: what was found broken, each with how to repeat it; none is what we hope for.
    skipped: why nothing was tried, where this machine cannot; a skipped part meets no goal.
    page: its section of the report, in Markdown without a heading.
    """

    measures: list[Measure] = field(default_factory=list["Measure"])
    violations: list[str] = field(default_factory=list[str])
    skipped: str | None = None
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a part is asked for. seed: of all its choices. place: an empty directory of its own.

    say: told what is being done now, for whoever watches; (text, done, of).
    """

    size: Size
    seed: int
    place: Path
    say: Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the proof. name: on the command line; text: what it tries, in one sentence."""

    name: str
    text: str
    run: Callable[[Order], Outcome]
