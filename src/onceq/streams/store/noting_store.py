"""A store that keeps no messages: only what is known of streams, on its disk.

It knows what was promised, where receivers are, and how far messages came. It counts for no
stability, holds no stream, and gives nothing to read.
"""

from __future__ import annotations

from pathlib import Path

from onceq.streams.model import asks, frames
from onceq.streams.model.choice import Promised
from onceq.streams.store import limits, records
from onceq.streams.store.catalogue import Catalogue, Decided, Step, Taken
from onceq.streams.store.directory import Chance, identified
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.records import Held


class Noting(Catalogue):
    """What such a store knows, and what it answers. Pure."""

    def found(self, stream: int) -> Promised:
        """See Catalogue. It says nothing about the past but how far it saw it."""
        held = self.of(stream)
        lists = () if held.bridge is None else held.bridge.lists
        return Promised(
            hints=tuple(dict.fromkeys((*held.hints, *lists))),
            positions=held.positions,
            passed=held.end,
            marks=held.marks,
        )

    def _admitted(self, ask: asks.Admit, held: Held, copied: range | None) -> Decided:
        """See Catalogue. It needs no copies: all messages count as given up."""
        del copied
        end = ask.log.end
        if end < held.stable and not ask.accept_loss:
            return Step(answer=asks.Lacking(begin=end, end=held.stable))
        return self._noted(ask, kept=end, begin=end, end=end)

    def _noted(self, ask: asks.Admit, *, kept: int, begin: int, end: int) -> Step:
        step = super()._noted(ask, kept=kept, begin=begin, end=end)
        answer = asks.Noted(epoch=ask.bridge.epoch, regid=self.of(ask.stream).regid)
        return Step(records=step.records, answer=answer)

    def take(self, frame: frames.Frame, life: int) -> Taken:
        """See Catalogue. What lies before may be missing."""
        taken = super().take(frame, life)
        if not isinstance(taken.answer, asks.Holding):
            return taken
        passes = frame.count > 0 and frame.end > self.of(frame.stream).end
        return Taken(answer=asks.Noted(epoch=frame.epoch), append=passes)


class NoCacheStore(DiskStore):
    """Such a store, in a directory as a store on a disk."""

    keeps = False
    _catalogue = Noting

    def _append(self, local: int, frame: frames.Frame, data: bytes) -> int:
        """Note that a frame came; its bytes are not kept."""
        del local, data
        return self._put(records.Passed(stream=frame.stream, end=frame.end))


def opened(directory: Path, chance: Chance, may_keep: limits.Limits | None = None) -> DiskStore:
    """Open the store of a directory, of whatever kind it is. Raises StoreRefused."""
    kind = DiskStore if identified(directory).keeps else NoCacheStore
    return kind(directory, chance, may_keep=may_keep)
