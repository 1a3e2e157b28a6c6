"""The gate of a server process: a suspect runs with nothing beside it (G7).

Used by the drivers of one process's sessions. Shared for ordinary elements, exclusive for a
suspect; a waiting suspect goes before ordinary elements that come after it.
"""

from __future__ import annotations

import threading


class Gate:
    """A lock that many may hold shared, or one exclusively."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = False
        self._waiting = 0

    def announce(self, *, alone: bool) -> None:
        """Notes that somebody waits to enter; a suspect then goes before what comes after it."""
        with self._changed:
            self._waiting += alone

    def withdraw(self, *, alone: bool) -> None:
        """Takes an `announce` back: whoever waited has entered, or given up."""
        with self._changed:
            self._waiting -= alone
            self._changed.notify_all()

    def try_enter(self, *, alone: bool) -> bool:
        """Enters at once, or returns False and leaves everything as it was."""
        with self._changed:
            return self._enter(alone=alone)

    def enter(self, *, alone: bool) -> None:
        """Enters, waiting as long as it takes: the executions inside are bounded by their limit."""
        self.announce(alone=alone)
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._enter(alone=alone))
        finally:
            self.withdraw(alone=alone)

    def _enter(self, *, alone: bool) -> bool:
        if self._alone or (self._inside if alone else self._waiting):
            return False
        self._inside += 1
        self._alone = alone
        return True

    def leave(self) -> None:
        """Leaves."""
        with self._changed:
            self._inside -= 1
            self._alone = False
            self._changed.notify_all()
