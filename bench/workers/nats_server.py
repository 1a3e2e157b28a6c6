"""One NATS server for the benchmark, with JetStream on files, on loopback and a free port."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from bench.workers.base import SkippedError
from bench.workers.servers import (
    LOOPBACK,
    ServerProcess,
    find_program,
    free_port,
    is_listened_on,
)

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "nats-server"
CONFIGURATION = """\
listen: "{address}:{port}"
server_name: "bench"
jetstream {{
  store_dir: "{store}"
  {more}
}}
"""
SYNC_ALWAYS = "sync_interval: always"  # since 2.10; before, files are synced every two minutes
TRY_S = 10.0


def missing() -> str:
    """Return why NATS cannot be started here, or ""."""
    return "" if find_program(PROGRAM) else f"not installed: {PROGRAM} (Debian: {PROGRAM})"


def said_by(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what the program says to these arguments."""
    command = [program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TRY_S, check=False)


class NatsServer:
    """A running server. syncs: whether it syncs its file for each write."""

    def __init__(self, directory: Path, *, sync: bool) -> None:
        """Start it. sync: sync each write, if this version can."""
        program = find_program(PROGRAM)
        if program is None:
            raise SkippedError(missing())
        self._program = str(program)
        said = said_by(self._program, "--version")
        self.version = said.stdout.strip().rpartition("v")[2]
        self.port = free_port()
        self._file = directory / "nats.conf"
        self.syncs = sync and self._takes(directory, SYNC_ALWAYS)
        if not self.syncs:
            self._takes(directory, "")
        self._server = ServerProcess([self._program, "-c", str(self._file)], directory / "nats.log")
        try:
            self._server.wait_until(lambda: is_listened_on(self.port))
        except BaseException:
            self._server.stop()
            raise

    def _takes(self, directory: Path, more: str) -> bool:
        """Write the configuration, and say whether the server finds it valid."""
        store = directory / "jetstream"
        text = CONFIGURATION.format(address=LOOPBACK, port=self.port, store=store, more=more)
        self._file.write_text(text)
        return said_by(self._program, "-c", str(self._file), "-t").returncode == 0

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{LOOPBACK}:{self.port}"

    def stop(self) -> None:
        """End it."""
        self._server.stop()
