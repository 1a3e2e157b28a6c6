"""What tells a process from all others, and whether it has ended: for verdicts (G7).

Used by servers and queue managers, which write their identity beside what they claim, and by others
on the same machine that find them missing. An identity has a meaning in one PID namespace of
one running kernel. Elsewhere, and if the system does not say enough, nobody can tell.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

PROC = Path("/proc")
STATE, STARTED = 0, 19
"""Places in /proc/PID/stat, counted after the program's name."""
ENDED = "ZX"
"""States of a process that has ended but that nobody has waited for yet."""


def this_process() -> tuple[str, int]:
    """Returns (host name, pid), as servers show them; nothing depends on them being unique."""
    return platform.node(), os.getpid()


def own_identity() -> str | None:
    """Returns the identity of this process; None if nobody could tell when it ends."""
    try:
        if (PROC / "self").readlink() != Path(str(os.getpid())):
            return None  # this /proc is of another PID namespace
        return f"{_machine()} {os.getpid()} {_stat(os.getpid())[STARTED]}"
    except OSError:
        return None


def is_alive(identity: str) -> bool | None:
    """Returns whether the process with this identity lives; None if nobody here can tell."""
    own = own_identity()
    machine, pid, started = identity.rsplit(" ", 2)
    if own is None or machine != own.rsplit(" ", 2)[0]:
        return None
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, as another user's
    try:
        fields = _stat(int(pid))
        threads = len(list((PROC / pid / "task").iterdir()))
    except OSError:
        return None  # it may be hidden from us, or be ending just now
    return fields[STARTED] == started and (fields[STATE] not in ENDED or threads > 1)


def _machine() -> str:
    """Returns a text that is the same only where a PID and a start time mean the same."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    spaces = [(PROC / "self/ns" / kind).readlink() for kind in ("pid", "time")]
    return " ".join([boot, *map(str, spaces)])


def _stat(pid: int) -> list[str]:
    text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()
