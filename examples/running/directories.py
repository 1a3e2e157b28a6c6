"""The directories of runs: each run has a fresh one, an interrupted one's is kept and named.

Used by the runner. A directory is locked while its runner lives, and holds the file
`finished` once its run came to an end, successfully or not; so one that is neither locked nor
finished was interrupted. The directories of finished runs stay, to be looked at, until the next
run begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING

from onceq.engine.embedded import embedded_status

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from examples.running.progress import Display

LOCK = "lock"
FINISHED = "finished"
DATABASE = "database"


def tell_of_former(runs: Path, display: Display) -> None:
    """Removes the directories of finished runs, and names those of interrupted ones."""
    for root in sorted(runs.glob("*/")):
        if _is_locked(root) or not (root / LOCK).exists():
            continue
        if not (root / FINISHED).exists():
            display.note(f"an earlier run was interrupted; its files are kept in {root}")
        elif not embedded_status(root / DATABASE).running:
            shutil.rmtree(root)


@contextlib.contextmanager
def fresh_directory(runs: Path, seed: int) -> Generator[Path]:
    """A new directory, locked for the time of the block."""
    runs.mkdir(parents=True, exist_ok=True)
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    root = runs / f"{moment}-seed{seed}-{os.getpid()}"
    root.mkdir()
    with (root / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield root


def _is_locked(root: Path) -> bool:
    with contextlib.suppress(OSError), (root / LOCK).open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
