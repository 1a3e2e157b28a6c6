"""Counts round trips on the wire: a relay between a client and PostgreSQL's socket.

A round trip is counted where the client's bytes follow the server's: what is pipelined is one.
The relay is for counting only; nothing is timed through it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

CHUNK = 1 << 18
PORT = 5432


@dataclass(slots=True)
class Relay:
    """A running relay. conninfo: for clients that go through it."""

    conninfo: str
    upstream: str
    trips: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """All round trips so far."""
        return sum(self.trips)

    def pump(self, client: socket.socket) -> None:
        """Pass on what one client and the server send, until one of them is done."""
        number = len(self.trips)
        self.trips.append(0)
        server = socket.socket(socket.AF_UNIX)
        with client, server:
            server.connect(self.upstream)
            last = server
            while True:
                readable, _, _ = select.select([client, server], [], [])
                for end in readable:
                    said = end.recv(CHUNK)
                    if not said:
                        return
                    if end is client and last is server:
                        self.trips[number] += 1
                    last = end
                    (server if end is client else client).sendall(said)


@contextlib.contextmanager
def relayed(conninfo: str, directory: Path) -> Generator[Relay]:
    """Relay between a socket in that directory and the server of a connection string."""
    given = conninfo_to_dict(conninfo)
    port = int(given.get("port") or PORT)
    upstream = f"{given['host']}/.s.PGSQL.{port}"
    through = make_conninfo(conninfo, host=str(directory))
    relay = Relay(through, upstream)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / f".s.PGSQL.{port}"))
    with _listening(listener, relay):
        yield relay


@contextlib.contextmanager
def _listening(listener: socket.socket, relay: Relay) -> Generator[None]:
    listener.listen(64)
    stopped = threading.Event()

    def accept() -> None:
        while not stopped.is_set():
            readable, _, _ = select.select([listener], [], [], 0.1)
            if readable:
                client, _ = listener.accept()
                threading.Thread(target=relay.pump, args=(client,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield
    finally:
        stopped.set()
        accepting.join()
        listener.close()
