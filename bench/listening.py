"""A PostgreSQL of the bench's own that listens on loopback too, for clients without Unix sockets.

An embedded one never listens. One makes the cluster and is stopped; then the cluster is served
anew: by the same program, with the same settings, on the same kind of socket, and on a port of
loopback, where a role of its own must give a password. So JDBC reaches it like any server.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.systems import Ground
from onceq.engine.embedded import open_embedded
from onceq.engine.embedded.binaries import find_binaries
from onceq.engine.embedded.privileges import choose_identity, launch_command, launch_environment
from onceq.engine.embedded.sockets import make_socket_directory, remove_socket_directory

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

HOST = "127.0.0.1"
ROLE = "loopback"
RULES = f"local all all trust\nhost all {ROLE} {HOST}/32 scram-sha-256\n"
READY_S = 30.0
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Loopback:
    """How it is reached on loopback."""

    port: int
    user: str
    password: str


@contextlib.contextmanager
def listening_ground(directory: Path) -> Generator[tuple[Ground, Loopback]]:
    """Run such a PostgreSQL in that directory."""
    loopback = Loopback(_free_port(), ROLE, secrets.token_urlsafe())
    with open_embedded(directory / "data") as server:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            role = sql.SQL("create role {} superuser login password {}")
            connection.execute(role.format(sql.Identifier(ROLE), sql.Literal(loopback.password)))
            ((cluster,),) = connection.execute("show data_directory").fetchall()
        conninfo = server.conninfo
    sockets = make_socket_directory(directory)
    (directory / "pg_hba.conf").write_text(RULES)
    settings = {
        "listen_addresses": HOST,
        "port": str(loopback.port),
        "unix_socket_directories": str(sockets),
        "hba_file": str(directory / "pg_hba.conf"),
        "commit_siblings": "0",
    }
    binaries = find_binaries()
    argv = [str(binaries.program("postgres")), "-D", cluster]
    argv += [f"--{name}={value}" for name, value in settings.items()]
    command = launch_command(choose_identity(binaries), argv)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, env=launch_environment(), stdout=log, stderr=log)
        try:
            own = make_conninfo(conninfo, host=str(sockets), port=loopback.port)
            _wait_ready(process, own)
            yield Ground(directory, own), loopback
        finally:
            process.send_signal(signal.SIGINT)  # at once, and cleanly
            process.wait(READY_S)
            remove_socket_directory(sockets)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def _wait_ready(process: subprocess.Popen[bytes], conninfo: str) -> None:
    """Wait until it takes connections. Raises TimeoutError, also if it has ended."""
    end = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(conninfo):
            return
        time.sleep(LOOK_S)
    said = "has ended" if process.poll() is not None else f"takes no connections in {READY_S} s"
    raise TimeoutError(f"the PostgreSQL that is to listen on {HOST} {said}: its log says why")
