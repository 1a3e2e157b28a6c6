"""Scratch directories for Spark's spill, warehouse and log settings.

Called by `onceq.spark.session` and `onceq.spark.serve.server`. A directory belongs to
the process that made it and is removed when that process, or a block of it, ends;
what a killed process left behind is removed by the next one of the same user.

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

LOCK_NAME = "lock"


def claim_scratch(parent: Path | None = None) -> Path:
    """Make a scratch directory that lives as long as this process; return it.

    `parent` None means the temporary directory. Directories of processes that
    have died are removed first. Raises EnvironmentFault (nothing happened) if
    the base is another user's or cannot be written.
    """
    # Never closed: the kernel releases the lock when this process ends, however it ends.
    made, _ = _claim(parent)
    atexit.register(_remove_own, made, os.getpid())
    return made


@contextlib.contextmanager
def notes_in(given: Path | None) -> Generator[Path]:
    """Yield the directory given for a checkpoint, or one of our own for the time of the block."""
    if given is not None:
        yield given
        return
    made, lock = _claim(None)
    try:
        yield made / "checkpoint"
    finally:
        _remove_own(made, os.getpid())
        os.close(lock)


def _claim(parent: Path | None) -> tuple[Path, int]:
    """Return a new directory, and the descriptor of the lock that says that its owner lives."""
    base = (parent or Path(tempfile.gettempdir())) / f"onceq-spark-{os.getuid()}"
    try:
        _make_private(base)
        with _locked(base / LOCK_NAME):
            _sweep(base)
            made = Path(tempfile.mkdtemp(prefix="session-", dir=base))
            # Under the base's lock, so that no sweep sees the directory without its owner.
            lock = _lock(made / LOCK_NAME)
    except OSError as error:
        text = f"cannot make a scratch directory under {base}: {error.strerror}"
        raise errors.EnvironmentFault(f"{text}; set TMPDIR to a directory of yours") from error
    return made, lock


def _make_private(base: Path) -> None:
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise errors.EnvironmentFault(
            f"{base} exists and is not a private directory of this user; "
            "remove it, or set TMPDIR to a directory of yours"
        )


def _lock(path: Path) -> int:
    """Lock a file, however long that takes; return its descriptor."""
    descriptor = _opened(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _try_lock(path: Path) -> int | None:
    """Lock a file; return its descriptor, or None if another holds it."""
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    descriptor = _lock(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _sweep(base: Path) -> None:
    """Remove the directories whose owner has died. The base's lock is held."""
    for abandoned in base.glob("session-*"):
        # If it is gone by now, its owner removed it as it ended.
        with contextlib.suppress(FileNotFoundError):
            descriptor = _try_lock(abandoned / LOCK_NAME)
            if descriptor is not None:
                shutil.rmtree(abandoned, ignore_errors=True)
                os.close(descriptor)


def _remove_own(scratch: Path, owner_pid: int) -> None:
    # A forked child inherits the registration but not the directory.
    if os.getpid() == owner_pid:
        shutil.rmtree(scratch, ignore_errors=True)
