"""A store on a disk: its catalogue and its log together, without a network.

What is decided is appended and applied at once, and answered once the log is synced behind it:
every call that changes something returns the position that `log.synced` must have passed before its
answer may be sent. Whoever owns it commits, in a thread (`log.committer`) or by `log.commit`.

When it starts, it reads the last segment, begins a new one with a snapshot, and writes again what
nobody knows to be synced. A store whose last segment is damaged knows nothing any more.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from onceq.streams.model import asks, frames
from onceq.streams.model.choice import epoch_at
from onceq.streams.store import records
from onceq.streams.store.catalogue import Catalogue, Needs, Step
from onceq.streams.store.directory import Chance, identified, locked
from onceq.streams.store.log.entries import (
    FRAMES,
    HEAD_BYTES,
    HEADER_BYTES,
    Entry,
    EntryKind,
    Geometry,
    Unproven,
    decode,
    decode_head,
    scan,
)
from onceq.streams.store.log.index import Found, Index, Places
from onceq.streams.store.log.reading import Last, last
from onceq.streams.store.log.scrub import harmed
from onceq.streams.store.log.segments import Files
from onceq.streams.store.log.writing import Log

READ_BYTES: Final = frames.FRAME_BYTES_MAX + HEADER_BYTES
"""What is read at a time: as much as the largest frame takes."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment begins with: what the catalogue knows, and where frames are."""

    known: records.Snapshot
    places: dict[int, Places]


class DiskStore:
    """A store in a directory, which it locks. forgot: its last segment was damaged.

    Raises StoreRefused if the directory is another's, or in use.
    """

    def __init__(self, directory: Path, chance: Chance, files: Files | None = None) -> None:
        identity = identified(directory)
        self._lock = locked(directory)
        self.files = Files(directory) if files is None else files
        self.geometry = Geometry(segment_bytes=identity.segment_bytes)
        store = bytes.fromhex(identity.store)
        found = last(self.files, self.geometry, store)
        self.forgot = found is not None and found.forgot
        self.catalogue = Catalogue()
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
            self.index.copy(entry.stream, frame.number, entry.position)
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
        self.index.add(entry.stream, frame.number, entry.position)
        self.catalogue.apply_frame(frame)

    def _note(self, record: records.Record) -> None:
        local = self.catalogue.of(record.stream).local
        match record:
            case records.Admitted():
                self.index.admit(local, record.kept)
            case records.Trimmed():
                self.index.trim(local, record.below)
            case _:
                pass
        self.catalogue.apply(record)

    def _append_again(self, entry: Entry) -> None:
        position = self.log.append_again(entry.kind, entry.stream, entry.payload)
        begun = position - HEADER_BYTES - len(entry.payload)
        self._apply(msgspec.structs.replace(entry, position=begun))

    def _snapshot(self) -> bytes:
        made = Snapshot(known=self.catalogue.snapshot(), places=self.index.places())
        return msgspec.msgpack.encode(made)

    def do(self, step: Step) -> int:
        """Append and apply what was decided; return the position that must be synced."""
        position = self.log.synced
        for record in step.records:
            local = self.catalogue.of(record.stream).local
            kind = records.KINDS[type(record)]
            position = self.log.append(kind, local, records.packed(record))
            self._note(record)
        return position

    def take(self, frame: frames.Frame, data: bytes, life: int) -> tuple[asks.Answer, int]:
        """Take a frame of a source's life; return the answer, and the position for it.

        data: its bytes as they came, which go into the log. Raises StoreFull.
        """
        taken = self.catalogue.take(frame, life)
        answer, position = taken.answer, self.log.end
        held = self.catalogue.of(frame.stream)
        if taken.append:
            position = self.log.append(EntryKind.FRAME, held.local, data)
            self.index.add(held.local, frame.number, position - HEADER_BYTES - len(data))
        elif taken.compare and not self._has(frame, data):
            return asks.Conflict(number=frame.number), position
        if isinstance(answer, asks.Holding):
            self.catalogue.apply_frame(frame)
        return answer, position

    def _has(self, frame: frames.Frame, data: bytes) -> bool:
        """Whether the log has this frame's messages at its number, of whatever epoch."""
        given = frames.decode(data)
        for found in self.read(frame.stream, range(frame.number, frame.end)):
            here = frames.decode(found)
            return (here.number, here.count, here.body) == (given.number, given.count, given.body)
        return True  # trimmed or damaged: it was the same, for all that can be known

    def admit(
        self, ask: asks.Admit, copies: Sequence[bytes] = ()
    ) -> tuple[asks.Answer | Needs, int]:
        """Admit the store, with copies from other stores; return the answer, or what it lacks.

        Copies of another epoch than the chosen log's at their number are not taken.
        """
        read = [frames.decode(one) for one in copies]
        if any(epoch_at(ask.log.firsts, one.number) != one.epoch for one in read):
            return Needs(begin=read[0].number, end=ask.log.end, firsts=ask.log.firsts), self.log.end
        copied = range(read[0].number, read[-1].end) if read else None
        decided = self.catalogue.admit(ask, copied)
        if isinstance(decided, Needs):
            return decided, self.log.end
        local = self.catalogue.of(ask.stream).local
        for one, data in zip(read, copies, strict=True):
            position = self.log.append(EntryKind.COPY, local, data)
            self.index.copy(local, one.number, position - HEADER_BYTES - len(data))
        return decided.answer, self.do(decided)

    def read(self, stream: int, numbers: range) -> Iterator[bytes]:
        """Yield the frames that have some numbers, as they came, up to one that is damaged.

        Only what is committed is there.
        """
        held = self.catalogue.of(stream)
        number, end = max(numbers.start, held.begin), min(numbers.stop, held.end)
        while number < end:
            before = number
            for frame, data in self._frames_at(held.local, number):
                if frame.number > number or number >= end:
                    break
                if number < frame.end:
                    yield data
                    number = frame.end
            if number == before:
                return

    def _frames_at(self, local: int, number: int) -> Iterator[tuple[frames.Frame, bytes]]:
        """Yield frames of a stream, from one at or before a number on."""
        moved = self.index.moved(local, number)
        if moved is None:
            yield from self._frames(local, self.index.find(local, number))
            return
        for entry in itertools.islice(self._entries(moved), 1):
            yield frames.decode(entry.payload), entry.payload

    def _frames(self, local: int, found: Found | None) -> Iterator[tuple[frames.Frame, bytes]]:
        """Yield the whole frames of a stream in one run, from a mark on."""
        if found is None:
            return
        for entry in self._entries(found.position):
            if entry.stream == local and entry.kind in FRAMES and entry.is_whole:
                frame = frames.decode(entry.payload)
                if found.until is not None and frame.number >= found.until:
                    return
                yield frame, entry.payload

    def _entries(self, position: int) -> Iterator[Entry]:
        """Yield the entries of a segment, from a position on, up to the first that is none."""
        segment = self.geometry.number(position)
        head = decode_head(self.files.read_at(segment, 0, HEAD_BYTES))
        if head is None:
            return
        data = memoryview(b"")
        at = 0
        while True:
            entry = decode(data, at, position, head.salt)
            if (entry is None and at > 0) or not data:
                offset = self.geometry.offset(position)
                data = memoryview(self.files.read_at(segment, offset, READ_BYTES))
                at = 0
                entry = decode(data, at, position, head.salt)
            if entry is None:
                return
            yield entry
            at += entry.end - position
            position = entry.end

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
