"""What tests of a store's log share: small segments, frames, and disks that fail."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from onceq.streams.model.frames import Frame, FrameKind, body_of, encode
from onceq.streams.store.log.entries import EntryKind, Geometry
from onceq.streams.store.log.reading import last
from onceq.streams.store.log.segments import Files
from onceq.streams.store.log.writing import Log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.streams.store.log.entries import Entry
    from onceq.streams.store.log.reading import Last

STORE = b"0123456789abcdef"
SMALL = Geometry(segment_bytes=2_048)


class Ailing(Files):
    """A disk that is full, or whose syncs fail, when it is told to."""

    is_full = False
    takes_no_index = False
    sync_fails = False
    syncs = 0

    def reserve(self, handle: int, size: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().reserve(handle, size)

    def put(self, path: Path, data: bytes) -> None:
        super().put(path, data[: len(data) // 2] if self.takes_no_index else data)
        if self.takes_no_index:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

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


class Killed(BaseException):
    """The process is no more."""


class Mortal(Files):
    """A disk whose process dies at its n-th operation: before it, or in the middle of a write.

    takes_unsynced: the power fails: what was not synced is not there, and what was removed may be.
    """

    def __init__(self, directory: Path, dies_at: int, *, takes_unsynced: bool) -> None:
        super().__init__(directory)
        self.left = dies_at
        self._takes_unsynced = takes_unsynced
        self._written: dict[Path, list[tuple[int, int]]] = {}
        self._removed: dict[Path, bytes] = {}

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            self._die()

    def _die(self) -> None:
        if self._takes_unsynced:
            for path, written in self._written.items():
                for offset, length in written if path.exists() else ():
                    with path.open("r+b") as file:
                        file.seek(offset)
                        file.write(bytes(length))
            for path, data in self._removed.items():
                path.write_bytes(data)
        raise Killed

    def put(self, path: Path, data: bytes) -> None:
        self._live()
        super().put(path, data if self.left else data[: len(data) // 2])
        self._written[path] = [(0, len(data))]

    def write(self, handle: int, parts: Sequence[bytes], offset: int) -> None:
        self._live()
        data = b"".join(parts)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        self._written.setdefault(path, []).append((offset, len(data)))
        if self.left == 0:
            super().write(handle, [data[: len(data) // 2]], offset)
            self._die()
        super().write(handle, parts, offset)

    def sync(self, handle: int) -> None:
        self._live()
        super().sync(handle)
        self._written.pop(Path(f"/proc/self/fd/{handle}").readlink(), None)

    def cut(self, number: int, length: int) -> None:
        self._live()
        super().cut(number, length)

    def reserve(self, handle: int, size: int) -> None:
        self._live()
        super().reserve(handle, size)

    def sync_directory(self) -> None:
        self._live()
        super().sync_directory()
        self._removed.clear()

    def remove(self, path: Path) -> None:
        self._live()
        if path.exists():
            self._removed[path] = path.read_bytes()
        super().remove(path)
