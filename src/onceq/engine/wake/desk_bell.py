"""The bell of a desk: one socket for all of its clerks, and a token for each (ADR 28).

Used by the desk's event loop. As with any bell a ring is a hint: each clerk that waits also looks
by itself. If more arrives than the socket holds, the rest is lost unseen, so then all look.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onceq.engine.wake.bell import LOOPBACK, TOKEN_BYTES, host_key
from onceq.engine.wake.waiting import RUNG_PACES, Pace, pace_of

if TYPE_CHECKING:
    from onceq.model.ops import Wait

BUFFER_BYTES: Final = 1 << 20
"""Asked of the system, which may give less."""
HELD_BYTES: Final = 1024
"""What a datagram takes of that: a token, and what the system keeps beside it, rounded up."""
TRUSTED_S: Final = 30.0
"""So long after a ring it is taken for granted that the next one gets here, too."""
FIRST_S: Final = 0.5
"""Then the first look of a clerk that was to be rung before it sent is so late: it would see
nothing. Whoever else waits looks soon: it may have been rung before, or what it waits for expires.
"""
LOOKS_PER_S: Final = 500
"""So often at most all clerks together look for what nobody rang."""

Ring = Callable[[], None]


class DeskBell:
    """The bell of a desk. rubbish: datagrams that were no rings.

    on_long_wait: called when a clerk has waited long and nobody rang: datagrams may not get here.
    many: so many datagrams at once are taken for more than the socket could hold.
    """

    def __init__(self, channel: str, on_long_wait: Callable[[], None]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        given = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self.many = max(1, given // HELD_BYTES)
        self._heard_at = -math.inf
        self._socket.bind((LOOPBACK, 0))
        self._socket.setblocking(False)  # noqa: FBT003 # the socket's own way
        self.port: int = self._socket.getsockname()[1]
        self.on_long_wait = on_long_wait
        self._address = f"{host_key()} {self.port} {channel}"
        self._all = secrets.token_bytes(TOKEN_BYTES)
        self._rings: dict[bytes, Ring] = {}
        self.rubbish = 0

    def fileno(self) -> int:
        """Returns the file that becomes readable when something arrives."""
        return self._socket.fileno()

    def text(self, token: str | None = None) -> str:
        """Returns where a clerk is rung, in the database's form; None: where all are."""
        return f"{self._address} {self._all.hex() if token is None else token}"

    def add(self, ring: Ring) -> bytes:
        """Notes a clerk, to be rung by this call; returns its token."""
        token = secrets.token_bytes(TOKEN_BYTES)
        self._rings[token] = ring
        return token

    def remove(self, token: bytes) -> None:
        """Forgets a clerk; idempotent."""
        self._rings.pop(token, None)

    def hear(self) -> bool:
        """Reads at most `many` datagrams, rings those whom they name; True: too much rubbish."""
        heard = good = 0
        with contextlib.suppress(BlockingIOError):  # nothing is left
            while heard < self.many:
                token = self._socket.recv(TOKEN_BYTES + 1)
                heard += 1
                ring = self._rings.get(token)
                if ring is not None:
                    ring()
                    good += 1
                elif token == self._all:
                    self.ring_all()
                    good += 1
                else:  # perhaps of a clerk that has left
                    self.rubbish += 1
        if good > 0:
            self._heard_at = time.monotonic()
        if good > self.many // 2 and heard == self.many:
            self.ring_all()
        return heard == self.many and good == 0

    def pace(self, op: Wait, now: float) -> Pace:
        """Returns how a clerk's waits go: each is rung, so its looks are for a ring that is lost.

        The more clerks wait, the longer each, or they would keep the database busy with looking.
        """
        pace = pace_of(op.key, is_rung=True)
        if op.key not in RUNG_PACES:
            return pace
        longest_s = max(pace.longest_s, len(self._rings) / LOOKS_PER_S)
        is_late = op.key == "reply" and now < self._heard_at + TRUSTED_S
        return Pace(FIRST_S if is_late else pace.first_s, pace.growth, longest_s)

    def ring_all(self) -> None:
        """Rings every clerk."""
        for ring in list(self._rings.values()):
            ring()

    def close(self) -> None:
        """Closes the socket; idempotent."""
        self._socket.close()
