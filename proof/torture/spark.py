"""The Spark server of a run: a command, begun again when it has died, and its processes killed.

Used by the conductor, which is given the command, as nothing here may import Spark. What is left
of a driver that was killed (its JVM sees the end of its pipe, and goes) is killed at the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from proof.torture.processes import descendants, environment, kill_below, name_of

if TYPE_CHECKING:
    from pathlib import Path

NOT_THERE = "Spark takes no part"
NOT_FOUND = "it was just starting"
CANNOT_CONNECT = 4
"""The exit code of a command of onceq that cannot reach its repository."""
SAID = "spark.txt"
HEADS = ("onceq: ", "pyspark.errors.", "py4j.")
MORTAL = ("driver", "java")
"""Whose death is that of the whole server; an executor is begun again by Spark."""


class SparkServer:
    """The processes of a Spark server. kills: how many were killed. lives: of its driver.

    deaths: of those lives that ended by nothing that was done to the driver or its Java, the code
    and what was said last; one that finds PostgreSQL down at its beginning ends as it should.
    """

    def __init__(self, command: tuple[str, ...], place: Path, where: dict[str, str]) -> None:
        self._command = command
        self._place = place
        own = {f"ONCEQ_{name.upper()}": value for name, value in where.items()}
        self._environment = environment(**own)
        self._handles: dict[int, int] = {}
        self.kills = 0
        self.lives = 0
        self.deaths: list[str] = []
        self._is_excused = False
        self._running = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.lives += 1
        self._is_excused = False
        with (self._place / SAID).open("ab") as said:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=self._environment,
                cwd=self._place,
                start_new_session=True,
            )

    def tend(self) -> None:
        """Begins it again when it has died."""
        self._note()
        code = self._running.poll()
        if code is not None:
            if not self._is_excused and code != CANNOT_CONNECT:
                self.deaths.append(f"code {code}: {self._last_words()}")
            self._running = self._start()

    def kill(self, what: str, choice: int) -> str | None:
        """Kills its driver, its Java or an executor's Python; else why not."""
        self._note()
        below = descendants(self._running.pid)
        java = [pid for pid in below if name_of(pid) == "java"]
        pythons = [pid for pid in below if pid not in java and "python" in name_of(pid)]
        targets = {"driver": [self._running.pid], "java": java, "executor": pythons}[what]
        if not targets:
            return NOT_FOUND
        if not kill_below(targets[choice % len(targets)], os.getpid()):
            return NOT_FOUND
        self.kills += 1
        self._is_excused = self._is_excused or what in MORTAL
        return None

    def close(self) -> None:
        """Stops it, and kills what is left of it."""
        self._note()
        self._running.terminate()
        try:
            self._running.wait(10)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        for handle in self._handles.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        self._handles.clear()

    def _last_words(self) -> str:
        """Returns the last line that is not one of a trace."""
        said = (self._place / SAID).read_text(errors="replace").splitlines()
        return next((line for line in reversed(said) if line.startswith(HEADS)), "it said nothing")

    def _note(self) -> None:
        """Keeps handles of its processes, by which to end them whatever becomes of their parent."""
        for pid in descendants(self._running.pid):
            if pid not in self._handles:
                with contextlib.suppress(ProcessLookupError):
                    self._handles[pid] = os.pidfd_open(pid)
