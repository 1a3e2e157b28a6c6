"""A small disk for PostgreSQL: a file system in a file, which can be filled to the last byte.

Needs root, `mkfs.ext4` and loop devices; `why_not` says what is missing. Mounted for the time of a
run, and unmounted after it.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

BYTES: Final = 6_000_000_000
_FILLER: Final = "filler"
_LEFT_BYTES: Final = 1 << 20
"""What is taken in small pieces: PostgreSQL takes some meanwhile."""
_PIECE_BYTES: Final = 4096


class SmallDisk:
    """A file system of its own in `place`. why_not: None, or why there is none."""

    def __init__(self, place: Path) -> None:
        self.root = place / "disk"
        self.why_not: str | None = None
        self._image = place / "disk.image"
        if os.geteuid() != 0:
            self.why_not = "only root may mount a small file system"
        elif shutil.which("mkfs.ext4") is None or shutil.which("mount") is None:
            self.why_not = "there is no mkfs.ext4 or no mount"
        else:
            self._mount()

    def _mount(self) -> None:
        self.root.mkdir(mode=0o700)
        with self._image.open("wb") as image:
            image.truncate(BYTES)
        make = ["mkfs.ext4", "-q", "-F", "-m", "0", str(self._image)]
        mount = ["mount", "-o", "loop", str(self._image), str(self.root)]
        for command in (make, mount):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.why_not = f"{command[0]}: {done.stderr.strip()}"
                self._image.unlink()
                return
        self.root.chmod(0o700)

    def fill(self) -> None:
        """Leaves no byte."""
        found = os.statvfs(self.root)
        try:
            with (self.root / _FILLER).open("wb", buffering=0) as file:
                most = max(1, found.f_bfree * found.f_frsize - _LEFT_BYTES)
                os.posix_fallocate(file.fileno(), 0, most)
                while True:  # until the disk is full
                    file.write(bytes(_PIECE_BYTES))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def clear(self) -> None:
        """Gives the room back."""
        (self.root / _FILLER).unlink(missing_ok=True)

    def close(self, *, keep: bool) -> None:
        """Unmounts; keep: and leaves the file, to be mounted again. OSError when it is in use."""
        if self.why_not is not None:
            return
        done = subprocess.run(
            ["umount", str(self.root)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise OSError(f"umount: {done.stderr.strip()}")
        if not keep:
            self._image.unlink()
