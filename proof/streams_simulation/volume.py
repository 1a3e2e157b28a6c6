"""The disk of a simulated store: what was not synced may be lost or torn when the power fails.

Each file has what a process reads, and what the platter has. A sync that fails leaves the first as
it was, and the second anyhow. Names come to be durable in their order, with the next sync of the
directory. What a store does to its files is done here in the order in which `Files` does it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onceq.streams.store.log import opening
from onceq.streams.store.log.entries import Geometry, SegmentHead, decode_head, encode_head
from onceq.streams.store.log.segments import Files

if TYPE_CHECKING:
    import random

PAGE_BYTES = 128
KEPT, LOST = 0.4, 0.8
"""Of the pages that were not synced, these shares are kept, and kept or lost; others are torn."""


class PowerCut(BaseException):
    """The power has failed: the process is no more, and what was not synced perhaps neither."""


@dataclass(slots=True)
class Sheet:
    """A file. cached: as it is read; disk: what is left when the power fails; dirty: its pages."""

    cached: bytearray
    disk: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set[int])

    def put(self, offset: int, data: bytes) -> None:
        """Write some bytes, as far as any process can see."""
        self.cached[offset : offset + len(data)] = data
        if data:
            last = (offset + len(data) - 1) // PAGE_BYTES
            self.dirty.update(range(offset // PAGE_BYTES, last + 1))

    def sync(self) -> None:
        """Have everything on the platter."""
        for page in self.dirty:
            self._keep(page, PAGE_BYTES)
        self.dirty.clear()

    def _keep(self, page: int, length: int) -> None:
        begin = page * PAGE_BYTES
        self.disk.extend(bytes(max(0, len(self.cached) - len(self.disk))))
        end = min(begin + length, len(self.cached))
        self.disk[begin:end] = self.cached[begin:end]

    def lose(self, chance: random.Random) -> None:
        """Have of each page that was not synced all, nothing or a part on the platter."""
        for page in sorted(self.dirty):
            draw = chance.random()
            if draw < KEPT:
                self._keep(page, PAGE_BYTES)
            elif draw >= LOST:
                self._keep(page, chance.randrange(PAGE_BYTES))
        self.dirty.clear()

    def forget(self) -> None:
        """Have read what the platter has."""
        self.cached = bytearray(self.disk)

    def flip(self, offset: int, bit: int) -> None:
        """Change a bit."""
        for data in (self.cached, self.disk):
            if offset < len(data):
                data[offset] ^= 1 << bit


class Volume(Files):
    """The files of a store. sync_fails: the next sync does. dies_in: so many operations are left.

    is_full: no segment can be made any more.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__(Path("volume"))
        self.is_full = self.sync_fails = False
        self.dies_in: int | None = None
        self._chance = chance
        self._names: dict[str, Sheet] = {}
        self._durable: dict[str, Sheet] = {}
        self._journal: list[Callable[[], None]] = []
        self._open: list[Sheet] = []

    # faults

    def cut_power(self) -> None:
        """Lose what was not synced, or some of it."""
        for one in self._journal[: self._chance.randint(0, len(self._journal))]:
            one()
        self._journal.clear()
        self._names = dict(self._durable)
        for sheet in self._names.values():
            sheet.lose(self._chance)
            sheet.forget()
        self.sync_fails, self.dies_in = False, None

    def proven(self, geometry: Geometry) -> list[tuple[int, int]]:
        """Return the segments, each with the offset before which all is said to be synced.

        In the last one that is what an entry says; whatever lies before another is synced.
        """
        found: list[tuple[int, int]] = []
        for number in reversed(self.numbers()):
            data = bytes(self._segment(number).disk)
            head = decode_head(data)
            if head is None:
                return []
            read = opening.read(data, head, geometry.first(number))
            found.append((number, max(0, read.synced - geometry.first(number))))
            if read.has_snapshot:
                rest = [one for one in self.numbers() if one < number]
                return found + [(one, len(self._segment(one).disk)) for one in rest]
        return []

    def flip(self, number: int, offset: int) -> None:
        """Change a bit of a segment."""
        self._segment(number).flip(offset, self._chance.randrange(8))

    def _dies(self) -> bool:
        if self.dies_in is None:
            return False
        self.dies_in -= 1
        return self.dies_in < 0

    def _live(self) -> None:
        if self._dies():
            raise PowerCut

    # what a store does: see Files

    def _segment(self, number: int) -> Sheet:
        return self._names[self.path(number).name]

    def _name(self, **names: Sheet | None) -> None:
        """Give files names, or take them away: all at once, and not yet for good."""
        _renamed(self._names, names)
        self._journal.append(lambda: _renamed(self._durable, names))

    def numbers(self) -> list[int]:
        """See Files."""
        return sorted(int(name[:10]) for name in self._names if name.endswith(".seg"))

    def spares(self) -> list[Path]:
        """See Files."""
        return [Path(name) for name in sorted(self._names) if name.startswith("spare")]

    def read(self, number: int) -> bytes:
        """See Files."""
        return bytes(self._segment(number).cached)

    def read_at(self, number: int, offset: int, length: int) -> bytes:
        """See Files."""
        sheet = self._names.get(self.path(number).name)
        return b"" if sheet is None else bytes(sheet.cached[offset : offset + length])

    def size(self, number: int) -> int:
        """See Files."""
        return len(self._segment(number).cached)

    def read_index(self, number: int) -> bytes | None:
        """See Files."""
        sheet = self._names.get(self._index(number).name)
        return None if sheet is None else bytes(sheet.cached)

    def write_index(self, number: int, data: bytes) -> None:
        """See Files."""
        self._live()
        if not self.is_full:
            sheet = Sheet(bytearray())
            sheet.put(0, data)
            self._name(**{self._index(number).name: sheet})

    def make_spare(self, size: int) -> bool:
        """See Files."""
        self._live()
        if self.is_full:
            return False
        taken = {path.name for path in self.spares()}
        name = next(one for n in range(len(taken) + 1) if (one := f"spare.{n}") not in taken)
        self._name(**{name: Sheet(bytearray(size), bytearray(size))})
        self.sync_directory()
        return True

    def begin(self, head: SegmentHead) -> int:
        """See Files."""
        spare = self.spares()[0].name
        sheet = self._names[spare]
        handle = len(self._open)
        self._open.append(sheet)
        self.write(handle, [encode_head(head)], 0)
        self.sync(handle)
        self._name(**{spare: None, self.path(head.number).name: sheet})
        self.sync_directory()
        return handle

    def write(self, handle: int, parts: Sequence[bytes], offset: int) -> None:
        """See Files. It may be cut short."""
        data = b"".join(parts)
        if self._dies():
            self._open[handle].put(offset, data[: self._chance.randrange(len(data))])
            raise PowerCut
        self._open[handle].put(offset, data)

    def sync(self, handle: int) -> None:
        """See Files."""
        self._live()
        if self.sync_fails:
            self.sync_fails = False
            self._open[handle].lose(self._chance)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._open[handle].sync()

    def sync_directory(self) -> None:
        """See Files."""
        self._live()
        for one in self._journal:
            one()
        self._journal.clear()

    def close(self, handle: int) -> None:
        """See Files. Nothing is done."""
        del handle

    def cut(self, number: int, length: int) -> None:
        """See Files."""
        self._live()
        sheet = self._segment(number)
        del sheet.cached[length:]
        self._journal.append(lambda: sheet.disk.__delitem__(slice(length, None)))

    def unlink(self, number: int) -> None:
        """See Files."""
        self._live()
        self._name(**{self._index(number).name: None, self.path(number).name: None})


def _renamed(held: dict[str, Sheet], names: dict[str, Sheet | None]) -> None:
    for name, sheet in names.items():
        if sheet is None:
            held.pop(name, None)
        else:
            held[name] = sheet
