"""The small size of the proof: a part is run, and judged as the proof judges it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from proof import judging, record
from proof.part import Order, Part, Size
from proof.running import Result, Terms
from proof.schedule import run_all
from proof.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from proof.part import Outcome

SEED = 1990
RUN = record.Run(seed=SEED, date="", machine={})
WORDS = 4000


def _not_run(_: Order) -> Outcome:
    raise AssertionError("nobody runs it")


OTHERS = Part(name="others", text="", run=_not_run)
"""In place of the parts that are not run: a goal to which this one adds nothing is not missed."""


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
    return reached(small_outcome(part, place, seed=seed, say=say))


def small_outcome(
    part: Part, place: Path, *, seed: int = SEED, say: Callable[[str, int, int], None] = _said
) -> Outcome:
    """The same, for who asks for more than what was reached."""
    outcome = part.run(Order(size=Size.SMALL, seed=seed, place=place, say=say))
    said = [path.read_text(errors="replace")[-WORDS:] for path in place.glob("said.*")]
    return judged(Result(part=part, seconds=0.0, outcome=outcome), said)


def small_apart(part: Part, *, seed: int = SEED) -> dict[str, int]:
    """The same, run in a process and a directory of its own, as the proof does it."""
    (result,) = run_all([part], Terms(size=Size.SMALL, seed=seed, table=TABLE), Nobody())
    return reached(judged(result))


def reached(outcome: Outcome) -> dict[str, int]:
    """Returns what was reached, by name."""
    return {measure.what: measure.reached for measure in outcome.measures}


def judged(result: Result, said: Sequence[str] = ()) -> Outcome:
    """Returns the outcome in which nothing is wrong; its page is for a failure, and `pytest -s`.

    said: by the part's processes, told with what is wrong. A part that was skipped is wrong too:
    a test of one that a machine may lack something for asks that before.
    """
    if result.outcome is not None:
        sys.stdout.write(f"\n{result.outcome.page}\n")
    wrong = judging.complaints([result.part, OTHERS], [record.shown(result, RUN)], Size.SMALL)
    assert wrong == [], "\n".join([*wrong, *said])
    assert result.outcome is not None
    return result.outcome
