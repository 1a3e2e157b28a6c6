"""Whether a process runs a store, or has contexts: never both, and a store only once.

A store in an application is given what threads and signals there are; what it had may be synced or
not when it ends, so that no second life of it begins in the same process. Source: UM, "Callable
Store"; spec M36.
"""

from __future__ import annotations

import threading
from typing import Final

from onceq.errors import IllegalState


class Alone:
    """What there is in a process. contexts: that are open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._had_store = False
        self.contexts = 0

    def take(self) -> None:
        """Begin to run a store. Raises IllegalState if there is a context, or was a store."""
        with self._lock:
            if self._had_store:
                raise IllegalState(
                    "this process has run a store, and does so once: begin another process"
                )
            if self.contexts:
                raise IllegalState(
                    "this process has a context of streams: run the store in a process of its own,"
                    " by StoreProcess"
                )
            self._had_store = True

    def give_back(self) -> None:
        """Note that the store could not even be opened: nothing has run."""
        with self._lock:
            self._had_store = False

    def open_context(self) -> None:
        """Note that there is one more context. Raises IllegalState if there is, or was, a store."""
        with self._lock:
            if self._had_store:
                raise IllegalState(
                    "this process runs a store, and has no contexts: use another process"
                )
            self.contexts += 1

    def close_context(self) -> None:
        """Note that there is one context less."""
        with self._lock:
            self.contexts -= 1


PROCESS: Final = Alone()
"""This process."""
