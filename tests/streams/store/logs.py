"""What tests of a store's log share: small segments, frames, and disks that fail."""

from __future__ import annotations

import errno
import itertools
import os
from typing import TYPE_CHECKING

from onceq.streams.model.frames import Frame, FrameKind, body_of, encode
from onceq.streams.store.log.entries import EntryKind, Geometry
from onceq.streams.store.log.reading import last
from onceq.streams.store.log.segments import Files
from onceq.streams.store.log.writing import Log

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.streams.store.log.entries import Entry
    from onceq.streams.store.log.reading import Last

STORE = b"0123456789abcdef"
SMALL = Geometry(segment_bytes=2_048)


class Ailing(Files):
    """A disk that is full, or whose syncs fail, when it is told to."""

    is_full = False
    sync_fails = False
    syncs = 0

    def reserve(self, handle: int, size: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().reserve(handle, size)

    def sync(self, handle: int) -> None:
        self.syncs += 1
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(handle)


def frame(number: int, text: bytes = b"message") -> bytes:
    return encode(
        Frame(
            kind=FrameKind.MESSAGES,
            stream=1,
            epoch=1,
            number=number,
            stable=number,
            count=1,
            body=body_of([text]),
        )
    )


def begun(
    directory: Path, *, files: Files | None = None, number: int = 0, geometry: Geometry = SMALL
) -> Log:
    """A log with enough spare segments; its salts are 1, 2, 3 ..."""
    salts = itertools.count(number + 1)
    log = Log(
        files or Files(directory),
        geometry,
        store=STORE,
        number=number,
        salt=lambda: next(salts),
        snapshot=lambda: b"snapshot",
    )
    log.prepare()
    return log


def opened(directory: Path, geometry: Geometry = SMALL) -> Last:
    found = last(Files(directory), geometry, STORE)
    assert found is not None
    return found


def frames_of(entries: tuple[Entry, ...]) -> list[bytes]:
    return [one.payload for one in entries if one.kind is EntryKind.FRAME]
