"""What can be seen of a store's directory: what it knows, and whether its log is whole.

Nothing is changed by looking, and a store that runs may be looked at. `scrub_once` is for a store
that does not run: it heals what is damaged from other stores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from onceq.streams.errors import StoreRefused
from onceq.streams.model import frames
from onceq.streams.model.ops import WaitUntil
from onceq.streams.net.asker import Asker
from onceq.streams.store import healing, records
from onceq.streams.store.catalogue import Catalogue
from onceq.streams.store.directory import Identity, identified
from onceq.streams.store.disk_store import DiskStore, Snapshot
from onceq.streams.store.log import opening
from onceq.streams.store.log.entries import (
    HEAD_BYTES,
    Entry,
    EntryKind,
    Geometry,
    decode_head,
    walk,
)
from onceq.streams.store.log.reading import last
from onceq.streams.store.log.segments import Files
from onceq.streams.store.scrubbing import Scrubbing


class Unchanged(Files):
    """The files of a log, of which none is freed."""

    def unlink(self, number: int) -> None:
        """See Files. Nothing is done."""
        del number


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment has. size: in bytes. damaged: how many places in it cannot be read."""

    segment: int
    size: int
    entries: int
    frames: int
    damaged: int


class Scrubbed(msgspec.Struct, frozen=True, kw_only=True):
    """What a look through a whole log found: numbers that were harmed, and are no more, or are."""

    size: int
    healed: int
    left: dict[int, list[int]]


def known(directory: Path) -> tuple[Identity, Catalogue]:
    """Return what a store knows, as its last segment says. Raises StoreRefused.

    One that forgot knows nothing.
    """
    identity = identified(directory)
    geometry = Geometry(segment_bytes=identity.segment_bytes)
    found = last(Unchanged(directory), geometry, bytes.fromhex(identity.store))
    if found is None or found.forgot:
        return identity, Catalogue()
    first, *rest = found.read.entries
    made = Catalogue(msgspec.msgpack.decode(first.payload, type=Snapshot).known)
    for entry in rest:
        if entry.kind is EntryKind.FRAME and entry.is_whole:
            made.apply_frame(frames.decode(entry.payload))
        elif entry.kind in records.KINDS.values():
            made.apply(records.record_of(entry.kind, entry.payload))
    return identity, made


def verify(directory: Path) -> list[Seen]:
    """Read all segments of a store, and return what each has. Raises StoreRefused."""
    identity = identified(directory)
    files, geometry = Files(directory), Geometry(segment_bytes=identity.segment_bytes)
    numbers = files.numbers()
    return [_seen(files, geometry, number, is_last=number == numbers[-1]) for number in numbers]


def _seen(files: Files, geometry: Geometry, number: int, *, is_last: bool) -> Seen:
    size = files.size(number)
    head = decode_head(files.read_at(number, 0, HEAD_BYTES))
    if head is None:
        return Seen(segment=number, size=size, entries=0, frames=0, damaged=1)
    if is_last:
        return _last_seen(files, geometry, number)
    entries = of_frames = damaged = 0
    first = geometry.first(number)
    offsets = range(HEAD_BYTES, size)
    for one in walk(
        lambda at, length: files.read_at(number, at, length), offsets, first, head.salt
    ):
        is_whole = isinstance(one, Entry) and one.is_whole
        entries += isinstance(one, Entry)
        of_frames += isinstance(one, Entry) and one.kind is EntryKind.FRAME
        damaged += not is_whole
    return Seen(segment=number, size=size, entries=entries, frames=of_frames, damaged=damaged)


def _last_seen(files: Files, geometry: Geometry, number: int) -> Seen:
    """Return what the last segment has: behind what is synced there may be a torn tail."""
    data = files.read(number)
    head = decode_head(data)
    if head is None:
        raise StoreRefused(f"the segment {number} changed while it was read: try again")
    read = opening.read(data, head, geometry.first(number))
    return Seen(
        segment=number,
        size=len(data),
        entries=len(read.entries),
        frames=sum(one.kind is EntryKind.FRAME for one in read.entries),
        damaged=sum(not one.is_whole for one in read.entries) + read.unproven,
    )


async def scrub_once(store: DiskStore, own: str, asker: Asker) -> Scrubbed:
    """Look through the whole log of a store once, heal what is harmed, and say what was."""
    scrubbing = Scrubbing(store, own)
    program, size = healing.scrub(), 0
    answer: Any = None
    harmed: set[tuple[int, int]] = set()
    while True:
        match op := program.send(answer):
            case WaitUntil() if scrubbing.rounds:
                break
            case healing.LookOn():
                looked = scrubbing.step()
                size += looked.size
                harmed |= {(one.stream, n) for one in looked.harmed for n in one.numbers}
                answer = looked
            case healing.Mend(stream=stream, data=data):
                answer = scrubbing.mend(stream, data)
                store.log.commit()
                store.log.prepare()
            case _:
                answer = await asker.perform(op)
    program.close()
    streams = store.catalogue.streams.values()
    left = {held.stream: list(held.damaged) for held in streams if held.damaged}
    healed = len(harmed) - sum(len(ones) for ones in left.values())
    return Scrubbed(size=size, healed=healed, left=left)
