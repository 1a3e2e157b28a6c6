"""Bells: a sleeping session is rung by a datagram on the loopback address (ADR 9).

Used by the links and drivers. A ring is a hint and nothing more: every waiter also looks by
itself, so a lost ring costs one poll, and a forged or doubled one costs a look. A datagram without
the bell's token is not heard, however many of them come.
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
from collections.abc import Callable, Iterable
from pathlib import Path

from onceq.engine.wake.waiting import Wakes

LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 16
CALL_BYTES = 15
"""The length of what a sibling in this process sends: it is neither a ring nor rubbish."""
DRAIN_MAX = 64
"""At most this many datagrams are read at once: a flood costs each wait this much, and no more."""
LISTEN_FROM_S = 0.01
"""After a vain wait this long, a LISTEN connection is worthwhile: datagrams may not get here."""
DEAF_S = 0.05
"""After rubbish nothing is heard for this long: a flood costs a look at the socket each time."""
PARSED_MAX = 4096

Address = tuple[str, int]


def host_key() -> str:
    """Returns a key that is the same wherever a loopback datagram arrives, and nowhere else.

    That is in one network namespace of one running kernel. If it cannot be determined, the key is
    unique, and rings go through the database.
    """
    return hashlib.sha256(_host().encode()).hexdigest()[:32]


def _host() -> str:
    if platform.system() != "Linux":  # no network namespaces: a host has one loopback
        return f"{platform.node()} {uuid.getnode()}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return f"{boot.strip()} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return secrets.token_hex(TOKEN_BYTES)


@functools.lru_cache(maxsize=PARSED_MAX)
def parsed(bell: str) -> tuple[Address, bytes] | None:
    """Returns a bell's address and the datagram to send there; None if it is not a bell."""
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
        """Rings each bell once. Never raises: what these bells announce has already happened."""
        for bell in bells:
            found = parsed(bell)
            if found is None:
                self.lost += 1
                continue
            try:
                self._socket.sendto(found[1], found[0])
            except OSError:  # only a hint is lost, and counted: sleepers also look
                self.lost += 1
            else:
                self.rung += 1

    def close(self) -> None:
        """Closes the socket; later rings are lost."""
        self._socket.close()


class Bell:
    """A session's own bell. text: in the database's form, "host port channel token".

    wakes: counts how its waits end, and datagrams that are not rings. on_long_wait: called after a
    long wait in vain.
    """

    def __init__(self, channel: str, wakes: Wakes, on_long_wait: Callable[[], None]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((LOOPBACK, 0))
        self._socket.setblocking(False)  # noqa: FBT003 # the socket's own way
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._call = secrets.token_bytes(CALL_BYTES)
        self.wakes = wakes
        self._on_long_wait = on_long_wait
        self.port: int = self._socket.getsockname()[1]
        self.text = f"{host_key()} {self.port} {channel} {self._token.hex()}"

    def fileno(self) -> int:
        """Returns the file that becomes readable when something arrives."""
        return self._socket.fileno()

    def wait(self, timeout_s: float, other: int | None = None) -> bool:
        """Waits to be rung, at most this long; returns whether it was.

        other: a file that also ends the wait when it can be read, as a lost connection can. After
        rubbish it hears nothing for a while: a flood cannot keep it busy.
        """
        end = time.monotonic() + timeout_s
        found = self._await(timeout_s, other)
        if self.fileno() not in found:
            return self.awoke(timeout_s, rung=False)
        if self.is_rung():
            return self.awoke(timeout_s, rung=True)
        time.sleep(min(DEAF_S, max(0.0, end - time.monotonic())))
        return self.awoke(timeout_s, rung=False)

    def doze(self, timeout_s: float, other: int) -> bool:
        """Waits like `wait`, or until another file can be read too; counts no end of a wait."""
        self._await(timeout_s, other)
        rubbish = self.wakes.rubbish
        rung = self.is_rung()
        if self.wakes.rubbish > rubbish and not rung:
            time.sleep(min(DEAF_S, timeout_s))
        return rung

    def _await(self, timeout_s: float, other: int | None) -> set[int]:
        """Waits until this bell or the other file can be read, or has ended; returns which."""
        poll = select.poll()
        for fd in (self.fileno(), other):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(timeout_s * 1000)}

    def awoke(self, timeout_s: float, *, rung: bool) -> bool:
        """Counts the end of a wait of this length, and returns whether a ring ended it."""
        self.wakes.rung += rung
        self.wakes.polled += not rung
        if not rung and timeout_s >= LISTEN_FROM_S:
            self._on_long_wait()
        return rung

    def is_rung(self) -> bool:
        """Reads what has arrived, at most DRAIN_MAX datagrams; returns whether any was a ring."""
        rung = False
        with contextlib.suppress(BlockingIOError):  # nothing is left
            for _ in range(DRAIN_MAX):
                heard = self._socket.recv(TOKEN_BYTES + 1)
                if heard == self._token:
                    rung = True
                elif heard != self._call:
                    self.wakes.rubbish += 1
        return rung

    def call(self) -> None:
        """Wakes whoever in this process waits for this bell, without a ring.

        If it does not fit into the socket, it wakes the waiter all the same: the socket is full.
        """
        with contextlib.suppress(OSError):
            self._socket.sendto(self._call, (LOOPBACK, self.port))

    def close(self) -> None:
        """Closes the socket; idempotent."""
        self._socket.close()
