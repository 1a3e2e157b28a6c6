"""A disk in memory that loses, in a power cut, what was not made durable.

For the simulator, in place of `onceq.files.disk.Disk`. After a power cut, bytes that were written
and not synced are there completely, in part or not at all, at random; so are names that were
not synced with their directory. A process that dies takes only its locks with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from onceq.files.disk import Disk
from proof.simulator.steps import DiskStep

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from proof.simulator.functions import Line


@dataclass(slots=True, eq=False)
class Inode:
    """A file: its bytes as read now, and as they would last. locked_by: an open file, or None."""

    now: bytearray = field(default_factory=bytearray)
    lasting: bytes = b""
    locked_by: int | None = None


class SimulatedDisk:
    """The files of one machine. Names are whole paths."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names: dict[str, Inode] = {}
        self._lasting: dict[str, Inode] = {}
        self._open: dict[int, Inode] = {}
        self._owners: dict[int, object] = {}
        self._last = 0

    def perform(self, owner: object, step: DiskStep) -> Any:
        """Performs a step of a process."""
        if step.name == "open":
            return self._opened(owner, *step.given)
        return getattr(self, f"_{step.name}")(*step.given)

    def content(self, name: str) -> bytes | None:
        """Returns what is in a file now; None if there is none of this name."""
        found = self._names.get(name)
        return None if found is None else bytes(found.now)

    def died(self, owner: object) -> None:
        """Closes the files of a process that has died."""
        for fd in [fd for fd, one in self._owners.items() if one is owner]:
            self._close(fd)

    def power_cut(self) -> None:
        """Loses, completely or in part, what was not made durable; no process survives it."""
        self._open.clear()
        self._owners.clear()
        self._names = dict(self._chance.choice((self._names, self._lasting)))
        for inode in self._names.values():
            inode.locked_by = None
            inode.now = bytearray(self._survives(inode))
            inode.lasting = bytes(inode.now)
        self._lasting = dict(self._names)

    def _survives(self, inode: Inode) -> bytes:
        written = bytes(inode.now)
        if self._chance.random() < 0.4:
            return inode.lasting
        end = self._chance.randint(min(len(written), len(inode.lasting)), len(written))
        same = inode.lasting[:end] == written[: len(inode.lasting)]
        torn = written[:end] if same else inode.lasting
        return torn if self._chance.random() < 0.8 else torn + bytes(len(written) - end)

    def _opened(self, owner: object, name: str) -> int:
        self._last += 1
        self._open[self._last] = self._names.setdefault(name, Inode())
        self._owners[self._last] = owner
        return self._last

    def _exists(self, name: str) -> bool:
        return name in self._names

    def _lock(self, fd: int) -> bool:
        inode = self._open[fd]
        if inode.locked_by is None:
            inode.locked_by = fd
        return inode.locked_by == fd

    def _is_at(self, fd: int, name: str) -> bool:
        return self._names.get(name) is self._open[fd]

    def _size(self, fd: int) -> int:
        return len(self._open[fd].now)

    def _read(self, fd: int, count: int, offset: int) -> bytes:
        return bytes(self._open[fd].now[offset : offset + count])

    def _write(self, fd: int, data: bytes, offset: int) -> int:
        inode = self._open[fd]
        count = self._chance.randint(1, len(data)) if len(data) > 1 else len(data)
        inode.now[offset : offset + count] = data[:count]
        return count

    def _cut(self, fd: int, length: int) -> None:
        del self._open[fd].now[length:]

    def _sync(self, fd: int) -> None:
        inode = self._open[fd]
        inode.lasting = bytes(inode.now)

    def _rename(self, name: str, to: str) -> None:
        self._names[to] = self._names.pop(name)

    def _remove(self, name: str) -> None:
        self._names.pop(name, None)

    def _close(self, fd: int) -> None:
        inode, _ = self._open.pop(fd), self._owners.pop(fd)
        if inode.locked_by == fd:
            inode.locked_by = None

    def _sync_directory(self, directory: str) -> None:
        del directory
        self._lasting = dict(self._names)


class ProcessDisk(Disk):
    """The disk as a function in a simulation uses it: each step is asked of the simulator."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def _ask(self, name: str, *given: Any) -> Any:
        return self._line.perform(DiskStep(name=name, given=given))

    def exists(self, path: Path) -> bool:
        """See Disk."""
        return cast("bool", self._ask("exists", str(path)))

    def open(self, path: Path) -> int:
        """See Disk."""
        return cast("int", self._ask("open", str(path)))

    def lock(self, fd: int) -> bool:
        """See Disk."""
        return cast("bool", self._ask("lock", fd))

    def is_at(self, fd: int, path: Path) -> bool:
        """See Disk."""
        return cast("bool", self._ask("is_at", fd, str(path)))

    def size(self, fd: int) -> int:
        """See Disk."""
        return cast("int", self._ask("size", fd))

    def read(self, fd: int, count: int, offset: int) -> bytes:
        """See Disk."""
        return cast("bytes", self._ask("read", fd, count, offset))

    def write(self, fd: int, data: memoryview, offset: int) -> int:
        """See Disk."""
        return cast("int", self._ask("write", fd, bytes(data), offset))

    def cut(self, fd: int, length: int) -> None:
        """See Disk."""
        self._ask("cut", fd, length)

    def sync(self, fd: int) -> None:
        """See Disk."""
        self._ask("sync", fd)

    def rename(self, path: Path, to: Path) -> None:
        """See Disk."""
        self._ask("rename", str(path), str(to))

    def remove(self, path: Path) -> None:
        """See Disk."""
        self._ask("remove", str(path))

    def close(self, fd: int) -> None:
        """See Disk."""
        self._ask("close", fd)

    def sync_directory(self, directory: Path) -> None:
        """See Disk."""
        self._ask("sync_directory", str(directory))
