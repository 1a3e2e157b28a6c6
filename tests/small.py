"""The small size of the proof: a part is run, and judged as the proof judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof import judging, record
from proof.part import Order, Size
from proof.parts import PARTS
from proof.running import Result, Terms
from proof.schedule import run_all
from proof.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from proof.part import Part

SEED = 1990
RUN = record.Run(seed=SEED, date="", machine={})


class Nobody:
    """Is told of a run, and does nothing."""

    def began(self, part: object) -> None: ...
    def went_on(self, running: object) -> None: ...
    def ended(self, result: object) -> None: ...


def _said(text: str, done: int, of: int) -> None:
    assert text
    assert 0 <= done <= of


def small(
    part: Part, place: Path, *, seed: int = SEED, say: Callable[[str, int, int], None] = _said
) -> dict[str, int]:
    """Runs a part in this process; it shows all that it states. Returns what it reached."""
    outcome = part.run(Order(size=Size.SMALL, seed=seed, place=place, say=say))
    return _reached(Result(part=part, seconds=0.0, outcome=outcome))


def small_apart(part: Part, *, seed: int = SEED) -> dict[str, int]:
    """The same, run in a process and a directory of its own, as the proof does it."""
    (result,) = run_all([part], Terms(size=Size.SMALL, seed=seed, table=TABLE), Nobody())
    return _reached(result)


def _reached(result: Result) -> dict[str, int]:
    wrong = judging.complaints(PARTS, [record.shown(result, RUN)], Size.SMALL)
    assert wrong == [], "\n".join(wrong)
    assert result.outcome is not None
    return {measure.what: measure.reached for measure in result.outcome.measures}
