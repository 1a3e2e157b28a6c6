"""Scratch directories for Spark's spill, warehouse and log settings.

Called by `onceq.spark.session`. A directory belongs to the process that made it
and is removed when that process ends; what a killed process left behind is
removed by the next one of the same user.

Invariants: a directory is removed only by the holder of its lock, and a process
holds the lock of its own until it has died, so no living session loses its
files. It never follows a path that another user prepared.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

from onceq import errors

__all__ = ["claim_scratch"]

LOCK_NAME = "lock"


def claim_scratch(parent: Path | None = None) -> Path:
    """Make a scratch directory that lives as long as this process; return it.

    `parent` None means the temporary directory. Directories of processes that
    have died are removed first. Raises EnvironmentFault (nothing happened) if
    the base is another user's or cannot be written.
    """
    base = (parent or Path(tempfile.gettempdir())) / f"onceq-spark-{os.getuid()}"
    try:
        _make_private(base)
        with _locked(base / LOCK_NAME):
            _sweep(base)
            scratch = Path(tempfile.mkdtemp(prefix="session-", dir=base))
            # Never closed: the kernel releases it when this process ends, however it ends.
            # Under the base's lock, so that no sweep sees the directory without its owner.
            _lock(scratch / LOCK_NAME, wait=True)
    except OSError as error:
        text = f"cannot make a scratch directory under {base}: {error.strerror}"
        raise errors.EnvironmentFault(f"{text}; set TMPDIR to a directory of yours") from error
    atexit.register(_remove_own, scratch, os.getpid())
    return scratch


def _make_private(base: Path) -> None:
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise errors.EnvironmentFault(
            f"{base} exists and is not a private directory of this user; "
            "remove it, or set TMPDIR to a directory of yours"
        )


def _lock(path: Path, *, wait: bool) -> int | None:
    """Lock a file; return its descriptor, or None if another holds it and `wait` is false."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    descriptor = _lock(path, wait=True)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _sweep(base: Path) -> None:
    """Remove the directories whose owner has died. The base's lock is held."""
    for abandoned in base.glob("session-*"):
        # If it is gone by now, its owner removed it as it ended.
        with contextlib.suppress(FileNotFoundError):
            descriptor = _lock(abandoned / LOCK_NAME, wait=False)
            if descriptor is not None:
                shutil.rmtree(abandoned, ignore_errors=True)
                os.close(descriptor)


def _remove_own(scratch: Path, owner_pid: int) -> None:
    # A forked child inherits the registration but not the directory.
    if os.getpid() == owner_pid:
        shutil.rmtree(scratch, ignore_errors=True)
