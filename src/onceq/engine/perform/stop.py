"""A stop that may be asked for in a signal handler.

`threading.Event` may not: its lock is not reentrant. A handler that sets it runs in the main
thread, between two instructions of Python; if these are those of the event's own `wait`, which
holds the lock there, the thread waits for itself for ever.
"""

from __future__ import annotations

import queue
import time


class Stop:
    """An event with `is_set`, `set`, `clear` and `wait`, whose `set` holds no lock of Python's."""

    def __init__(self) -> None:
        self._is_set = False
        self._waking: queue.SimpleQueue[None] = queue.SimpleQueue()  # its `put` is reentrant

    def is_set(self) -> bool:
        """Returns whether it is asked for."""
        return self._is_set

    def set(self) -> None:
        """Asks for it; from any thread, and in a signal handler."""
        self._is_set = True
        self._waking.put(None)

    def clear(self) -> None:
        """Takes it back. To be called only when nobody waits."""
        self._is_set = False
        while not self._waking.empty():
            self._waking.get()

    def wait(self, timeout_s: float) -> bool:
        """Waits until it is asked for; False: it was not within that time."""
        deadline = time.monotonic() + timeout_s
        while not self._is_set:
            try:
                self._waking.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return self._is_set
        self._waking.put(None)  # for the next one who waits
        return True
