"""What a run of tests says about a mutant: caught, missed, or nothing at all.

Only a finding of a test counts: an assertion that fails, an error that should have been raised and
was not, or the error that the mutant's entry names. A file that cannot be read, an error of Python,
a refused statement or a time limit say that the mutant is badly made, not that it was caught.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_RAISED = "DID NOT RAISE"
TIMED_OUT = re.compile(r"^Timeout \(>")
UNPLANTED = re.compile(r"stands \d+ times in|was found \d+ times")
"""A test's own broken variant of the SQL did not fit: that says nothing of the mutant."""


class Fate(enum.StrEnum):
    """What became of a mutant."""

    CAUGHT = "caught"
    MISSED = "missed"
    BADLY_MADE = "badly made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a run. by: the test that decided; says: its finding; seconds: of the run."""

    fate: Fate
    by: str = ""
    says: str = ""
    seconds: float = 0.0


def is_finding(line: dict[str, Any], raises: str | None) -> bool:
    """Returns whether a test that failed has found something, and did not merely break."""
    if line["phase"] != "call" or UNPLANTED.search(line["text"]) or TIMED_OUT.match(line["text"]):
        return False
    if line["kind"] == "AssertionError":
        return True
    if line["kind"] == "Failed":
        return str(line["text"]).startswith(NOT_RAISED)
    return raises is not None and line["kind"] == raises


def judge(
    lines: Sequence[dict[str, Any]], raises: str | None, exit_code: int | None, seconds: float
) -> Verdict:
    """Judges a run. exit_code: of pytest; None: it was ended at its time limit."""
    failed = [line for line in lines if line["outcome"] == "failed"]
    for line in failed:
        if is_finding(line, raises):
            says = " ".join(f"{line['kind']}: {line['text']}".split())
            return Verdict(fate=Fate.CAUGHT, by=line["test"], says=says, seconds=seconds)
    if exit_code == 0 and not failed:
        return Verdict(fate=Fate.MISSED, says="all its tests passed", seconds=seconds)
    told = [f"{line['test']} ({line['phase']}): {line['kind']}: {line['text']}" for line in failed]
    ended = "was ended at its time limit" if exit_code is None else f"exit code {exit_code}"
    says = "; ".join([*told, f"pytest {ended}"])
    return Verdict(fate=Fate.BADLY_MADE, says=says, seconds=seconds)
