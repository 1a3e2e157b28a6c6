"""A store on a disk: its catalogue and its log together, without a network.

A position is one of its log: an answer may be sent when `log.synced` has passed that of its call.
Whoever owns the store commits, in a thread (`log.committer`) or by `log.commit`.

When it starts, it reads the last segment, begins a new one with a snapshot, and writes again what
nobody knows to be synced. A store whose last segment is damaged knows nothing any more.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from onceq.streams.errors import StoreRefused
from onceq.streams.model import frames
from onceq.streams.model.log import epoch_at
from onceq.streams.store import limits, records
from onceq.streams.store.directory import Chance, identified, locked
from onceq.streams.store.log.committer import mark
from onceq.streams.store.log.entries import (
    FRAMES,
    HEAD_BYTES,
    HEADER_BYTES,
    Entry,
    EntryKind,
    Geometry,
    Unproven,
    decode_head,
    size_of,
)
from onceq.streams.store.log.finding import Finder
from onceq.streams.store.log.index import Index, Places
from onceq.streams.store.log.index_files import IndexFiles
from onceq.streams.store.log.reading import Last, last
from onceq.streams.store.log.scrub import Survey
from onceq.streams.store.log.segments import Files
from onceq.streams.store.log.writing import Log
from onceq.streams.store.reclaiming import Reclaiming
from onceq.streams.store.store import Store
from onceq.streams.store.weights import Weighed, Weights

RECLAIM_EVERY: Final = 10
"""How often a store is tended before it looks again for segments to free."""
SAID_MAX: Final = 1_024
"""Of so many streams a mark says what is stable; the next says it of others."""


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
        if identity.keeps is not self.keeps:
            raise StoreRefused(f"{directory} is the directory of another kind of store")
        self._lock = locked(directory)
        self.files = Files(directory) if files is None else files
        self.geometry = Geometry(segment_bytes=identity.segment_bytes)
        self.marks = IndexFiles(self.files, self.geometry)
        self.finder = Finder(self.files, self.geometry, self.marks)
        store = bytes.fromhex(identity.store)
        found = last(self.files, self.geometry, store)
        self.forgot = found is not None and found.forgot
        self.index = Index(self.geometry)
        self.reclaiming = Reclaiming(self)
        self._marked = self._tended = 0
        self._said: dict[int, int] = {}
        self._is_copying = False
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
        self.log.sealed = self.marks.write
        self.log.prepare()
        for entry in again:
            self._append_again(entry)
        self.log.commit()
        self._said = {one.local: one.stable for one in self.catalogue.streams.values()}
        freed = self.reclaim()
        if found is not None and not self.forgot and found.number not in freed:
            self._seal(found)

    @property
    def scrubbed(self) -> DiskStore:
        """See Store."""
        return self

    def _seal(self, found: Last) -> None:
        """Cut the segment that was the last one, and write its marks."""
        self.files.cut(found.number, self.geometry.offset(found.read.end))
        head = decode_head(self.files.read_at(found.number, 0, HEAD_BYTES))
        if head is not None:
            self.marks.write(head)

    def _replay(self, found: Last | None) -> Sequence[Entry]:
        """Apply what is synced; return what must be written again first."""
        if found is None or found.forgot:
            return ()
        first, *rest = found.read.entries
        known = msgspec.msgpack.decode(first.payload, type=Snapshot)
        self.catalogue = self._catalogue(known.known)
        self.index = Index(self.geometry, known.places)
        self.weights = Weights(known.weights, self._clock())
        unsynced = [one for one in rest if one.end > found.read.synced]
        for entry in rest[: len(rest) - len(unsynced)]:
            self._apply(entry)
        if self._unknown:
            self._forget()
            return ()
        self.note_lacking(found.number)
        return unsynced

    def note_lacking(self, last_segment: int) -> None:
        """Note as damaged what is nowhere: it was damaged, or its segment is not there.

        last_segment: that may not be there yet.
        """
        needed = {number for number in self.index.alive() if number < last_segment}
        for segment in needed - {*self.files.numbers()}:
            for local, runs in self.index.in_segment(segment).items():
                self.index.drop(local, runs)
        for held in tuple(self.catalogue.streams.values()):
            for numbers in self.index.lacking(held.local, range(held.begin, held.end)):
                self.catalogue.damage(held.stream, numbers)

    def _forget(self) -> None:
        """Know nothing any more: what was damaged may have been more than what is left says."""
        self.forgot = True
        self.catalogue = self._catalogue()
        self.index = Index(self.geometry)
        self.weights = Weights()

    def _apply(self, entry: Entry) -> None:
        if entry.kind in FRAMES:
            self._apply_frame(entry)
        elif entry.kind is EntryKind.MARK:
            for local, below in records.stable_of(entry.payload).items():
                self.catalogue.note_stable(local, below)
        elif entry.kind in records.KINDS.values():
            self._note(records.record_of(entry.kind, entry.payload))

    def _apply_frame(self, entry: Entry) -> None:
        """Apply a frame. One that is damaged is known to be one: the next says which numbers.

        Those of a copy, and of what was written again, are known from elsewhere.
        """
        if not entry.is_whole:
            if entry.kind is EntryKind.FRAME:
                self._unknown.add(entry.stream)
            return
        frame = frames.decode(entry.payload)
        held = self.catalogue.of(frame.stream)
        is_moved = entry.kind is EntryKind.RELOCATED
        is_known = entry.kind is EntryKind.COPY or frame.number + is_moved <= held.end
        if entry.stream in self._unknown and not is_known:
            self._unknown.remove(entry.stream)
            known_below = frame.end if is_moved else frame.number
            self.catalogue.damage(frame.stream, range(held.end, known_below))
        self._place(entry.kind, entry.stream, frame, entry.position)
        if is_moved:
            self.catalogue.repair(frame.stream, range(frame.number, frame.end))
        elif entry.kind is EntryKind.FRAME:
            self.catalogue.apply_frame(frame)

    def _place(self, kind: EntryKind, local: int, frame: frames.Frame, position: int) -> None:
        """Note where a frame is, and how many bytes the stream has with it."""
        numbers = range(frame.number, frame.end)
        data_bytes = frames.HEADER_BYTES + len(frame.body)
        size = HEADER_BYTES + data_bytes
        match kind:
            case EntryKind.COPY:
                self.index.copy(local, numbers, position, size)
                self.weights.copy(local, numbers, data_bytes)
            case EntryKind.RELOCATED:
                self.index.move(local, numbers, position, size)
            case _:
                self.index.add(local, numbers, position, size)
                self.weights.of(local).add(numbers, data_bytes, self._clock())
        self.marks.note(local, kind, frame.number, position)

    def _note(self, record: records.Record) -> None:
        local = self.catalogue.of(record.stream).local
        match record:
            case records.Admitted():
                self.index.admit(local, record.kept, record.end)
                self.index.trim(local, record.begin)
                self.weights.admit(
                    local, record.kept, self._clock(), record.end, begin=record.begin
                )
            case records.Ended():
                self.index.admit(local, 0, 0)
                self.weights.admit(local, 0, self._clock(), 0)
            case records.Trimmed():
                self.index.trim(local, record.below)
                self.weights.of(local).trim(record.below)
            case _:
                pass
        self.catalogue.apply(record)

    def _append_again(self, entry: Entry) -> None:
        position = self.log.append_again(entry.kind, entry.stream, entry.payload)
        begun = position - size_of(entry.payload)
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

    @property
    def synced(self) -> int:
        """The position of all that is on the disk."""
        return self.log.synced

    def tend(self) -> None:
        """Free segments, copy forward what is left in one, and say how far the log is synced.

        An idle log says what is stable too: the last frames could not, and a source that has ended
        tells it to nobody who starts again.
        """
        if not self.log.has_pending():
            self._mark(self.stable_unsaid())
        self._tended += 1
        if self._is_copying or self._tended % RECLAIM_EVERY == 0:
            self.reclaiming.free()
            self._is_copying = self.reclaiming.step() > 0

    def mark_stable(self) -> None:
        """Say in the log what is stable, if it does not: the store is about to end."""
        while self.log.failed is None and (unsaid := self.stable_unsaid()):
            payload = records.packed_stable(unsaid)
            if not self.log.has_room(len(payload), EntryKind.MARK):
                return
            self.log.append(EntryKind.MARK, 0, payload)
            self._said.update(unsaid)

    def stable_unsaid(self) -> Mapping[int, int]:
        """Return below what streams are stable, by short numbers, where no mark has said it."""
        held = self.catalogue.streams.values()
        unsaid = ((one.local, one.stable) for one in held)
        later = (one for one in unsaid if one[1] != self._said.get(one[0], 0))
        return dict(itertools.islice(later, SAID_MAX))

    def _mark(self, unsaid: Mapping[int, int]) -> None:
        payload = records.packed_stable(unsaid) if unsaid else b""
        if self.log.has_room(len(payload), EntryKind.MARK):
            self._marked = mark(self.log, self._marked, payload)
            self._said.update(unsaid)

    def _put(self, record: records.Record) -> int:
        local = self.catalogue.of(record.stream).local
        kind = records.KINDS[type(record)]
        position = self.log.append(kind, local, records.packed(record))
        self._note(record)
        return position

    def _append(self, local: int, frame: frames.Frame, data: bytes) -> int:
        return self._append_as(EntryKind.FRAME, local, frame, data)

    def _append_copy(self, local: int, frame: frames.Frame, data: bytes) -> int:
        return self._append_as(EntryKind.COPY, local, frame, data)

    def append_again(self, local: int, frame: frames.Frame, data: bytes) -> int:
        """Write a frame of a stream again; return the position. Raises StoreFull."""
        return self._append_as(EntryKind.RELOCATED, local, frame, data)

    def _append_as(self, kind: EntryKind, local: int, frame: frames.Frame, data: bytes) -> int:
        position = self.log.append(kind, local, data)
        self._place(kind, local, frame, position - size_of(data))
        return position

    def read(self, stream: int, numbers: range) -> Iterator[bytes]:
        """Yield the frames that have some numbers, as they came, up to one that is damaged.

        Only what is synced is there.
        """
        held = self.catalogue.of(stream)
        number, end = max(numbers.start, held.begin), min(numbers.stop, held.end)
        while number < end:
            before = number
            run = self.index.find(held.local, number)
            if run is None:
                return
            for frame, data in self.finder.frames(held.local, run, number, self.log.synced):
                yield data
                number = frame.end
                if number >= end:
                    return
            if number == before:
                return

    def scrub(self, segment: int) -> dict[int, list[range]]:
        """Look for damage in a segment; return by stream the numbers that were found harmed.

        They are not served any more. If the segment that is written to is damaged, what is known is
        written anew, in another.
        """
        survey, left = self.survey(segment)
        for one in left:
            survey.take(one)
        return self.note_survey(segment, survey)

    def survey(self, segment: int) -> tuple[Survey, Iterator[Entry | Unproven]]:
        """Return a survey of a segment that is still to take what is found in it, one by one."""
        first = self.geometry.first(segment)
        bound = min(first + self.geometry.segment_bytes, self.log.synced)
        return Survey(bound), self.finder.entries(segment, range(first + HEAD_BYTES, bound))

    def note_survey(self, segment: int, survey: Survey) -> dict[int, list[range]]:
        """Note what a survey of a segment found; return by stream the numbers that are harmed.

        Raises StoreFull if the segment that is written to is damaged, and there is no other.
        """
        noted: dict[int, list[range]] = {}
        for local, ranges in survey.harmed(self.index.in_segment(segment)).items():
            held = self.catalogue.of_local(local)
            if held is None:
                continue
            for numbers in ranges:
                self.catalogue.damage(held.stream, numbers)
            noted[held.stream] = ranges
        if segment == self.log.segment and survey.has_damage:
            self.log.renew()
        return noted

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
        self.append_again(held.local, frame, data)
        self.catalogue.repair(stream, numbers)
        return True

    def reclaim(self) -> list[int]:
        """Free the segments in which nothing lies that is still needed; return their numbers.

        Each waits until what says that it is not needed is synced.
        """
        return self.reclaiming.free()

    @property
    def size_bytes(self) -> int:
        """How many bytes its segments take on the disk, with those that are reserved."""
        spares = len(self.files.spares()) * self.geometry.segment_bytes
        return spares + sum(self.files.size(number) for number in self.files.numbers())

    def close(self) -> None:
        """Close the log, and give the directory back; again: nothing."""
        self.log.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
