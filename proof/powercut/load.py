"""The load under which the power is cut: clients and servers, real processes, on one repository.

For this package only. What they did is in their event files; nothing here looks at the database
except to make the repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import onceq
from onceq.engine.embedded.locks import Deadline, poll_until
from onceq.engine.schema.migrate import apply_with
from onceq.history.events import SendOk, load
from proof.harness.ledger import make_ledger
from proof.powercut.participant import Ask, Serve, queue

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

    from onceq.history.events import Event

REPOSITORY: Final = "power"
WINDOWS: Final = {"ann": 1, "bob": 1, "cy": 8}
"""The clients, and how many requests each has outstanding at most."""

_ROOT = Path(__file__).resolve().parents[2]
_SERVERS = ({"concurrency": 2}, {"batch": 5})
_BEGIN_S = 60.0
_END_S = 20.0


class LoadFailed(Exception):
    """A participant ended by itself, or did not begin in time."""


def prepare(conninfo: str) -> None:
    """Makes the repository, its queue and the ledger of effects."""
    apply_with(conninfo, REPOSITORY)
    make_ledger(conninfo, REPOSITORY)
    with onceq.open(conninfo, repository=REPOSITORY) as qm:
        qm.declare(queue())


class Load:
    """Running participants."""

    def __init__(self, files: Path) -> None:
        self._files = files
        self._processes: list[subprocess.Popen[bytes]] = []

    def add(self, participant: Serve | Ask) -> None:
        """Starts a participant; it ends when this process does."""
        argument = msgspec.json.encode(participant).decode()
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "proof.powercut.participant", argument],
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": f"{_ROOT / 'src'}{os.pathsep}{_ROOT}"},
                stdin=subprocess.PIPE,
            )
        )

    def check(self) -> None:
        """Raises LoadFailed if a participant has ended: its output is on standard error."""
        for process in self._processes:
            if process.poll() is not None:
                raise LoadFailed(f"{process.args!r} ended with status {process.returncode}")

    def wait_running(self) -> None:
        """Waits until a request of each client was acknowledged. Raises LoadFailed."""

        def running() -> bool:
            self.check()
            return {e.registrant for e in self.events() if isinstance(e, SendOk)} == set(WINDOWS)

        if not poll_until(running, Deadline(_BEGIN_S)):
            raise LoadFailed(f"not every client had sent a request after {_BEGIN_S:g} s")

    def events(self) -> list[Event]:
        """Returns what all participants have recorded."""
        return load(self._files.glob("*.events"))

    def end(self) -> None:
        """Kills the participants."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(_END_S)
            if process.stdin is not None:
                process.stdin.close()


@contextmanager
def running(conninfo: str, files: Path, chance: random.Random) -> Generator[Load]:
    """Runs the load for the time of a block, which begins when every client is at work."""
    files.mkdir()
    started = Load(files)
    try:
        for more in _SERVERS:
            started.add(Serve(conninfo, REPOSITORY, str(files), **more))
        for name, window in WINDOWS.items():
            seed = chance.randrange(2**32)
            started.add(Ask(conninfo, REPOSITORY, str(files), name, window, seed))
        started.wait_running()
        yield started
    finally:
        started.end()
