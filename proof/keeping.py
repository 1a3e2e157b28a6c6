"""Records each part when it has ended, so that a run that is cut short has shown something.

A part is recorded with the digest of the sources that it covers. Nothing is recorded of a part
whose sources changed while it ran, nor of any part of a tree with uncommitted changes.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import msgspec

from proof import judging, machine, page, record, sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proof.part import Part, Size
    from proof.record import Record, Shown
    from proof.running import Result, Running
    from proof.schedule import Told

CURRENT, OLDER, NEVER = "current", "older than its sources", "never recorded"


def standing(part: Part, held: Record | None) -> str:
    """Return what the record of a part is worth now."""
    shown = {} if held is None else {one.name: one for one in held.shown}
    if part.name not in shown:
        return NEVER
    return CURRENT if shown[part.name].digest == sources.digest(part.covers) else OLDER


def shown_of(result: Result, about: record.Run) -> Shown:
    """Return what is recorded of a part that has ended, with its day."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return record.shown(result, msgspec.structs.replace(about, date=today))


class Keeping:
    """Is told of a run, passes it on, and records each part that has ended. refused: why not."""

    def __init__(self, told: Told, parts: Sequence[Part], size: Size, about: record.Run) -> None:
        self._told = told
        self._parts = parts
        self._size = size
        self._about = about
        self.refused: list[str] = []

    def began(self, part: Part) -> None:
        """Pass it on."""
        self._told.began(part)

    def went_on(self, running: Running) -> None:
        """Pass it on."""
        self._told.went_on(running)

    def ended(self, result: Result) -> None:
        """Record it, or say why not."""
        self._told.ended(result)
        reason = machine.why_not_recorded()
        if not result.digest:
            reason = "its sources have changed while it ran"
        if reason is not None:
            self.refused.append(f"{result.part.name}: it is not recorded: {reason}")
            return
        write(shown_of(result, self._about), self._parts, self._size)


def write(one: Shown, parts: Sequence[Part], size: Size) -> None:
    """Write a part into the record, and the page anew; other parts' records are kept."""
    path = record.path_of(size)
    new = record.Record(size=size, shown=[one])
    together = record.merged(record.read(path), new, [part.name for part in parts])
    older = [part.name for part in parts if standing(part, together) == OLDER]
    together = msgspec.structs.replace(
        together, judged=judging.judged(parts, together.shown, size), older=older
    )
    record.write(together, path)
    page.write(together)


def status(parts: Sequence[Part], size: Size) -> list[tuple[str, str, str]]:
    """Return for each part its name, what its record is worth, and its date and tree."""
    held = record.read(record.path_of(size))
    shown = {} if held is None else {one.name: one for one in held.shown}
    return [
        (
            part.name,
            standing(part, held),
            ""
            if (one := shown.get(part.name)) is None
            else f"{one.date}, {one.machine.get('onceq', 'no revision')}, {one.seconds:,.0f} s",
        )
        for part in parts
    ]
