"""Servers that a peer needs and starts itself: on loopback, a free port, ended by their pid.

Nothing here starts a service of the system, or finds one that runs. Imports no third party.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.workers.base import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOOPBACK = "127.0.0.1"
FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/lib/rabbitmq/bin")  # besides those on PATH
START_S = 60.0
STOP_S = 10.0
LOOK_S = 0.02


def find_program(name: str) -> Path | None:
    """Return where a program is, or None."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *FOLDERS])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.bind((LOOPBACK, 0))
        port: int = one.getsockname()[1]
        return port


def is_listened_on(port: int) -> bool:
    """Say whether a connection to that port of the loopback interface is accepted."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.settimeout(1.0)
        return one.connect_ex((LOOPBACK, port)) == 0


class ServerProcess:
    """A server as a child, in our process group; its output goes to a file.

    So whoever ends our group, because we do not answer, ends it too.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it. environment: None for that of this process."""
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=None if environment is None else dict(environment),
                cwd=log.parent,
            )

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it is ready; raise WrongError if it dies or takes too long."""
        until = time.monotonic() + START_S
        while not is_ready():
            if self.process.poll() is not None:
                raise WrongError(f"{self.process.args!r} died at its start; see {self.log}")
            if time.monotonic() > until:
                raise WrongError(f"{self.process.args!r} was not ready in {START_S:g} s")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        """End it in order; or, if that takes too long, at once."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S)
