"""The disk that loses its power: what is under PostgreSQL, and how it is frozen.

For this package only. From below: a file of the run; on it an XFS with reflink, the *ground*; on
that one file for each *drive*, written without a page cache, so that it is what the platter holds,
at once and with no need to flush (no power is cut below it); on that an ext4 without barriers with
a single file, `disk`, whose page cache there is the drive's own volatile cache, written out when
the drive is told to flush; and on that file the ext4 or XFS of PostgreSQL, whose page cache is the
memory of the machine.

A cut is a clone of a drive's file: it has what the platter held at that instant, and neither cache.
`disk` has all its blocks from the beginning; where a zeroing changes their map nevertheless, the
lower ext4's journal makes that one more write that a flush makes stable.
"""

from __future__ import annotations

import enum
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq.engine.embedded import open_embedded
from onceq.engine.embedded.locks import FileLock
from proof.powercut import devices

if TYPE_CHECKING:
    import random
    from collections.abc import Generator
    from pathlib import Path
    from typing import Self

GROUND_BYTES = 4 << 30
"""The most that a run takes; the file has no more blocks than were ever in use."""

MAKE = {
    "ext4": (
        "mkfs.ext4",
        "-q",
        "-m",
        "0",
        "-E",
        "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
    ),
    "xfs": ("mkfs.xfs", "-q", "-K", "-s", "size=4096"),
}
"""How a file system is made without giving blocks back to what is below."""

_DISK_BYTES = 560 << 20
_DRIVE_BYTES = _DISK_BYTES + (80 << 20)
_CHUNK = bytes(4 << 20)
_PIECES = 400
_DESTAGE_S = (0, 0.03)


class Cache(enum.Enum):
    """What becomes of writes that a drive has taken but was not told to flush."""

    LOST = "all lost"
    SOME = "some lost, in any order"
    KEPT = "all kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of disk. system: ext4 or xfs, under PostgreSQL."""

    system: str
    cache: Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A frozen drive. began_ns, ended_ns: around the instant, on the clock of the events."""

    image: Path
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """A drive with power: PostgreSQL's directory on it, and how to cut the power."""

    image: Path
    disk: Path
    cluster: Path
    kind: Kind

    def cut(self, image: Path, chance: random.Random) -> Cut:
        """Freezes the drive into a file of its own; the drive goes on."""
        if self.kind.cache is Cache.SOME:
            self._destage(chance)
        began_ns = time.monotonic_ns()
        devices.clone(self.image, image)
        return Cut(image=image, began_ns=began_ns, ended_ns=time.monotonic_ns())

    def _destage(self, chance: random.Random) -> None:
        """Lets the drive begin to write out pieces of its cache, as it may at any time."""
        with self.disk.open("rb") as file:
            for _ in range(_PIECES):
                at = chance.randrange(_DISK_BYTES) & ~0xFFF
                length = 4096 << chance.randrange(12)
                os.posix_fadvise(file.fileno(), at, length, os.POSIX_FADV_DONTNEED)
        threading.Event().wait(chance.uniform(*_DESTAGE_S))


class Ground:
    """The file system on which drives are files; for the time of a block.

    Raises DeviceFailed where this machine cannot; ends first what runs that were killed have left.
    """

    def __init__(self, place: Path) -> None:
        self._place = place.resolve()
        self._files = self._place / "ground"
        self._templates: dict[str, Path] = {}

    def __enter__(self) -> Self:
        devices.end_leftovers()
        self._lock = FileLock(self._place / devices.LOCK)
        if not self._lock.try_exclusive():
            raise devices.DeviceFailed(f"another run uses {self._place}")
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        image = self._place / devices.IMAGE
        free = os.statvfs(self._place)
        if free.f_bavail * free.f_frsize < GROUND_BYTES:
            raise devices.DeviceFailed(f"{GROUND_BYTES >> 30} GiB of free space are needed")
        _make_sparse(image, GROUND_BYTES)
        devices.command("mkfs.xfs", "-q", "-m", "reflink=1", image)
        devices.mount(image, self._files, direct=False)

    def __exit__(self, *_: object) -> None:
        try:
            devices.end(self._place)
        finally:
            self._lock.release()

    def file(self, name: str) -> Path:
        """Returns where a drive's file of this name is."""
        return self._files / f"{name}.drive"

    def fresh(self, name: str, system: str) -> Path:
        """Makes the file of a drive with a new cluster of PostgreSQL's on it."""
        if system not in self._templates:
            self._templates[system] = self._make_template(system)
        devices.clone(self._templates[system], self.file(name))
        return self.file(name)

    def _make_template(self, system: str) -> Path:
        image, bare = self.file(f"template-{system}"), self._place / "template"
        _make_sparse(image, _DRIVE_BYTES)
        devices.command(*MAKE["ext4"], image)
        devices.mount(image, bare, "nobarrier", direct=True)
        with (bare / "disk").open("wb") as file:
            for _ in range(_DISK_BYTES // len(_CHUNK)):
                file.write(_CHUNK)
            file.flush()
            os.fsync(file.fileno())
        devices.command(*MAKE[system], bare / "disk")
        devices.unmount(bare)
        with (
            self.powered(image, "template", Kind(system=system, cache=Cache.LOST)) as drive,
            open_embedded(drive.cluster),
        ):
            pass
        return image

    @contextmanager
    def powered(self, image: Path, name: str, kind: Kind) -> Generator[Drive]:
        """Mounts what is on a drive, for the time of a block. Raises DeviceFailed."""
        bare, top = self._place / f"drive-{name}", self._place / f"disk-{name}"
        devices.mount(image, bare, "nobarrier", direct=True)
        try:
            # A copy has the name (uuid) of its original, which XFS would refuse.
            options = ["nouuid"] if kind.system == "xfs" else []
            kept = kind.cache is Cache.KEPT
            devices.mount(bare / "disk", top, *options, direct=kept)
            try:
                cluster = top / devices.CLUSTER
                yield Drive(image=image, disk=bare / "disk", cluster=cluster, kind=kind)
            finally:
                devices.let_go(top)
        finally:
            devices.unmount(bare)


def _make_sparse(path: Path, size: int) -> None:
    with path.open("xb") as file:
        file.truncate(size)
