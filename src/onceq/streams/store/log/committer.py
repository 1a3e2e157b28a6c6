"""Group commit, in a thread: one write and one sync for all that was appended meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onceq.streams.store.log.entries import EntryKind

if TYPE_CHECKING:
    from onceq.streams.store.log.writing import Log

IDLE_S = 0.1
"""An idle log says after this how far it is synced, so that damage is told from a torn tail."""
LATEST: Final = 1_024
"""Of so many commits it is known how long each took."""


class Latencies:
    """How long commits took: the latest, and all together. One thread adds, another may read."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._latest: list[float] = []

    def add(self, took_s: float) -> None:
        """Note one more."""
        if len(self._latest) < LATEST:
            self._latest.append(took_s)
        else:
            self._latest[self.count % LATEST] = took_s
        self.count += 1
        self.sum_s += took_s

    def quantile_s(self, part: float) -> float:
        """Return what that part of the latest did not exceed, 0 to 1; 0.0: there was none yet."""
        latest = sorted(self._latest.copy())
        return latest[min(int(part * len(latest)), len(latest) - 1)] if latest else 0.0


class Committer:
    """Commits a log whenever it is woken.

    told: called in the thread with the position up to which everything is synced. failed: called in
    it if the disk fails, or with whatever else went wrong; then it ends, and so must the process.
    clock: seconds that only go on.
    """

    def __init__(
        self,
        log: Log,
        *,
        told: Callable[[int], None],
        failed: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._told = told
        self._failed = failed
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="onceq-committer", daemon=True)
        self._clock = clock
        self.latencies = Latencies()

    def start(self) -> None:
        """Begin to commit."""
        self._thread.start()

    def wake(self) -> None:
        """Something was appended that somebody waits for."""
        self._woken.set()

    def stop(self) -> None:
        """Commit what is left, and end."""
        self._stopping = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                woken = self._woken.wait(IDLE_S)
                self._woken.clear()
                if woken or self._log.has_pending():
                    self._commit()
                    self._log.prepare()
            self._commit()
        except Exception as error:  # noqa: BLE001 # of a thread: its process must know, and end
            self._failed(error)

    def _commit(self) -> None:
        if self._log.has_pending():
            begun_s = self._clock()
            synced = self._log.commit()
            self.latencies.add(self._clock() - begun_s)
            self._told(synced)


def mark(log: Log, marked: int, payload: bytes = b"") -> int:
    """Say in the log how far it is synced, if no entry does; return how far that is said.

    marked: what the last call returned. payload: what is to be said beside, though all is synced.
    By whoever appends, when nothing was for a while: an entry says only how far the log was synced
    before it.
    """
    if log.has_pending() or (log.synced <= marked and not payload):
        return marked
    synced = log.synced
    log.append(EntryKind.MARK, 0, payload)
    return max(synced, log.end)
