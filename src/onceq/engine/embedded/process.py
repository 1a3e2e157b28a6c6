"""Knows processes by more than their pid, because pids are reused; without /proc, by the pid alone.

For this package only. The identity (pid, start time in ticks since boot, boot id) is
written into `run.lock` by `launch`, and compared before any signal is sent.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from onceq.engine.embedded.launch import identity
from onceq.errors import EmbeddedError

_START_SLACK_S = 5


@dataclass(frozen=True, slots=True)
class Process:
    """One process, distinct from later ones with the same pid if there is a /proc."""

    pid: int
    identity: str

    def alive(self) -> bool:
        """True while this very process runs; a zombie does not."""
        return _running(self.pid) and identity(self.pid) == self.identity

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs; EmbeddedError if we may not."""
        if not self.alive():
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise EmbeddedError(
                f"Not allowed to signal PostgreSQL's process {self.pid}; stop it as its user."
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PidFile:
    """What PostgreSQL has written into postmaster.pid so far."""

    pid: int
    started: int  # seconds since 1970
    socket_directory: Path | None  # None until the server listens
    ready: bool  # to accept connections


def read_identity(run_lock: Path) -> Process | None:
    """The postmaster that was last launched, alive or not."""
    try:
        text = run_lock.read_text(encoding="ascii", errors="replace").strip(" \0\n")
        return Process(int(text.split()[0]), text)
    except (OSError, ValueError, IndexError):
        return None


def read_pid_file(path: Path) -> PidFile | None:
    """postmaster.pid, or None when absent or only half written."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return PidFile(
            pid=int(lines[0]),
            started=int(lines[2]),
            socket_directory=Path(lines[4]) if lines[4:5] and lines[4] else None,
            ready=lines[7:8] == ["ready   "],
        )
    except (OSError, ValueError, IndexError):
        return None


def is_postmaster(found: PidFile, cluster: Path) -> bool:
    """Whether the process with that pid is the postmaster that wrote the file.

    By its working directory, which for a postmaster is its cluster; if that cannot be
    read, by its start time, which for a reused pid is later.
    """
    if not _running(found.pid):
        return False
    try:
        return Path(f"/proc/{found.pid}/cwd").readlink() == cluster
    except OSError:
        started = _started(found.pid)
        return started is None or abs(started - found.started) <= _START_SLACK_S


def orphans(run_lock: Path) -> list[Process]:
    """The processes of PostgreSQL that hold the run lock; Linux only, else empty."""
    try:
        found = run_lock.stat()
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return []
    wanted = (found.st_dev, found.st_ino)
    return [
        Process(pid, identity(pid))
        for pid in pids
        if _program(pid) == "postgres" and _has_open(pid, wanted)
    ]


def pid_exists(pid: int) -> bool:
    """Whether some process has that pid, if only as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _running(pid: int) -> bool:
    if not pid_exists(pid):
        return False
    fields = _stat(pid)
    return fields is None or fields[0] not in {"Z", "X"}


def _stat_text(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None where there is none."""
    text = _stat_text(pid)
    return None if text is None else text.rpartition(")")[2].split()


def _program(pid: int) -> str | None:
    text = _stat_text(pid)
    return None if text is None else text.partition("(")[2].rpartition(")")[0]


def _started(pid: int) -> int | None:
    fields = _stat(pid)
    if fields is None:
        return None
    rows = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    booted = next(int(row.split()[1]) for row in rows if row.startswith("btime "))
    return booted + int(fields[19]) // os.sysconf("SC_CLK_TCK")


def _has_open(pid: int, wanted: tuple[int, int]) -> bool:
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False  # another user's, or gone
    for link in links:
        with contextlib.suppress(OSError):
            found = link.stat()
            if (found.st_dev, found.st_ino) == wanted:
                return True
    return False
