"""The exchange of a process: its wires to one database, and the one place where it is notified.

Used by the links. There is one for each process and connection string, from its first wire to its
last. It is the one thing in the library that sessions of a process share without being given it:
a LISTEN connection for each of them would slow down every commit that notifies.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterable

from onceq.engine.wake.bell import Bell, Ringer
from onceq.engine.wake.listening import Listener
from onceq.engine.wake.waiting import Wakes
from onceq.engine.wake.watch import Watch

_changing = threading.Lock()
_exchanges: dict[tuple[int, str], Exchange] = {}


class Wire:
    """What one session has of its exchange. bell: its own, or None if it is never rung.

    watch: that of the sessions that sleep together with it.
    """

    def __init__(self, exchange: Exchange, bell: Bell | None, watch: Watch) -> None:
        self._exchange = exchange
        self.bell = bell
        self.watch = watch

    @property
    def bell_text(self) -> str | None:
        """Where this session is rung, in the database's form."""
        return None if self.bell is None else self.bell.text

    def ring(self, bells: Iterable[str]) -> None:
        """Rings these bells, once each."""
        self._exchange.ringer.ring(bells)

    def close(self) -> None:
        """Gives the wire up; the last one to do so closes the exchange. Call it once."""
        self._exchange.leave(self)
        if self.bell is not None:
            self.bell.close()


class Exchange:
    """The wires of one process to one database. channel: where the process is notified."""

    def __init__(self, conninfo: str) -> None:
        self.key = (os.getpid(), conninfo)
        self.channel = f"onceq_{secrets.token_hex(12)}"
        self.ringer = Ringer()
        self._wires: set[Wire] = set()
        self._bells: dict[int, Bell] = {}
        self._listener: Listener | None = None

    def join(self, wakes: Wakes | None, watch: Watch) -> Wire:
        """Returns a new wire; call it under the lock of all exchanges."""
        bell = None if wakes is None else Bell(self.channel, wakes, self.listen)
        if bell is not None:
            self._bells[bell.port] = bell
        wire = Wire(self, bell, watch)
        self._wires.add(wire)
        return wire

    def leave(self, wire: Wire) -> None:
        """Takes a wire back, and closes if it was the last."""
        with _changing:
            self._wires.remove(wire)
            if wire.bell is not None:
                del self._bells[wire.bell.port]
            if self._wires:
                return
            del _exchanges[self.key]
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self.ringer.close()

    def listen(self) -> None:
        """Begins to listen, if it does not yet. For a session that waits, with an open wire."""
        if self._listener is None:
            with _changing:
                if self._listener is None:
                    self._listener = Listener(self.key[1], self.channel, self._ring)

    @property
    def is_listening(self) -> bool:
        """Whether notifications are coming in now."""
        listener = self._listener
        return listener is not None and listener.is_listening.is_set()

    def _ring(self, port: int) -> None:
        """Rings this process's bell with this port, if there is one."""
        bell = self._bells.get(port)
        if bell is not None:
            self.ringer.ring([bell.text])


def join(conninfo: str, wakes: Wakes | None, watch: Watch | None = None) -> Wire:
    """Returns a wire of this process to a database. wakes: of its bell; None: it has no bell.

    watch: that of the sessions that sleep together with it; None: it sleeps alone.
    """
    key = (os.getpid(), conninfo)
    with _changing:
        exchange = _exchanges.get(key)
        if exchange is None:
            exchange = _exchanges[key] = Exchange(conninfo)
        return exchange.join(wakes, watch or Watch())


def count() -> int:
    """Returns how many exchanges are open, in this process and in the one it was forked from."""
    return len(_exchanges)
