"""A store on a disk: its catalogue and its log together, without a network.

A position is one of its log: an answer may be sent when `log.synced` has passed that of its call.
Whoever owns the store commits, in a thread (`log.committer`) or by `log.commit`.

When it starts, it reads the last segment, begins a new one with a snapshot, and writes again what
nobody knows to be synced. A store whose last segment is damaged knows nothing any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from onceq.streams.model import frames
from onceq.streams.model.choice import epoch_at
from onceq.streams.store import limits, records
from onceq.streams.store.catalogue import Catalogue
from onceq.streams.store.directory import Chance, identified, locked
from onceq.streams.store.log.entries import (
    FRAMES,
    HEAD_BYTES,
    HEADER_BYTES,
    Entry,
    EntryKind,
    Geometry,
    Unproven,
    decode_head,
    scan,
)
from onceq.streams.store.log.finding import Finder
from onceq.streams.store.log.index import Index, Places
from onceq.streams.store.log.reading import Last, last
from onceq.streams.store.log.scrub import harmed
from onceq.streams.store.log.segments import Files
from onceq.streams.store.log.writing import Log
from onceq.streams.store.store import Store
from onceq.streams.store.weights import Weighed, Weights


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment begins with: what the catalogue knows, where frames are, and their bytes."""

    known: records.Snapshot
    places: dict[int, Places]
    weights: dict[int, Weighed]


class DiskStore(Store):
    """A store in a directory, which it locks. forgot: its last segment was damaged.

    Raises StoreRefused if the directory is another's, or in use.
    """

    def __init__(
        self,
        directory: Path,
        chance: Chance,
        *,
        files: Files | None = None,
        may_keep: limits.Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(may_keep, clock)
        identity = identified(directory)
        self._lock = locked(directory)
        self.files = Files(directory) if files is None else files
        self.geometry = Geometry(segment_bytes=identity.segment_bytes)
        self._finder = Finder(self.files, self.geometry)
        store = bytes.fromhex(identity.store)
        found = last(self.files, self.geometry, store)
        self.forgot = found is not None and found.forgot
        self.index = Index(self.geometry)
        self._unknown: set[int] = set()
        again = self._replay(found)
        self.log = Log(
            self.files,
            self.geometry,
            store=store,
            number=0 if found is None else found.number + 1,
            salt=lambda: int.from_bytes(chance(4), "little"),
            snapshot=self._snapshot,
        )
        self.log.prepare()
        for entry in again:
            self._append_again(entry)
        self.log.commit()
        freed = self.reclaim()
        if found is not None and not self.forgot and found.number not in freed:
            self.files.cut(found.number, self.geometry.offset(found.read.end))

    def _replay(self, found: Last | None) -> Sequence[Entry]:
        """Apply what is synced; return what must be written again first."""
        if found is None or found.forgot:
            return ()
        first, *rest = found.read.entries
        known = msgspec.msgpack.decode(first.payload, type=Snapshot)
        self.catalogue = Catalogue(known.known)
        self.index = Index(self.geometry, known.places)
        self.weights = Weights(known.weights, self._clock())
        unsynced = [one for one in rest if one.end > found.read.synced]
        for entry in rest[: len(rest) - len(unsynced)]:
            self._apply(entry)
        if self._unknown:
            self._forget()
            return ()
        return unsynced

    def _forget(self) -> None:
        """Know nothing any more: what was damaged may have been more than what is left says."""
        self.forgot = True
        self.catalogue = Catalogue()
        self.index = Index(self.geometry)
        self.weights = Weights()

    def _apply(self, entry: Entry) -> None:
        if entry.kind in FRAMES:
            self._apply_frame(entry)
        elif entry.kind in records.KINDS.values():
            self._note(records.record_of(entry.kind, entry.payload))

    def _apply_frame(self, entry: Entry) -> None:
        """Apply a frame. One that is damaged is known to be one: the next says which numbers."""
        if not entry.is_whole:
            self._unknown.add(entry.stream)
            return
        frame = frames.decode(entry.payload)
        if entry.kind is EntryKind.COPY:
            self._copied(entry.stream, frame, entry.payload, entry.position)
            return
        held = self.catalogue.of(frame.stream)
        is_moved = entry.kind is EntryKind.RELOCATED
        if entry.stream in self._unknown and frame.number + is_moved > held.end:
            self._unknown.remove(entry.stream)
            known_below = frame.end if is_moved else frame.number
            self.catalogue.damage(frame.stream, range(held.end, known_below))
        if is_moved:
            self.index.move(entry.stream, frame.number, entry.position)
            self.catalogue.repair(frame.stream, range(frame.number, frame.end))
            return
        self._appended(entry.stream, frame, entry.payload, entry.position)
        self.catalogue.apply_frame(frame)

    def _appended(self, local: int, frame: frames.Frame, data: bytes, position: int) -> None:
        self.index.add(local, frame.number, position)
        self.weights.of(local).add(range(frame.number, frame.end), len(data), self._clock())

    def _copied(self, local: int, frame: frames.Frame, data: bytes, position: int) -> None:
        self.index.copy(local, frame.number, position)
        self.weights.copy(local, range(frame.number, frame.end), len(data))

    def _note(self, record: records.Record) -> None:
        local = self.catalogue.of(record.stream).local
        match record:
            case records.Admitted():
                self.index.admit(local, record.kept)
                self.weights.admit(local, record.kept, self._clock())
            case records.Trimmed():
                self.index.trim(local, record.below)
                self.weights.of(local).trim(record.below)
            case _:
                pass
        self.catalogue.apply(record)

    def _append_again(self, entry: Entry) -> None:
        position = self.log.append_again(entry.kind, entry.stream, entry.payload)
        begun = position - HEADER_BYTES - len(entry.payload)
        self._apply(msgspec.structs.replace(entry, position=begun))

    def _snapshot(self) -> bytes:
        made = Snapshot(
            known=self.catalogue.snapshot(),
            places=self.index.places(),
            weights=self.weights.weighed(),
        )
        return msgspec.msgpack.encode(made)

    @property
    def end(self) -> int:
        """The position of all that was appended."""
        return self.log.end

    def _put(self, record: records.Record) -> int:
        local = self.catalogue.of(record.stream).local
        kind = records.KINDS[type(record)]
        position = self.log.append(kind, local, records.packed(record))
        self._note(record)
        return position

    def _append(self, local: int, frame: frames.Frame, data: bytes) -> int:
        position = self.log.append(EntryKind.FRAME, local, data)
        self._appended(local, frame, data, position - HEADER_BYTES - len(data))
        return position

    def _append_copy(self, local: int, frame: frames.Frame, data: bytes) -> int:
        position = self.log.append(EntryKind.COPY, local, data)
        self._copied(local, frame, data, position - HEADER_BYTES - len(data))
        return position

    def read(self, stream: int, numbers: range) -> Iterator[bytes]:
        """Yield the frames that have some numbers, as they came, up to one that is damaged.

        Only what is committed is there.
        """
        held = self.catalogue.of(stream)
        number, end = max(numbers.start, held.begin), min(numbers.stop, held.end)
        while number < end:
            before = number
            for frame, data in self._finder.frames_at(self.index, held.local, number):
                if frame.number > number or number >= end:
                    break
                if number < frame.end:
                    yield data
                    number = frame.end
            if number == before:
                return

    def scrub(self, segment: int) -> dict[int, list[range]]:
        """Look for damage in a segment; return by stream the numbers that were found harmed.

        They are not served any more. If the segment that is written to is damaged, what is known is
        written anew, in another.
        """
        data = self.files.read(segment)
        head = decode_head(data)
        first = self.geometry.first(segment)
        bound = min(self.log.synced, first + len(data))
        is_open = segment == self.log.segment
        salt = 0 if head is None else head.salt
        view = memoryview(data)[: bound - first]
        found = [
            one for one in scan(view, HEAD_BYTES, first + HEAD_BYTES, salt) if one.position < bound
        ]
        if is_open and any(isinstance(one, Unproven) for one in found):
            self.log.renew()
        return self._note_harmed(segment, found)

    def _note_harmed(
        self, segment: int, found: Sequence[Entry | Unproven]
    ) -> dict[int, list[range]]:
        runs = {local: ones for local, ones in self.index.in_segment(segment).items() if ones}
        streams = {local: self.catalogue.of_local(local) for local in runs}
        ends = {
            local: self.index.run_end(local, runs[local][-1][0], held.end)
            for local, held in streams.items()
            if held is not None
        }
        noted: dict[int, list[range]] = {}
        for local, ranges in harmed(found, runs, ends).items():
            held = streams[local]
            if held is None:
                continue
            for numbers in ranges:
                left = [n for n in numbers if n >= held.begin and not self._is_moved(local, n)]
                if left:
                    self.catalogue.damage(held.stream, range(left[0], left[-1] + 1))
                    noted.setdefault(held.stream, []).append(range(left[0], left[-1] + 1))
        return noted

    def _is_moved(self, local: int, number: int) -> bool:
        return self.index.moved(local, number) is not None

    def repair(self, stream: int, data: bytes) -> bool:
        """Write a frame again that was fetched for one that is damaged; whether it was taken.

        It must be of the epoch that the log has at its number. Raises StoreFull.
        """
        frame, held = frames.decode(data), self.catalogue.of(stream)
        numbers = range(frame.number, frame.end)
        if held.bridge is None or not set(numbers) <= set(held.damaged):
            return False
        if epoch_at(held.bridge.firsts, frame.number) != frame.epoch or frame.stream != stream:
            return False
        position = self.log.append(EntryKind.RELOCATED, held.local, data)
        self.index.move(held.local, frame.number, position - HEADER_BYTES - len(data))
        self.catalogue.repair(stream, numbers)
        return True

    def reclaim(self) -> list[int]:
        """Free the segments in which nothing lies that is still needed; return their numbers.

        Only when all that was appended is synced: what says that they are not needed, too.
        """
        if self.log.synced != self.log.end:
            return []
        needed = self.index.segments()
        free = [n for n in self.files.numbers() if n < self.log.segment and n not in needed]
        for number in free:
            self.files.unlink(number)
        return free

    def close(self) -> None:
        """Close the log, and give the directory back; again: nothing."""
        self.log.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
