"""The disk operations under `collect` and `submit`, so that a test can replace them.

Used by `onceq.files.durable` and `onceq.files.track`. Written data lasts from `sync` on, a name
from `sync_directory` on: after a power cut, nothing else is certain.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Any, Final

from onceq.engine.embedded.directory import sync_directory

READ_BYTES: Final = 1_048_576


class Disk:
    """The disk of this machine. OSError as `os` raises it."""

    def exists(self, path: Path) -> bool:
        """Returns whether there is a file of this name."""
        return path.exists()

    def open(self, path: Path) -> int:
        """Opens a file for reading and writing, and creates it if it does not exist."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def lock(self, fd: int) -> bool:
        """Locks a file for this process, until it is closed; False: another has locked it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_at(self, fd: int, path: Path) -> bool:
        """Returns whether an open file still has this name."""
        return path.exists() and os.path.samestat(os.fstat(fd), path.stat())

    def size(self, fd: int) -> int:
        """Returns the length of a file, in bytes."""
        return os.fstat(fd).st_size

    def read(self, fd: int, count: int, offset: int) -> bytes:
        """Returns at most this many bytes from the offset on; none at the end."""
        return os.pread(fd, count, offset)

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        """Writes at the offset; returns how many bytes were written."""
        return os.pwrite(fd, data, offset)

    def write_all(self, fd: int, data: bytes, offset: int) -> None:
        """Writes all of it, from the offset on."""
        view = memoryview(data)
        while view:
            wrote = self.write(fd, view, offset)
            view = view[wrote:]
            offset += wrote

    def digest(self, fd: int, length: int) -> tuple[int, Any]:
        """Returns how many bytes there are, up to this length, and their sha256, to go on with."""
        sha256, done = hashlib.sha256(), 0
        while done < length and (chunk := self.read(fd, min(READ_BYTES, length - done), done)):
            sha256.update(chunk)
            done += len(chunk)
        return done, sha256

    def cut(self, fd: int, length: int) -> None:
        """Cuts a file to this length."""
        os.ftruncate(fd, length)

    def sync(self, fd: int) -> None:
        """Makes what was written to a file durable."""
        os.fsync(fd)

    def rename(self, path: Path, to: Path) -> None:
        """Gives a file another name."""
        path.rename(to)

    def remove(self, path: Path) -> None:
        """Removes a file, if it is there."""
        path.unlink(missing_ok=True)

    def close(self, fd: int) -> None:
        """Closes a file."""
        os.close(fd)

    def sync_directory(self, directory: Path) -> None:
        """Makes the names in a directory durable."""
        sync_directory(directory)


DISK = Disk()
