"""The systems that are measured, each a child process that speaks the protocol of `workers.base`.

Every child is started in a session of its own, and ended by the end of its input; one that does
not go in time is ended by its process group.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

import onceq
from bench import peers
from bench.results import Slice

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

ROOT = Path(__file__).resolve().parents[1]
READY_S = 120.0
ANSWER_S = 60.0
PER_S_LEAST = 500
"""An answer may take ANSWER_S, and as long as the operations last at this rate."""
END_S = 25.0
WORDS = 200


class UnmeasuredError(Exception):
    """There is no figure; the text says why. skipped: not available here, nothing failed."""

    def __init__(self, reason: str, *, skipped: bool) -> None:
        super().__init__(reason)
        self.skipped = skipped


@dataclass(frozen=True, slots=True)
class Ground:
    """Where systems are run: a directory that goes away, and a PostgreSQL of our own."""

    directory: Path
    conninfo: str

    def database(self, name: str) -> str:
        """Make a new database of that name, and return its connection string."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return make_conninfo(self.conninfo, dbname=name)


@contextlib.contextmanager
def prepared_ground(directory: Path, commit_delay_us: int = 0) -> Generator[Ground]:
    """Run an embedded PostgreSQL in that directory, as onceq itself starts it.

    commit_delay_us: how much longer each commit waits before it syncs; 0: not at all.
    """
    with onceq.open(f"embedded:{directory / 'data'}") as qm:
        conninfo = qm.located.conninfo
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for setting in (f"commit_delay = {commit_delay_us}", "commit_siblings = 0"):
                connection.execute(f"alter system set {setting}".encode())
            connection.execute("select pg_reload_conf()")
        yield Ground(directory, conninfo)


class Running:
    """A running system. Raises UnmeasuredError if it does not start, or answers with an error.

    has_ended: it fell silent, or went away; it is of no use any more.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self.has_ended = False
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.ready = self._hear(READY_S)
            if not self.ready.get("ready"):
                raise UnmeasuredError(str(self.ready.get("skip", self.ready)), skipped=True)
            undo.pop_all()

    def require_offer(self, command: Mapping[str, Any]) -> None:
        """Raise UnmeasuredError if it cannot do such a thing."""
        if command["do"] not in self.ready["offers"]:
            raise UnmeasuredError(f"does not offer {command['do']}", skipped=True)

    def ask(self, number: int, command: Mapping[str, Any]) -> Slice:
        """Let it do something, `number` times. It is ended if it does not answer in time."""
        self.require_offer(command)
        line = json.dumps({**command, "number": number}) + "\n"
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is noticed below
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        answer = self._hear(ANSWER_S + number / PER_S_LEAST)
        if "error" in answer:
            raise UnmeasuredError(str(answer["error"]), skipped=False)
        return Slice(
            number=number,
            seconds=answer["seconds"],
            p50_us=answer.get("p50_us"),
            p99_us=answer.get("p99_us"),
        )

    def _hear(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        heard, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if heard else b""
        if not line:
            what = "ended" if heard else f"said nothing for {timeout_s:g} s"
            self._end_now()
            raise UnmeasuredError(f"it {what}: {self._last_words()}", skipped=False)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end_now(self) -> None:
        self.has_ended = True
        with contextlib.suppress(ProcessLookupError):  # nobody of its group is left
            os.killpg(self._process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        said = Path(self._log.name).read_text(errors="replace").strip()
        return said.rpartition("\n")[2][:WORDS]

    def close(self) -> None:
        """End it, and whatever it started. Idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                self._process.wait(END_S)
                break
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, number)
        self._process.wait()
        self._log.close()


@dataclass(frozen=True, slots=True)
class Named:
    """A system by name, in one of its settings."""

    system: str
    setting: str = "best"

    def __str__(self) -> str:
        return self.system if self.setting == "best" else f"{self.system} {self.setting}"


OWN = {
    "onceq": "onceq_worker",
    "onceq_clerk": "onceq_clerk",
    "onceq_desk": "onceq_desk",
    "onceq_stream": "onceq_stream",
    "onceq_volatile": "onceq_volatile",
    "raw": "raw",
    "notify_build": "notify_build",
    "synced_file": "synced_file",
}
"""The modules of the systems that run in the project's own environment."""


ABSENT = {"pgmq": "an extension of PostgreSQL that is on no package index: measured separately"}
"""The systems of the target table that the benchmark cannot have."""


class Systems:
    """Starts systems on a ground, each with a database of its own."""

    def __init__(self, ground: Ground, logs: Path) -> None:
        self._ground = ground
        self._logs = logs
        self._started = 0

    def start(self, named: Named) -> Running:
        """Start a system. UnmeasuredError if it is not available here."""
        self._started += 1
        name = re.sub(r"\W", "_", f"{named.system}_{named.setting}_{self._started}")
        directory = self._ground.directory / name
        directory.mkdir()
        python, module = self._module(named.system)
        command = [python, "-m", f"bench.workers.{module}", "--dir", str(directory)]
        command += ["--conninfo", self._ground.database(name), "--setting", named.setting]
        return Running(command, self._logs / f"{name}.log")

    def _module(self, system: str) -> tuple[str, str]:
        if system in OWN:
            return sys.executable, OWN[system]
        python = peers.python()
        reason = ABSENT[system] if system in ABSENT else peers.why_not(system)
        if python is None or reason:
            raise UnmeasuredError(reason, skipped=True)
        return python, peers.PEERS[system].module
