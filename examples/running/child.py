"""The children of a run: started, watched, killed with -9 and started again.

Used by runners only. A child is a role ("till-3", "spark") and the process that plays it
now; each process leads a session of its own, so that a kill of its group takes everything
that it has started, such as a JVM, and Ctrl-C in the terminal reaches only the runner. Its
standard input is its lifeline (see `lifeline`), its standard output reports its progress, the rest
goes to its log. Only processes started here are ever signalled, before they are reaped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING

import msgspec

from examples.running.status import Status
from examples.running.wheels import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REAP_S = 10.0
LOOK_S = 0.02


class Child:
    """One role, and the process that plays it. lives: processes started so far.

    is_ready: whether its present life is at work. counts: what its lives have told last;
    counts_at_ready: when the last of them was ready.
    """

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.is_ready = False
        self.counts: dict[str, int] = {}
        self.counts_at_ready: dict[str, int] = {}
        self.lives = 0
        self._command = [sys.executable, "-m", module, *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def exit_code(self) -> int | None:
        """Of the process that plays it now; None while it runs, or if none was started."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_finished(self) -> bool:
        """Whether it ended by itself with nothing left to do."""
        return self.exit_code == 0

    def start(self) -> None:
        """Starts the process of its next life, which knows nothing of the former one."""
        self.lives += 1
        self.is_ready = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._listen, args=(self._process.stdout,))
        self._reader.daemon = True
        self._reader.start()

    def kill(self) -> None:
        """Kills it, and what it has started, with SIGKILL; returns when it is dead."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(REAP_S)
        self._close()

    def freeze(self) -> None:
        """Stops it, as a machine does that hangs: it keeps its connections, and does nothing."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Has it go on where it was frozen."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def ask_to_end(self) -> None:
        """Sends it a SIGTERM, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self, timeout_s: float) -> bool:
        """Waits until it has ended, as it was asked to; False when it had to be killed."""
        process = self._process
        if process is None:
            return True
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        ended = _group_ended(process.pid)
        self._close()
        return ended

    def log_tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        with contextlib.suppress(OSError):
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._reader is not None:
            self._reader.join(REAP_S)
            self._reader = None

    def _listen(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                try:
                    status = msgspec.json.decode(line, type=Status)
                except msgspec.MsgspecError:
                    continue  # cut off by a kill
                self.counts |= status.counts
                if status.ready:
                    self.counts_at_ready = dict(self.counts)
                    self.is_ready = True


def _group_ended(group: int) -> bool:
    """Waits for what an ended leader had started, such as a JVM, to end by itself; else kills it.

    While a member lives, its number is not given to another group.
    """
    end = time.monotonic() + REAP_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(LOOK_S)
        os.killpg(group, signal.SIGKILL)
        return False
    return True
