"""The files of a log: segments of one size, whose space is reserved before anything is in them.

A full disk is therefore met here only, when a spare segment is made. The files are named by their
number. `Files` is what touches the disk; a test puts one in its place that fails.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onceq.streams.store.log.entries import SegmentHead, encode_head

_NAME: Final = re.compile(r"[0-9]{10}\.seg")
_SPARE: Final = re.compile(r"spare\.[0-9]+")
_UNREADABLE: Final = frozenset({errno.ENOENT, errno.EIO})
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Files:
    """What is done to the disk, in one directory. Not for several threads at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, number: int) -> Path:
        """Return where a segment is."""
        return self.directory / f"{number:010}.seg"

    def numbers(self) -> list[int]:
        """Return the numbers of the segments that are there, ascending."""
        names = (path.name for path in self.directory.iterdir())
        return sorted(int(name[:10]) for name in names if _NAME.fullmatch(name))

    def spares(self) -> list[Path]:
        """Return the spare segments that are there."""
        return sorted(path for path in self.directory.iterdir() if _SPARE.fullmatch(path.name))

    def read(self, number: int) -> bytes:
        """Return all bytes of a segment."""
        return self.path(number).read_bytes()

    def read_at(self, number: int, offset: int, length: int) -> bytes:
        """Return some bytes of a segment; fewer where it ends, none that the disk cannot read."""
        try:
            with self.path(number).open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            return b""

    def size(self, number: int) -> int:
        """Return how many bytes a segment takes."""
        return self.path(number).stat().st_size

    def free_bytes(self) -> int:
        """Return how many bytes the disk has left for this user."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def read_index(self, number: int) -> bytes | None:
        """Return the bytes of the index of a segment; None: there is none."""
        with contextlib.suppress(FileNotFoundError):
            return self._index(number).read_bytes()
        return None

    def write_index(self, number: int, data: bytes) -> None:
        """Write the index of a segment; if the disk is full, there is none.

        It is not synced: one that is cut short shows it, and is made anew.
        """
        path = self._index(number)
        try:
            self.put(path, data)
        except OSError as error:
            self.remove(path)
            if error.errno not in _NO_SPACE:
                raise

    def put(self, path: Path, data: bytes) -> None:
        """Write all of a file that is not synced. Raises OSError if the disk is full."""
        path.write_bytes(data)

    def _index(self, number: int) -> Path:
        return self.path(number).with_suffix(".idx")

    def make_spare(self, size: int) -> bool:
        """Reserve the space of a segment; return False if the disk is full.

        The spare is complete when it has its name: one that was cut short by a crash has another.
        """
        made = self.directory / "making"
        try:
            with made.open("wb") as file:
                self.reserve(file.fileno(), size)
                os.fsync(file.fileno())
        except OSError as error:
            self.remove(made)
            if error.errno in _NO_SPACE:
                return False
            raise
        taken = {path.name for path in self.spares()}
        name = next(name for n in range(len(taken) + 1) if (name := f"spare.{n}") not in taken)
        made.rename(self.directory / name)
        self.sync_directory()
        return True

    def reserve(self, handle: int, size: int) -> None:
        """Reserve space in a new file. Raises OSError if the disk is full."""
        os.posix_fallocate(handle, 0, size)

    def begin(self, head: SegmentHead) -> int:
        """Make a spare the segment with this head; return its handle, open for writing.

        What it says of itself is on the disk before it has its name.
        """
        spare = self.spares()[0]
        handle = os.open(spare, os.O_RDWR)
        os.pwrite(handle, encode_head(head), 0)
        self.sync(handle)
        spare.rename(self.path(head.number))
        self.sync_directory()
        return handle

    def write(self, handle: int, parts: Sequence[bytes], offset: int) -> None:
        """Write some bytes, all of them."""
        left = [memoryview(part) for part in parts]
        while left:
            written = os.pwritev(handle, left[:1024], offset)
            offset += written
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if left and written:
                left[0] = left[0][written:]

    def sync(self, handle: int) -> None:
        """Return when what was written to a file is on the disk. Raises OSError if it is not."""
        os.fdatasync(handle)

    def sync_directory(self) -> None:
        """Return when the names in the directory are on the disk."""
        handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def close(self, handle: int) -> None:
        """Close a file."""
        os.close(handle)

    def cut(self, number: int, length: int) -> None:
        """Give back the space of a segment after some length, to which nothing is written more."""
        os.truncate(self.path(number), length)

    def unlink(self, number: int) -> None:
        """Free a segment, and before it its index, which is never left behind alone."""
        for path in (self._index(number), self.path(number)):
            self.remove(path)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
