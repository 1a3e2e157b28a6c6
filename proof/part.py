"""What a part of the proof is: it gets a size, and returns measures and violations.

Used by every part and by the runner. A part never decides whether the proof has passed: it states
what it reached and what it found broken, and the runner compares.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping  # at run time too, as below: msgspec reads the types
from dataclasses import dataclass, field
from pathlib import Path

PART_S_MAX = 1500.0
"""No part of the proof takes longer than this, so that each can be run and recorded by itself."""


class Size(enum.StrEnum):
    """How much is tried: in `make test`, in `make proof`, and in the long run."""

    SMALL = "small"
    PROOF = "proof"
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure. what: a row of proof/goals.py, or a name of the part's own; both whole numbers.

    goal: None if a figure is only stated, or if the table of goals has it. For a row that asks
    for all of something, this says how many there are.
    """

    what: str
    reached: int
    goal: int | None = None

    @property
    def is_met(self) -> bool:
        """Whether the goal was reached, if there is one."""
        return self.goal is None or self.reached >= self.goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Something that must fail, or else the trial proves nothing. broke: how often, of how many.

    least: the share of trials in which it must break; it comes from the part's declaration.
    """

    what: str
    broke: int
    of: int
    least: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether it broke at least once, and in the share of the trials in which it must."""
        return self.broke > 0 and self.broke >= self.least * self.of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run of a part.

    violations: what was found broken, each with how to repeat it; ideally none.
    skipped: why nothing was tried, if this machine cannot; a skipped part meets no goal.
    page: its section of the report, in Markdown without a heading; no path and no host name.
    """

    measures: list[Measure] = field(default_factory=list["Measure"])
    violations: list[str] = field(default_factory=list[str])
    controls: list[Control] = field(default_factory=list["Control"])
    skipped: str | None = None
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a part is asked to do. seed: of all its choices. place: an empty directory of its own.

    say: is told what is being done now, for whoever watches; (text, done, of).
    """

    size: Size
    seed: int
    place: Path
    say: Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many seconds a part may take in each size; after that it is ended: a failure."""

    small_s: float = 180.0
    proof_s: float = PART_S_MAX
    long_s: float = 6 * 3600.0

    def of(self, size: Size) -> float:
        """Return the limit of a size."""
        return {Size.SMALL: self.small_s, Size.PROOF: self.proof_s, Size.LONG: self.long_s}[size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the proof. name: on the command line; text: what it tries, in one sentence.

    run: called in a process of its own, whose standard output and error are shown if it fails.
    states: the rows of proof/goals.py to which it adds; several parts may add to one row.
    controls: what must fail, by its text, and the least share of its trials in which it must.
    alone: nothing else of the proof runs beside it. on_spark: none of these runs beside another: on
    two cores several Javas wait for each other.
    covers: patterns of the sources that it tries, and tries it with; by proof/parts.py.
    in_memory: it strikes processes and connections, and no disk: its files are where they cost
    least, since most of its time goes into making repositories.
    """

    name: str
    text: str
    run: Callable[[Order], Outcome]
    states: tuple[str, ...] = ()
    controls: Mapping[str, float] = field(default_factory=dict[str, float])
    alone: bool = False
    on_spark: bool = False
    in_memory: bool = False
    covers: tuple[str, ...] = ()
    limits: Limits = Limits()
