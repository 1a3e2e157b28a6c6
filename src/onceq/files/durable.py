"""The output of `collect`: a file that grows by whole batches and can be cut back to any of them.

It is a testable device (BHM90 3; spec C8). What it has taken is written in a checkpoint, its
length and the digest of all of it, which the repository keeps and changes in the transaction
that frees the replies. After a crash the file is cut back to the checkpoint, and the replies
that were not freed come again.

A new file grows under another name until its first batch is acknowledged. So a file under the
name that the user gave always has a checkpoint; otherwise it is not ours and is refused, unless it
is empty.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

import msgspec

from onceq.engine.faultpoints import faultpoint
from onceq.errors import FileMismatch, IllegalState
from onceq.files.disk import DISK, Disk


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far a file of replies is acknowledged. layout: the format and columns of its lines."""

    file: str
    layout: str
    length: int
    sha256: str


def read_checkpoint(ckpt: bytes | None) -> Checkpoint | None:
    """Returns a client's checkpoint if `collect` wrote it; otherwise None."""
    try:
        return None if ckpt is None else msgspec.json.decode(ckpt, type=Checkpoint)
    except (msgspec.DecodeError, RecursionError):
        return None


class DurableFile:
    """A file of replies. For one process at a time; a second one gets IllegalState."""

    def __init__(self, path: Path, layout: str, disk: Disk = DISK) -> None:
        self._path = path
        self._layout = layout
        self._disk = disk
        self._growing = path.with_name(f".{path.name}.growing")
        self._published = disk.exists(path)
        self._fd = self._open_locked()
        self.length = 0
        self._sha256 = hashlib.sha256()

    def _open_locked(self) -> int:
        path = self._path if self._published else self._growing
        fd = self._disk.open(path)
        ours = self._disk.lock(fd) and self._disk.is_at(fd, path)
        if not ours or self._published != self._disk.exists(self._path):
            self._disk.close(fd)
            raise IllegalState(f"{self._path} is being written by another `onceq collect`")
        return fd

    def resume(self, kept: Checkpoint | None) -> None:
        """Cuts the file back to what was acknowledged. FileMismatch: it is not what it was."""
        size = self._disk.size(self._fd)
        known = kept.length if kept is not None and size >= kept.length else 0
        self.length, self._sha256 = self._disk.digest(self._fd, known)
        here = (self.length, self._sha256.hexdigest())
        if kept is not None and here == (kept.length, kept.sha256):
            self._refuse_other_layout(kept)
            self._cut(kept.length)
            self.publish()
            return
        if self._published and size > 0:
            raise FileMismatch(self._why_not_ours(kept, size))
        self.length, self._sha256 = 0, hashlib.sha256()
        self._cut(0)

    def append(self, data: bytes) -> None:
        """Appends; the data is durable when this returns."""
        self._disk.write_all(self._fd, data, self.length)
        faultpoint("file.written")
        self._disk.sync(self._fd)
        if not self._published:  # otherwise a power cut after the acknowledge could take the name
            self._disk.sync_directory(self._path.parent)
        self.length += len(data)
        self._sha256.update(data)
        faultpoint("file.durable")

    def checkpoint(self) -> bytes:
        """Returns what `resume` needs to come back to this point."""
        return msgspec.json.encode(
            Checkpoint(
                file=str(self._path.absolute()),
                layout=self._layout,
                length=self.length,
                sha256=self._sha256.hexdigest(),
            )
        )

    def publish(self) -> None:
        """Gives the file its name: from now on it has a checkpoint. Idempotent."""
        if not self._published:
            self._disk.rename(self._growing, self._path)
            faultpoint("file.named")
            self._disk.sync_directory(self._path.parent)
            self._published = True

    def close(self) -> None:
        """Closes the file, and removes it if it is empty and has no name yet.

        What is in a file that has no name yet may be acknowledged, even if this run never got
        far enough to know: its process died before it gave the name.
        """
        if not self._published and self._disk.size(self._fd) == 0:
            self._disk.remove(self._growing)
        self._disk.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cut(self, length: int) -> None:
        self._disk.cut(self._fd, length)
        self._disk.sync(self._fd)
        faultpoint("file.cut")

    def _refuse_other_layout(self, kept: Checkpoint) -> None:
        if kept.layout != self._layout:
            raise FileMismatch(
                f"{self._path} holds {kept.layout}, not {self._layout}: "
                "give another --out, or the same --fields as before"
            )

    def _why_not_ours(self, kept: Checkpoint | None, size: int) -> str:
        if kept is None:
            return (
                f"{self._path} exists, and this client's replies were never collected into it: "
                "give another --out"
            )
        known = f"its last checkpoint is {kept.length} bytes of {kept.file}, sha256 {kept.sha256}"
        found = "it is shorter" if size < kept.length else f"it has {self._sha256.hexdigest()}"
        return (
            f"{self._path} is not what this client's replies were collected into: {known}; "
            f"{found}. Nothing was written: restore it, or give another --out"
        )
