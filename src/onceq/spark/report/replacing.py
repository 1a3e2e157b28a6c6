"""A folder that is always replaced as a whole: written aside, then put in the old one's place.

Used by pipelines whose result is a folder. `latest` below its root is a link to the folder of the
run that ended last. The link is replaced by one rename, so whoever follows it finds the former
result or the new one, both complete. The next run removes what a run that died has left. Source:
spec P7.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Final
from uuid import uuid4

from onceq.engine.embedded.directory import sync_directory
from onceq.errors import IllegalState, InvalidValue

LATEST: Final = "latest"
_LOCK: Final = ".lock"
_OURS: Final = re.compile(r"run-[0-9a-f]{32}")


@contextlib.contextmanager
def replacing(root: Path) -> Generator[Path]:
    """Yields a new folder below the root, which becomes `latest` if the block succeeds.

    Raises IllegalState if another run writes there; InvalidValue if `latest` is not ours.
    """
    with _locked(root):
        _sweep(root)
        folder = root / f"run-{uuid4().hex}"
        folder.mkdir()
        try:
            yield folder
            _make_durable(folder)
            link = folder / LATEST
            link.symlink_to(folder.name)
            link.rename(root / LATEST)
            sync_directory(root)
        finally:
            _sweep(root)


@contextlib.contextmanager
def _locked(root: Path) -> Generator[None]:
    """Holds the root's lock, which ends with the process."""
    fd = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(fd, root)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, root: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise IllegalState(f"{root} is being written by another run: wait for its end") from None


def _sweep(root: Path) -> None:
    """Removes the folders of runs, except the latest one."""
    latest = _latest(root / LATEST)
    for one in root.iterdir():
        if _OURS.fullmatch(one.name) and one.name != latest and one.is_dir():
            shutil.rmtree(one)


def _latest(link: Path) -> str | None:
    """Returns the name of the latest folder, if there is one."""
    if not os.path.lexists(link):
        return None
    if not link.is_symlink() or not _OURS.fullmatch(str(link.readlink())):
        raise InvalidValue(f"{link} was not made by a run: give another directory, or remove it")
    return str(link.readlink())


def _make_durable(folder: Path) -> None:
    """Makes everything in a folder durable."""
    for above, _, names in os.walk(folder):
        for name in names:
            with (Path(above) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(above))
