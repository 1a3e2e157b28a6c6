"""Three NATS servers in a cluster for the benchmark, with JetStream on files, on loopback."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from bench.workers.base import SkippedError
from bench.workers.nats_server import PROGRAM, SYNC_ALWAYS, missing, said_by
from bench.workers.servers import (
    LOOPBACK,
    ServerProcess,
    find_program,
    free_port,
    is_listened_on,
)

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 3
CONFIGURATION = """\
listen: "{address}:{port}"
server_name: "{name}"
jetstream {{
  store_dir: "{store}"
  {more}
}}
cluster {{
  name: "bench"
  listen: "{address}:{route}"
  routes: [{routes}]
}}
"""
CANNOT = (
    "not tried: {program} {version} cannot sync each write; 2.10 can (jetstream {{ {setting} }})"
)


def absent() -> str:
    """Return why NATS cannot be started here, or ""."""
    reason = missing()
    return f"not tried: {reason}" if reason else ""


class NatsCluster:
    """Running servers. urls: by their names. Raises SkippedError if they cannot be had."""

    def __init__(self, directory: Path, *, sync: bool) -> None:
        """Start them. sync: each syncs every write before it is acknowledged."""
        program = find_program(PROGRAM)
        if program is None:
            raise SkippedError(absent())
        self._program = str(program)
        version = said_by(self._program, "--version").stdout.strip()
        self.version = version.rpartition("v")[2]
        ports = [free_port() for _ in range(2 * COUNT)]
        self._ports, self._routes = ports[:COUNT], ports[COUNT:]
        files = [self._written(directory, one, sync=sync) for one in range(COUNT)]
        if sync and said_by(self._program, "-c", str(files[0]), "-t").returncode != 0:
            text = CANNOT.format(program=PROGRAM, version=self.version, setting=SYNC_ALWAYS)
            raise SkippedError(text)
        self._servers: list[ServerProcess] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            for file in files:
                command = [self._program, "-c", str(file)]
                self._servers.append(ServerProcess(command, file.with_suffix(".log")))
            for server, port in zip(self._servers, self._ports, strict=True):
                server.wait_until(functools.partial(is_listened_on, port))
            undo.pop_all()

    def _written(self, directory: Path, number: int, *, sync: bool) -> Path:
        file = directory / f"nats-{number}.conf"
        routes = ", ".join(f'"nats-route://{LOOPBACK}:{port}"' for port in self._routes)
        text = CONFIGURATION.format(
            address=LOOPBACK,
            port=self._ports[number],
            route=self._routes[number],
            routes=routes,
            name=named(number),
            store=directory / f"jetstream-{number}",
            more=SYNC_ALWAYS if sync else "",
        )
        file.write_text(text)
        return file

    @property
    def urls(self) -> dict[str, str]:
        """Where clients connect, by the servers' names."""
        return {named(n): f"nats://{LOOPBACK}:{port}" for n, port in enumerate(self._ports)}

    def stop(self) -> None:
        """End them."""
        for server in self._servers:
            server.stop()


def named(number: int) -> str:
    """Return the name of a server."""
    return f"bench-{number}"
