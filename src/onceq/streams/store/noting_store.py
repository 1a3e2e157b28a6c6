"""A store that keeps no messages: only what is known of streams, on its disk.

It knows what was promised, where receivers are, and how far messages came. It gives nothing to
read, counts for no stability, and holds no stream, unless that began in a list of such stores only:
there what a stable set has noted is stable, that is, its number is given to nothing else.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

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
        if _holds(held):
            return replace(super().found(stream), passed=held.end)
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
        if (stable := held.in_spite(held.stable, ask.bridge)) > end:
            return Step(answer=asks.Lacking(begin=end, end=stable))
        return self._noted(ask, kept=end, begin=end, end=end)

    def _noted(self, ask: asks.Admit, *, kept: int, begin: int, end: int) -> Step:
        step = super()._noted(ask, kept=kept, begin=begin, end=end)
        if not ask.bridge.keeps:
            return step
        answer = asks.Noted(epoch=ask.bridge.epoch, regid=self.of(ask.stream).regid)
        return Step(records=step.records, answer=answer)

    def take(self, frame: frames.Frame, life: int) -> Taken:
        """See Catalogue. What lies before may be missing, unless it holds the stream."""
        taken = super().take(frame, life)
        if _holds(self.of(frame.stream)):
            return replace(taken, compare=False)
        if not isinstance(taken.answer, asks.Holding):
            return taken
        passes = frame.count > 0 and frame.end > self.of(frame.stream).end
        return Taken(answer=asks.Noted(epoch=frame.epoch), append=passes)


def _holds(held: Held) -> bool:
    """Whether a stream began in a list of stores of which none keeps messages."""
    return held.bridge is not None and not held.bridge.keeps


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
