"""What a run has shown, as written to proof/recorded.json; and how runs are combined.

If a part is run again alone, that replaces what was recorded of it. The record holds no path and no
name of a machine.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proof.part import Control, Measure, Size  # at run time too: msgspec reads the types
from proof.running import MEMORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proof.running import Result

FOLDER = Path(__file__).parent
VERSION = 1


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What all parts of one run have in common."""

    seed: int
    date: str
    machine: dict[str, str]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a part has shown. date: its day, in UTC. failure: why it had no outcome.

    machine: what it ran on, with the revision, by name; empty if it was not recorded.
    digest: of the sources that it covers (proof/sources.py); empty in records from before digests.
    """

    name: str
    text: str
    date: str
    seed: int
    seconds: float
    machine: dict[str, str] = {}
    digest: str = ""
    failure: str | None = None
    skipped: str | None = None
    measures: list[Measure] = []
    controls: list[Control] = []
    violations: list[str] = []
    page: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of goals. seconds: of all parts that add to it, together."""

    what: str
    goal: int
    reached: int
    seconds: float
    verdict: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of all that was shown. wrong: each in one sentence. not_run: names of parts."""

    rows: list[Row] = []
    wrong: list[str] = []
    not_run: list[str] = []


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, or several combined.

    took_s: the time of the run from beginning to end; None if several are combined.
    older: the parts whose sources had changed when the last was recorded.
    """

    v: int = VERSION
    size: Size
    took_s: float | None = None
    shown: list[Shown]
    judged: Judged = Judged()
    older: list[str] = []


def shown(result: Result, run: Run) -> Shown:
    """Return what is recorded of a part that has ended."""
    declared = result.part.controls
    made = Shown(
        name=result.part.name,
        text=result.part.text,
        date=run.date,
        seed=run.seed,
        machine=run.machine,
        seconds=round(result.seconds, 1),
        digest=result.digest,
        failure=None if result.failure is None else _without_places(result.failure),
    )
    if (outcome := result.outcome) is None:
        return made
    return msgspec.structs.replace(
        made,
        skipped=outcome.skipped,
        measures=outcome.measures,
        controls=[
            replace(one, least=declared.get(one.what, one.least)) for one in outcome.controls
        ],
        violations=[_without_places(one) for one in outcome.violations],
        page=outcome.page,
    )


def _without_places(text: str) -> str:
    """Return a text without places on this machine, which tracebacks name."""
    for folder in (FOLDER.parent, tempfile.gettempdir(), MEMORY):
        text = text.replace(f"{folder}/", "")
    return text


def path_of(size: Size) -> Path:
    """Return where a run is recorded: the long run apart from the others."""
    return FOLDER / ("recorded-long.json" if size is Size.LONG else "recorded.json")


def read(path: Path) -> Record | None:
    """Return what was recorded; None if there is nothing. Raises msgspec's errors."""
    return msgspec.json.decode(path.read_bytes(), type=Record) if path.exists() else None


def write(record: Record, path: Path) -> None:
    """Write a record in a form that people can read too."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def merged(old: Record | None, new: Record, names: Sequence[str]) -> Record:
    """Return the new record, with the parts that it lacks taken from an old one of the same size.

    names: of all existing parts, in their order; others are dropped.
    """
    if old is None or old.size != new.size:
        return new
    held = {one.name: one for one in [*old.shown, *new.shown]}
    together = [held[name] for name in names if name in held]
    whole = len(together) == len(new.shown)
    return msgspec.structs.replace(new, shown=together, took_s=new.took_s if whole else None)
