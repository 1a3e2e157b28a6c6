"""Where the PostgreSQL of a test process lies: in memory, where there is room for all of them.

Invariants: a directory is named by the pid of its owner. Only what a dead owner left is removed,
and only after its PostgreSQL, which nobody may use any more, was stopped.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from onceq.engine.embedded import stop_embedded
from onceq.errors import OnceqError
from proof.running import MEMORY, folder

CLUSTER: Final = "postgresql"
NAMED: Final = re.compile(r"onceq-tests-(\d+)-\w+")
EACH_BYTES: Final = 2 << 30
"""Room for one process: its log of changes may take 1 GiB, and parts of the proof have more."""


def made(processes: int) -> Path:
    """Makes the directory of this process, one of so many that begin now."""
    where = folder(in_memory=True, bytes_min=processes * EACH_BYTES)
    return Path(tempfile.mkdtemp(prefix=f"onceq-tests-{os.getpid()}-", dir=where))


def sweep(*places: Path) -> None:
    """Removes what test processes that were killed have left. places: in place of all."""
    for where in places or (MEMORY, Path(tempfile.gettempdir())):
        for path in where.iterdir() if where.is_dir() else ():
            name = NAMED.fullmatch(path.name)
            if name is not None and not _lives(int(name[1])):
                _remove(path)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def _remove(path: Path) -> None:
    try:
        stop_embedded(path / CLUSTER)
        shutil.rmtree(path)
    except FileNotFoundError:  # another run sweeps too
        return
    except (OnceqError, OSError) as error:  # somebody uses it, or it is another user's
        sys.stderr.write(f"{path} stays: {error}\n")
