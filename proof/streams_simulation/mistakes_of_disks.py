"""Functions of what ships of stores on disks, as they would be with a mistake."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.store.answering import Answers, Waiting, encoded
from onceq.streams.store.catalogue import Catalogue, Step
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log import opening, reading
from onceq.streams.store.log.entries import Entry, SegmentHead
from onceq.streams.store.noting_store import Noting
from onceq.streams.store.reclaiming import Reclaiming
from proof.streams_simulation.volume import Volume

_APPLY: Final = DiskStore.__dict__["_apply"]
_FOUND: Final = Catalogue.found
_LAST: Final = reading.last
_NOTED: Final = Noting.__dict__["_noted"]
_READ: Final = opening.read
_REPLAY: Final = DiskStore.__dict__["_replay"]
_SYNC: Final = Volume.sync
_UNLINK: Final = Reclaiming.__dict__["_unlink"]


def answered_at_once(self: Answers, link: int, one: Waiting) -> Iterator[tuple[int, bytes]]:
    """Send an answer before what it says is synced."""
    del self
    yield link, encoded(one)


def failed_sync_is_taken(self: Volume, handle: int) -> None:
    """Take a sync that failed for one that did not."""
    with contextlib.suppress(OSError):
        _SYNC(self, handle)


def unsynced_is_believed(self: DiskStore, found: reading.Last | None) -> Sequence[Entry]:
    """Apply what nobody knows to be synced, and do not write it again."""
    for entry in _REPLAY(self, found):
        _APPLY(self, entry)
    return ()


def damage_is_cut(data: bytes, head: SegmentHead, first: int) -> opening.Read:
    """Take damage for a torn tail."""
    read = _READ(data, head, first)
    bad = [one.position for one in read.entries if not one.is_whole]
    if not bad:
        return read
    kept = tuple(one for one in read.entries if one.position < bad[0])
    return replace(read, entries=kept, end=bad[0])


def never_forgets(*given: Any) -> reading.Last | None:
    """Go by what is left of a log in which a promise may be damaged."""
    found = _LAST(*given)
    if found is None or not found.read.has_snapshot:
        return found
    return replace(found, forgot=False)


def whole_in_spite(self: Catalogue, stream: int) -> Any:
    """Tell a source that a log is whole, though it is damaged above what is stable."""
    return replace(_FOUND(self, stream), whole=True)


def freed_at_once(self: Reclaiming) -> list[int]:
    """Free a segment before what says that it is not needed is synced."""
    vars(self)["_position"] = 0
    freed: list[int] = _UNLINK(self)
    return freed


def noting_holds(self: Noting, ask: asks.Admit, **given: int) -> Step:
    """Answer as a store that keeps messages."""
    step: Step = _NOTED(self, ask, **given)
    return replace(step, answer=asks.Holding(epoch=ask.bridge.epoch, end=given["end"]))


def noting_remembers(self: Noting, stream: int) -> Any:
    """Tell a source of the past as a store that keeps messages."""
    return _FOUND(self, stream)
