"""The LISTEN connection of a process: rings that come through the database (ADR 9).

Used by `Exchange`. Sessions on other hosts notify it, and so do transactions that someone
else commits. One thread, one connection. It only passes on rings.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import psycopg

from onceq import telemetry

log = logging.getLogger(__name__)

Ring: TypeAlias = Callable[[int, str | None], None]

RETRY_FIRST_S = 0.05
RETRY_LONGEST_S = 5.0
END_S = 1.0
"""How long `close` waits for the thread; a connection attempt under way may take longer."""


class Listener:
    """Listens on a channel until closed, and calls ring(port, token or None) for what comes."""

    def __init__(self, conninfo: str, channel: str, ring: Ring) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._ring = ring
        self._ending, self._end = socket.socketpair()
        self.is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onceq-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and its connection."""
        self._end.close()
        self._thread.join(END_S)

    def _run(self) -> None:
        delay = RETRY_FIRST_S
        with self._ending:
            while not self._is_ending(0.0):
                try:
                    with psycopg.connect(self._conninfo, autocommit=True) as connection:
                        connection.execute(f"listen {self._channel}".encode())
                        delay = RETRY_FIRST_S
                        self.is_listening.set()
                        self._listen(connection)
                except psycopg.Error as error:
                    event = telemetry.NotListening(error=str(error), delay_s=delay)
                    telemetry.tell(log, event)
                    self.is_listening.clear()
                    if self._is_ending(delay):
                        return
                    delay = min(2 * delay, RETRY_LONGEST_S)

    def _is_ending(self, timeout_s: float) -> bool:
        """Waits at most this long for the end; returns whether it has come."""
        poll = select.poll()
        poll.register(self._ending, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        """Passes on what comes, until the end or until the connection is lost."""
        poll = select.poll()
        poll.register(self._ending, select.POLLIN)
        poll.register(connection.fileno(), select.POLLIN)
        ending = self._ending.fileno()
        while ending not in dict(poll.poll()):  # until `close`
            connection.pgconn.consume_input()
            while (found := connection.pgconn.notifies()) is not None:
                port, _, token = found.extra.decode().partition(" ")
                if port.isdigit():
                    self._ring(int(port), token or None)
