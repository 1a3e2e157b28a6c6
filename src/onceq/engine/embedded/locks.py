"""File locks that live exactly as long as their holders.

For this package only. Three files in the directory:

- `users.lock`: shared by every open EmbeddedServer; stopping, unless forced, needs it exclusively.
- `change.lock`: exclusive, held briefly by whoever starts or stops the server.
- `run.lock`: exclusive; its descriptor is inherited by PostgreSQL's processes, so it
    is held exactly as long as one of them lives, whatever killed the others.

Lock order: users, change, run. Whoever holds `change` only *tries* for `users`.
The locks are flock's, which belong to the open file. A fork would keep them, so a
forked child closes its copies at once, and exec closes them by FD_CLOEXEC.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref
from collections.abc import Callable, Generator
from pathlib import Path

from onceq.errors import EmbeddedError

_PAUSE_MAX_S = 0.03


class Deadline:
    """A point in time on the monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def half(self) -> Deadline:
        """The point half-way between now and this one."""
        return Deadline(self.left_s() / 2)

    def passed(self) -> bool:
        """True when no time is left."""
        return self.left_s() <= 0.0


def poll_until(condition: Callable[[], bool], deadline: Deadline) -> bool:
    """Wait until the condition holds (tried at least once); False at the deadline."""
    pause_s = 0.002
    while not condition():
        if deadline.passed():
            return False
        time.sleep(min(pause_s, deadline.left_s()))
        pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)
    return True


class FileLock:
    """One open lock file, not locked at first. Not for use by several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = _open(path)
        _close_in_children(self)

    @property
    def fd(self) -> int:
        """The descriptor; -1 once closed, and in a forked child."""
        return self._fd

    def try_exclusive(self) -> bool:
        """Take or convert to the exclusive lock without waiting.

        A refused conversion loses the shared lock that was held.
        """
        return self._try(fcntl.LOCK_EX)

    def try_shared(self) -> bool:
        """Take the shared lock without waiting."""
        return self._try(fcntl.LOCK_SH)

    def wait_exclusive(self, deadline: Deadline) -> bool:
        """Take the exclusive lock; False at the deadline."""
        return poll_until(self.try_exclusive, deadline)

    def wait_shared(self, deadline: Deadline) -> bool:
        """Take the shared lock; False at the deadline."""
        return poll_until(self.try_shared, deadline)

    def release(self) -> None:
        """Unlock for every holder of this open file, then close. Idempotent."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.close()

    def close(self) -> None:
        """Close only this process's copy: others that inherited it keep the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _try(self, mode: int) -> bool:
        """Lock; reopens a file that was replaced or deleted since it was opened."""
        if self._fd < 0:
            raise EmbeddedError(f"{self.path}: this lock was closed, or opened before a fork.")
        try:
            fcntl.flock(self._fd, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise _unlockable(self.path, error) from error
        if self._is_current():
            return True
        self.close()
        self._fd = _open(self.path)
        return False

    def _is_current(self) -> bool:
        try:
            on_disk = self.path.stat()
        except FileNotFoundError:
            return False
        mine = os.fstat(self._fd)
        return (on_disk.st_dev, on_disk.st_ino) == (mine.st_dev, mine.st_ino)


@contextlib.contextmanager
def exclusively(path: Path, deadline: Deadline) -> Generator[FileLock, None, None]:
    """Hold a lock file exclusively; EmbeddedError at the deadline."""
    lock = FileLock(path)
    try:
        if not lock.wait_exclusive(deadline):
            raise EmbeddedError(
                f"{path} was held by another process for {deadline.timeout_s:g} s "
                f"(pids {_words(holder_pids(path))}); see what it does, or wait longer."
            )
        yield lock
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether somebody holds the file exclusively now; looking holds it shared for an instant."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)  # not only closed: a fork might have a copy
    except BlockingIOError:
        return True
    except OSError as error:
        raise _unlockable(path, error) from error
    finally:
        os.close(fd)
    return False


def holder_pids(path: Path) -> tuple[int, ...] | None:
    """The pids that took locks on the file, or None where the system does not tell."""
    try:
        inode = path.stat().st_ino
        table = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return None
    rows = (line.split() for line in table.splitlines())
    # 1: FLOCK ADVISORY READ 4711 fe:00:1234 0 EOF; waiting ones have "->" in column two
    pids = {int(r[4]) for r in rows if r[1] == "FLOCK" and r[5].rpartition(":")[2] == str(inode)}
    return tuple(sorted(pids))


def _words(pids: tuple[int, ...] | None) -> str:
    return "unknown" if pids is None else ", ".join(map(str, pids)) or "none"


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise EmbeddedError(f"Cannot open the lock file {path}: {error.strerror}.") from error


def _unlockable(path: Path, error: OSError) -> EmbeddedError:
    return EmbeddedError(
        f"{path} cannot be locked: {error.strerror}. "
        "Name a directory on a local disk, whose file system has flock."
    )


def _close_in_children(lock: FileLock) -> None:
    """A forked child (multiprocessing) must not keep its parent's locks."""
    reference = weakref.ref(lock)

    def close() -> None:
        held = reference()
        if held is not None:
            held.close()

    os.register_at_fork(after_in_child=close)
