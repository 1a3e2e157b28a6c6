"""The seats of a service: in each is a child process that serves, one life after the other.

Used by `server.processes`. Whether a seat is to have a child is decided there.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from onceq.model import ops
from onceq.server.child import LOADS, SERVES
from onceq.server.log_lines import LogFormat, LogLevel

BACKOFF_FIRST_S: Final = 0.1
BACKOFF_LONGEST_S: Final = 10.0
GOOD_LIFE_S: Final = 30.0
"""After a child that lived this long, deaths are counted anew."""
REPORT_BYTES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Spec:
    """What a child serves, `module:attribute`, and how it logs."""

    server: str
    log_format: LogFormat = LogFormat.TEXT
    log_level: LogLevel = LogLevel.INFO


def backoff_s(deaths: int) -> float:
    """Returns how long to wait before restarting a child that died this often in a row."""
    return min(BACKOFF_LONGEST_S, BACKOFF_FIRST_S * 2.0 ** min(deaths - 1, 20)) if deaths else 0.0


class Child:
    """A process that serves, for one life; or only loads the server, and declares its queues.

    process: its id in the repository.
    limits: how long a transaction of each queue may last, in seconds; none until it serves.
    handed: others' aborts that its `on_error` has yet to be told of.
    """

    def __init__(
        self, spec: Spec, repository: str, environment: dict[str, str], *, serves: bool = True
    ) -> None:
        self.process = uuid.uuid4()
        self.serves = serves
        self.began = time.monotonic()
        self.limits: dict[str, float] = {}
        self.handed: deque[ops.Aborted] = deque()
        self._said = b""
        self._fd, theirs = os.pipe()
        os.set_blocking(self._fd, False)
        ours, self._heard = os.pipe()
        os.set_blocking(self._heard, False)
        log_as = [spec.log_format.value, spec.log_level.value]
        what = SERVES if serves else LOADS
        arguments = [what, spec.server, repository, str(self.process), str(theirs), *log_as]
        try:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "onceq.server.child", *arguments],
                env=environment,
                stdin=ours,
                pass_fds=(theirs,),
                start_new_session=True,  # Ctrl-C in the terminal is for the supervisor
            )
        finally:
            os.close(theirs)
            os.close(ours)
        self.pid = self._running.pid

    @property
    def code(self) -> int | None:
        """The exit code, or minus the signal; None while it lives."""
        return self._running.poll()

    def reports(self) -> Iterator[dict[str, Any]]:
        """Yields what it has reported since the last call."""
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(self._fd, REPORT_BYTES_MAX)
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            yield msgspec.json.decode(line)

    def hand(self, aborted: ops.Aborted) -> bool:
        """Hands it another process's abort for its `on_error`; False: it cannot take it now."""
        try:  # a line is shorter than what a pipe takes as a whole
            os.write(self._heard, msgspec.json.encode(aborted) + b"\n")
        except (BlockingIOError, BrokenPipeError):
            return False
        self.handed.append(aborted)
        return True

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, if it still lives."""
        self._running.send_signal(number)

    def close(self) -> None:
        """Waits for its end and closes what belongs to it."""
        self._running.wait()
        os.close(self._heard)
        os.close(self._fd)


@dataclass(slots=True)
class Seat:
    """The seat of one child. is_wanted: it is to have one that serves.

    deaths: in a row. due: when to start the next one. late_at: when one that is not wanted any more
    has had its time.
    """

    child: Child | None = None
    is_wanted: bool = False
    deaths: int = 0
    due: float = 0.0
    late_at: float = math.inf

    def take(self) -> None:
        """Has children from now on."""
        self.is_wanted, self.deaths, self.due, self.late_at = True, 0, 0.0, math.inf

    def leave(self, within_s: float) -> None:
        """Has none any more: one that is there finishes what it runs, within so many seconds."""
        self.is_wanted, self.late_at = False, time.monotonic() + within_s
        if self.child is not None:
            self.child.signal(signal.SIGTERM)

    def is_busy(self, busy: frozenset[uuid.UUID]) -> bool:
        """Whether its child is one of these processes."""
        return self.child is not None and self.child.process in busy

    def has_died(self, child: Child) -> float:
        """Counts a death; returns after how many seconds another child is due."""
        now = time.monotonic()
        self.deaths = 1 if now - child.began >= GOOD_LIFE_S else self.deaths + 1
        delay_s = backoff_s(self.deaths)
        self.due = now + delay_s
        return delay_s
