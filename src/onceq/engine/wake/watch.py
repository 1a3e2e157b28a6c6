"""The watch of a process: one of its sleeping server sessions looks on behalf of all (ADR 19).

Used by the drivers for `Sleep` and `Rouse`, and by Server, which has one. It decides who keeps
watch, how long each sleeps and why it wakes; the drivers wait. A sibling calls a sleeper by a mark
here, and a datagram to the sleeper's bell so that it looks at the mark.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import ConnStatus

from onceq.engine.wake.bell import Bell
from onceq.model.ops import Rest, Sleep

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

LONGEST_S = 300.0
"""Nobody sleeps longer than this without a look of its own, whatever the others do."""
HANDED_OVER_S = 0.05
"""If the session that went to survey is not back asleep by then, the next one surveys."""

TEND_EVERY_S = 1.0
"""How often a process looks for what is due besides requests, at most."""


class Sleeper:
    """A sleeping session. called: why it is to wake, if a sibling says so."""

    __slots__ = ("bell", "called", "queues", "since")

    def __init__(self, bell: Bell, queues: list[str], since: float) -> None:
        self.bell = bell
        self.queues = queues
        self.since = since
        self.called: Rest | None = None


class Watch:
    """The sleepers of a process. longest_s: how long a session may be without a statement."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = min(longest_s, LONGEST_S)
        self._lock = threading.RLock()  # `rouse` is called by signal handlers
        self._sleepers: dict[Sleeper, None] = {}
        self._keeper: Sleeper | None = None
        self._due = 0.0
        self._tends_at = float("-inf")

    def may_tend(self, now: float) -> bool:
        """Returns whether the process has not tended for a second; then the asker is to."""
        with self._lock:
            if now < self._tends_at:
                return False
            self._tends_at = now + TEND_EVERY_S
            return True

    @contextmanager
    def asleep(self, bell: Bell, op: Sleep, now: float) -> Generator[Sleeper]:
        """Lets a session sleep for the time of the block; having looked last, it keeps watch."""
        sleeper = Sleeper(bell, op.queues, now)
        with self._lock:
            self._sleepers[sleeper] = None
            self._keeper = sleeper
            self._due = now + (op.within_s or 0.0)
        try:
            yield sleeper
        finally:
            self._get_up(sleeper)

    def _get_up(self, sleeper: Sleeper) -> None:
        """Hands the watch over to another session, if there is one."""
        with self._lock:
            del self._sleepers[sleeper]
            if self._keeper is sleeper:
                self._keeper = next(iter(self._sleepers), None)
                if self._keeper is not None:
                    self._keeper.bell.call()

    def delay_s(self, sleeper: Sleeper, now: float) -> float:
        """Returns how much longer this one may sleep."""
        until = sleeper.since + self._longest_s
        if self._keeper is sleeper:
            until = min(until, self._due)
        return max(0.0, until - now)

    def rest_of(self, sleeper: Sleeper, now: float, *, rung: bool) -> Rest | None:
        """Returns why this one is to wake now, and counts it; None: it is to sleep on."""
        wakes = sleeper.bell.wakes
        rest = sleeper.called or (Rest.LOOK if rung else self._timed(sleeper, now))
        wakes.rung += rung
        wakes.called += sleeper.called is not None and not rung
        wakes.polled += rest is not None and sleeper.called is None and not rung
        return rest

    def _timed(self, sleeper: Sleeper, now: float) -> Rest | None:
        with self._lock:
            if self.delay_s(sleeper, now) > 0:
                return None
            if self._keeper is not sleeper:
                return Rest.LOOK
            self._due = now + HANDED_OVER_S
            return Rest.WATCH

    def rouse(self, queues: Iterable[str] | None) -> None:
        """Calls sleepers: one that serves each of these queues; None: all of them, to attend."""
        with self._lock:
            if queues is None:
                for sleeper in self._sleepers:
                    _call(sleeper, Rest.ATTEND)
                return
            for queue in queues:
                for sleeper in self._sleepers:
                    if queue in sleeper.queues and sleeper.called is None:
                        _call(sleeper, Rest.LOOK)
                        break


def _call(sleeper: Sleeper, why: Rest) -> None:
    sleeper.called = why
    sleeper.bell.call()


def is_lost(pgconn: PGconn) -> bool:
    """Returns whether a connection with nothing under way was lost; reads what has arrived."""
    try:
        pgconn.consume_input()
    except psycopg.Error:
        return True
    return pgconn.status != ConnStatus.OK
