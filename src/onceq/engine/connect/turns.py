"""The turns of a queue manager's calls: each that has one has a connection.

A call may be cut short at any instruction, by Ctrl-C in the main thread. `threading`'s semaphores
are then left locked for ever, and a turn that was just taken is lost. So turns are not counted but
looked for: one is over when nobody holds its `right` any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
import weakref
from typing import Final

from onceq.errors import DeadlineExceeded

LOOK_S: Final = 1.0
"""How often a waiting call looks by itself: one that was cut short may have taken its hint."""


class Right:
    """What a turn holds."""

    __slots__ = ("__weakref__",)


class Turn:
    """A turn; `give_back` ends it. One of `Turns` also ends when it is dropped."""

    __slots__ = ("right",)

    def __init__(self) -> None:
        self.right: Right | None = Right()


class Turns:
    """At most so many turns at a time, for any number of threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taking = threading.Lock()  # `with` lets nothing happen between the lock and its block
        self._held: list[weakref.ref[Right]] = []
        self._over: queue.SimpleQueue[object] = queue.SimpleQueue()

    def take(self, wait_s: float) -> Turn:
        """Takes a turn. DeadlineExceeded: none came in time."""
        turn = Turn()
        deadline = time.monotonic() + wait_s
        left = 0.0
        while not self._is_noted(turn, min(left, LOOK_S)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise none_came(self._most, wait_s)
        return turn

    def _is_noted(self, turn: Turn, timeout_s: float) -> bool:
        """Waits for a hint that a turn is over; returns whether this one may begin."""
        with contextlib.suppress(queue.Empty):
            self._over.get(timeout=timeout_s)
        with self._taking:
            self._held = [one for one in self._held if one() is not None]
            if turn.right is None or len(self._held) >= self._most:
                return False
            self._held.append(weakref.ref(turn.right, self._over.put))
            return True

    def give_back(self, turn: Turn) -> None:
        """Ends a turn."""
        turn.right = None


class AsyncTurns:
    """The same for tasks, which are cut short only where they wait: these turns are counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._turns = asyncio.BoundedSemaphore(most)

    async def take(self, wait_s: float) -> Turn:
        """See Turns.take."""
        try:
            await asyncio.wait_for(self._turns.acquire(), wait_s)
        except TimeoutError as error:
            raise none_came(self._most, wait_s) from error
        return Turn()

    def give_back(self, turn: Turn) -> None:
        """Ends a turn."""
        turn.right = None
        self._turns.release()


def none_came(most: int, wait_s: float) -> DeadlineExceeded:
    """Returns the error for a call that waited in vain."""
    return DeadlineExceeded(
        f"none of the {most} connections of this queue manager was free within {wait_s:g} s, and "
        "nothing happened: open another manager for what waits long"
    )
