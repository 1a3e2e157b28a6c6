"""Processes below one that we started: found through /proc, and killed through a handle.

Used for PostgreSQL's and Spark's own processes, which nobody of ours has forked. A process is
killed only while it is what it was found to be. Linux only.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path

PROC = Path("/proc")
ROOT = Path(__file__).resolve().parents[2]


def environment(**own: str) -> dict[str, str]:
    """Returns the environment of a process that finds this package wherever it works."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **own}


def _stat(pid: int) -> tuple[str, int] | None:
    """Returns a process's name and parent; None when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    name, _, rest = text.rpartition(")")
    return name.partition("(")[2], int(rest.split()[1])


def children(pid: int) -> list[int]:
    """Returns the pids of a process's children, sorted; none where there is no /proc."""
    return _families().get(pid, [])


def descendants(pid: int) -> list[int]:
    """Returns all below a process, parents before their children."""
    families = _families()
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in families.get(parent, [])]
        found += level
    return found


def name_of(pid: int) -> str:
    """Returns the name of a process's program, empty when it is gone."""
    found = _stat(pid)
    return "" if found is None else found[0]


def _families() -> dict[int, list[int]]:
    families: defaultdict[int, list[int]] = defaultdict(list)
    if PROC.is_dir():
        for pid in sorted(int(one.name) for one in PROC.iterdir() if one.name.isdecimal()):
            found = _stat(pid)
            if found is not None:
                families[found[1]].append(pid)
    return families


def kill_below(pid: int, ancestor: int) -> bool:
    """Kills a process with -9 if it still is below another; whether it did."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if pid not in descendants(ancestor):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
