"""The thread in which the sources and receivers of a synchronous context run.

Callers in other threads wait for it; a wait that is cut short by Ctrl-C cancels what it waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from onceq.errors import DeadlineExceeded, IllegalState

T = TypeVar("T")
CLOSE_S: Final = 5.0
"""How long closing waits for a thread, or for a handler of events."""


class LoopThread:
    """A thread with a loop. It ends with the process, or with `close`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="onceq streams", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def begin(self, made: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin something in the loop. Raises IllegalState when it is closed, or from inside."""
        if threading.get_ident() == self._thread.ident or not self.loop.is_running():
            made.close()
            raise IllegalState(
                "the context is closed, or this is its own thread, which cannot wait"
            )
        return asyncio.run_coroutine_threadsafe(made, self.loop)

    def call(self, made: Coroutine[Any, Any, T]) -> T:
        """Have something done in the loop; return its result."""
        future = self.begin(made)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, done: Callable[[], None]) -> None:
        """Have something done in the loop, behind what it was told before; closed, it does not."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(done)

    def close(self) -> None:
        """End the thread."""
        self.soon(self.loop.stop)
        self._thread.join(CLOSE_S)


class Changes:
    """What threads wait by until something holds that changes in the loop."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0

    def moved(self) -> None:
        """Note that something may have changed; in the thread of the loop."""
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def wait(self, holds: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        """Wait until something holds. Raises DeadlineExceeded, or what `holds` raises."""
        with self._changed:
            self._waiting += 1
            try:
                if not self._changed.wait_for(holds, timeout_s):
                    raise DeadlineExceeded(f"after {timeout_s} s {what}")
            finally:
                self._waiting -= 1


class EventThread:
    """A thread that calls handlers of events, one after the other, so that they may wait."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="onceq events", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (call := self._told.get()) is not None:
            call()

    def put(self, call: Callable[[], None]) -> None:
        """Have something called behind the rest."""
        self._told.put(call)

    def flush(self) -> None:
        """Wait until all that was put has been called, for a while; in its own thread: not."""
        if threading.get_ident() == self._thread.ident:
            return
        done = threading.Event()
        self._told.put(done.set)
        done.wait(CLOSE_S)

    def close(self) -> None:
        """End the thread, behind what was put."""
        self._told.put(None)
        if threading.get_ident() != self._thread.ident:
            self._thread.join(CLOSE_S)
