"""Bells: where a session that sleeps is rung, by a datagram on the loopback address (ADR 9).

Used by the links and drivers. A ring is a hint and nothing more: whoever waits also looks by
itself, so a lost one costs one poll, and a forged or doubled one costs a look. What does not carry
the bell's token is not heard, however much of it comes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import secrets
import select
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onceq.engine.waiting import Wakes

LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 16
DRAIN_MAX = 64
"""At most so many datagrams are read at once: a flood costs this much of each wait, no more."""
LISTEN_FROM_S = 0.01
"""Whoever waits so long in vain is worth a LISTEN connection: perhaps no datagram gets here."""
PARSED_MAX = 4096

Address = tuple[str, int]


def host_key() -> str:
    """Returns what is the same where a loopback datagram arrives, and nowhere else.

    That is a network namespace of one running kernel. Where it cannot be told, the key is
    nobody else's, and rings go through the database.
    """
    return hashlib.sha256(_host().encode()).hexdigest()[:32]


def _host() -> str:
    if platform.system() != "Linux":  # no network namespaces: one host is one loopback
        return f"{platform.node()} {uuid.getnode()}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return f"{boot.strip()} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return secrets.token_hex(TOKEN_BYTES)


@functools.lru_cache(maxsize=PARSED_MAX)
def parsed(bell: str) -> tuple[Address, bytes] | None:
    """Returns where the datagram of a bell goes and what is in it; None for what is no bell."""
    parts = bell.split(" ")
    try:
        port, token = int(parts[1]), bytes.fromhex(parts[3])
    except (ValueError, IndexError):
        return None
    if not 0 < port < 65536 or len(token) != TOKEN_BYTES:
        return None
    return (LOOPBACK, port), token


class Ringer:
    """The socket that rings bells. rung: datagrams sent; lost: bells that could not be rung."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)  # noqa: FBT003 # the socket's own way
        self.rung = 0
        self.lost = 0

    def ring(self, bells: Iterable[str]) -> None:
        """Rings each bell once. Never raises: what these bells tell of has already happened."""
        for bell in bells:
            found = parsed(bell)
            if found is None:
                self.lost += 1
                continue
            try:
                self._socket.sendto(found[1], found[0])
            except OSError:  # only a hint is lost, and counted: whoever sleeps there also looks
                self.lost += 1
            else:
                self.rung += 1

    def close(self) -> None:
        """Closes the socket; what is rung later is lost."""
        self._socket.close()


class Bell:
    """A session's own bell. text: as the database keeps it, "host port channel token".

    wakes: counts how its waits end, and what was no ring. on_long_wait: called when one is long.
    """

    def __init__(self, channel: str, wakes: Wakes, on_long_wait: Callable[[], None]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((LOOPBACK, 0))
        self._socket.setblocking(False)  # noqa: FBT003 # the socket's own way
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._wakes = wakes
        self._on_long_wait = on_long_wait
        self.port: int = self._socket.getsockname()[1]
        self.text = f"{host_key()} {self.port} {channel} {self._token.hex()}"

    def fileno(self) -> int:
        """Returns what becomes readable when something arrives."""
        return self._socket.fileno()

    def wait(self, timeout_s: float) -> bool:
        """Waits to be rung, at most this long; returns whether it was.

        After rubbish it hears nothing for the rest of the time: a flood cannot keep it busy.
        """
        end = time.monotonic() + timeout_s
        if not self._poll.poll(timeout_s * 1000):
            return self.awoke(timeout_s, rung=False)
        if self.is_rung():
            return self.awoke(timeout_s, rung=True)
        time.sleep(max(0.0, end - time.monotonic()))
        return self.awoke(timeout_s, rung=False)

    def awoke(self, timeout_s: float, *, rung: bool) -> bool:
        """Counts the end of a wait of this length, and returns what ended it."""
        self._wakes.rung += rung
        self._wakes.polled += not rung
        if not rung and timeout_s >= LISTEN_FROM_S:
            self._on_long_wait()
        return rung

    def is_rung(self) -> bool:
        """Takes what has arrived, at most DRAIN_MAX; returns whether one of it was a ring."""
        rung = False
        with contextlib.suppress(BlockingIOError):  # nothing is left
            for _ in range(DRAIN_MAX):
                if self._socket.recv(TOKEN_BYTES + 1) == self._token:
                    rung = True
                else:
                    self._wakes.rubbish += 1
        return rung

    def close(self) -> None:
        """Closes the socket; idempotent."""
        self._socket.close()
