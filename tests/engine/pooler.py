"""A pooler between clients and PostgreSQL, as small as can be, for the tests that meet one.

It speaks the wire protocol on a port of the loopback address. Like PgBouncer it gives every
client a key of its own. In transaction mode all clients share one session, a transaction at a
time; in session mode each has its own.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import struct
import threading
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Generator

SSL_REQUEST = 80877103
PROTOCOL = 196608


def receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionError("the peer has gone")
        data += more
    return data


def read_one(peer: socket.socket) -> tuple[bytes, bytes]:
    """Reads one typed protocol unit: its type, and its payload."""
    kind, length = struct.unpack("!cI", receive(peer, 5))
    return kind, receive(peer, length - 4)


def packed(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack("!I", len(payload) + 4) + payload


class Backend:
    """One session of PostgreSQL, used by one client at a time. settings: what it said at start."""

    def __init__(self, conninfo: str) -> None:
        parts = conninfo_to_dict(conninfo)
        self.lock = threading.Lock()
        self.settings = b""
        self._prepared: dict[bytes, bytes] = {}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"{parts['host']}/.s.PGSQL.{parts['port']}")
        options = f"user\0{parts['user']}\0database\0{parts['dbname']}\0\0".encode()
        self._socket.sendall(struct.pack("!II", len(options) + 8, PROTOCOL) + options)
        kind = b""
        while kind != b"Z":
            kind, payload = read_one(self._socket)
            if kind == b"S":
                self.settings += packed(kind, payload)

    def statement(self, kind: bytes, payload: bytes) -> bytes:
        """Returns the text that this unit executes; nothing, where it only prepares."""
        parts = payload.split(b"\0")
        if kind == b"P":
            self._prepared[parts[0]] = parts[1]
        if kind == b"B":
            return self._prepared.get(parts[1], b"")
        return payload if kind == b"Q" else b""

    def send(self, unit: bytes) -> None:
        self._socket.sendall(unit)

    def relay(self, client: socket.socket | None) -> bytes:
        """Sends the answers to the client up to the point where it may ask again; the status.

        client: None keeps them from it.
        """
        while True:
            kind, payload = read_one(self._socket)
            if client is not None:
                client.sendall(packed(kind, payload))
            if kind == b"Z":
                return payload

    def close(self) -> None:
        self._socket.close()


class Pooler:
    """A listening pooler. mode: 'transaction' or 'session'.

    cut: (pattern, side) cuts the next statement that has the pattern: 'before' PostgreSQL sees it,
    or 'after' it has answered. The client sees the same either way.
    """

    def __init__(self, conninfo: str, mode: str) -> None:
        self.cut: tuple[bytes, str] | None = None
        self._conninfo = conninfo
        self._shared = Backend(conninfo) if mode == "transaction" else None
        self._keys = itertools.count(900_000)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket | Backend] = [self._listener]
        parts = conninfo_to_dict(conninfo)
        port = self._listener.getsockname()[1]
        self.url = (
            f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}?sslmode=disable"
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:  # until the listener is closed
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        backend = self._shared or Backend(self._conninfo)
        with contextlib.suppress(OSError), client:
            self._greet(client, backend)
            while True:  # until the client goes
                self._transact(client, backend)
        if backend is not self._shared:
            backend.close()

    def _greet(self, client: socket.socket, backend: Backend) -> None:
        length, code = struct.unpack("!II", receive(client, 8))
        while code != PROTOCOL:  # encryption is asked for first
            client.sendall(b"N")
            length, code = struct.unpack("!II", receive(client, 8))
        receive(client, length - 8)
        key = packed(b"K", struct.pack("!II", next(self._keys), 1))
        ready = packed(b"R", struct.pack("!I", 0)) + backend.settings + key + packed(b"Z", b"I")
        client.sendall(ready)

    def _transact(self, client: socket.socket, backend: Backend) -> None:
        """Passes on one transaction of the client."""
        kind, payload = read_one(client)
        side = ""
        with backend.lock:
            while kind != b"X":
                side = side or self._side(backend.statement(kind, payload))
                if side == "before":
                    break
                backend.send(packed(kind, payload))
                if kind in {b"Q", b"S"}:
                    status = backend.relay(None if side else client)
                    if side:
                        break
                    if status == b"I":
                        return
                kind, payload = read_one(client)
        raise ConnectionError("the client has said goodbye, or is cut off")

    def _side(self, statement: bytes) -> str:
        """Returns on which side of this statement to cut; once."""
        if self.cut is None or not re.search(self.cut[0], statement):
            return ""
        side, self.cut = self.cut[1], None
        return side

    def close(self) -> None:
        for one in self._open:
            one.close()
        if self._shared is not None:
            self._shared.close()


@contextlib.contextmanager
def pooling(conninfo: str, mode: str) -> Generator[Pooler]:
    """Runs a pooler."""
    pooler = Pooler(conninfo, mode)
    try:
        yield pooler
    finally:
        pooler.close()
