"""How many processes a service is to have: by what waits, how long it has, and the time of day.

`wanted` is pure; `Scaling` looks at the database and the clock for it, on a thread of its own.
Source: spec S9.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from datetime import time as time_of_day
from typing import Final, Self
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from onceq import errors, telemetry
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import Located
from onceq.engine.perform import backlog
from onceq.engine.perform.backlog import Backlog
from onceq.engine.sessions import silence
from onceq.model import names

log = logging.getLogger(__name__)

PROCESSES_MAX: Final = 1000
LOOK_S: Final = 2.0
FIRST_LOOK_S: Final = 0.2
"""While nobody knows yet what is served."""
LOOK_SHARE: Final = 20
"""A look is followed by so many times its own length without one, if that is longer."""
PATIENCE_S: Final = 10.0
GROW_AFTER_S: Final = 1.0
"""What could run and has waited for longer wants more processes."""
SHRINK_AFTER_S: Final = 30.0
"""When nothing has waited for so long, there is one process fewer; and again."""
_COUNT: Final = re.compile(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?")
_TIME: Final = "((?:[01][0-9]|2[0-3]):[0-5][0-9])"
_WINDOW: Final = re.compile(f"{_TIME}-{_TIME}")


@dataclass(frozen=True, slots=True)
class Window:
    """When a service runs: each day from one time to another, over midnight too.

    zone: whose time that is; None: the machine's own.
    """

    begin: time_of_day
    end: time_of_day
    zone: tzinfo | None = None

    @classmethod
    def parse(cls, text: str, zone: str | None = None) -> Self:
        """Returns that of a text such as "22:00-06:00". InvalidValue."""
        found = _WINDOW.fullmatch(text)
        if found is None:
            example = '"22:00-06:00", times from 00:00 to 23:59'
            raise errors.InvalidValue(f"window is like {example}, not {text!r}")
        begin, end = (time_of_day.fromisoformat(part) for part in found.groups())
        if begin == end:
            raise errors.InvalidValue(
                f"window {text!r} has no length: leave it out to serve always"
            )
        return cls(begin, end, None if zone is None else _zone(zone))

    def is_open(self, now: datetime) -> bool:
        """Whether a service runs at this time, which has a zone."""
        at = now.astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= at < self.end
        return at >= self.begin or at < self.end


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise errors.InvalidValue(
            f'zone is a name such as "Europe/Berlin", and this machine knows no {name!r}'
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many processes a service may have: least to most, 0 to 1,000.

    start_at: while there are none, the first starts when so many requests wait. window: outside it
    there are none.
    """

    least: int
    most: int
    start_at: int = 1
    window: Window | None = None

    def __post_init__(self) -> None:
        names.check_range("processes", self.most, 1, PROCESSES_MAX)
        names.check_range("processes at least", self.least, 0, self.most)
        names.check_range("start_at", self.start_at, 1, backlog.WAITING_MAX)
        if self.start_at > 1 and self.least:
            raise errors.InvalidValue(
                f"start_at {self.start_at} is for a service that may have no process: "
                f"say 0..{self.most}"
            )

    @classmethod
    def parse(cls, text: str, *, start_at: int = 1, window: Window | None = None) -> Self:
        """Returns that of a text, "2" or "0..8". InvalidValue."""
        found = _COUNT.fullmatch(text)
        if found is None:
            raise errors.InvalidValue(f'processes is a number or a range like "0..8", not {text!r}')
        least, most = found.groups()
        return cls(least=int(least), most=int(most or least), start_at=start_at, window=window)

    @property
    def is_fixed(self) -> bool:
        """Whether it always has as many."""
        return self.least == self.most and self.window is None

    def is_open(self, now: datetime) -> bool:
        """Whether there may be any at this time."""
        return self.window is None or self.window.is_open(now)

    @property
    def may_be_none(self) -> bool:
        """Whether there may be no process, though the service runs."""
        return not self.least or self.window is not None

    def __str__(self) -> str:
        return f"{self.least}..{self.most}" if self.least < self.most else str(self.most)


@dataclass(frozen=True, slots=True)
class Present:
    """The processes that a service has. serving: that have begun to serve."""

    processes: tuple[UUID, ...]
    serving: int


def wanted(scale: Scale, present: Present, seen: Backlog, idle_s: float) -> int:
    """Returns how many processes there are to be. idle_s: for how long nothing has waited.

    What has waited for a second doubles them, once all serve, as far as so many wait. Each 30 s in
    which nothing waits, and one of them has nothing to do, end one.
    """
    count = len(present.processes)
    if not scale.is_open(seen.now):
        return 0
    if count < scale.least or count > scale.most:
        return min(max(count, scale.least), scale.most)
    if not count:
        return int(seen.waiting >= scale.start_at)
    if seen.waiting and seen.oldest_s >= GROW_AFTER_S and present.serving == count:
        return min(scale.most, count + min(count, seen.waiting))
    is_idle = idle_s >= SHRINK_AFTER_S and len(seen.busy) < count
    return max(scale.least, count - 1) if is_idle else count


class Scaling:
    """Says how many processes a service is to have. present: those that it has now.

    queues: what it serves; empty while nobody knows. count: how many are wanted; busy: which ran
    something at the last look.
    """

    def __init__(
        self, scale: Scale, located: Located, repository: str, present: Callable[[], Present]
    ) -> None:
        self.queues: tuple[str, ...] = ()
        self.count = scale.least if scale.window is None else 0
        self.busy = frozenset[UUID]()
        self._scale = scale
        self._present = present
        self._link = Link(located, repository)
        self._idle_since = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if not scale.is_fixed:
            self._thread.start()

    def close(self) -> None:
        """Ends the looks."""
        self._over.set()
        if not self._scale.is_fixed:
            self._thread.join(2 * PATIENCE_S)

    def _run(self) -> None:
        pause_s = FIRST_LOOK_S
        while not self._over.wait(pause_s):
            began = time.monotonic()
            try:
                self._decide()
            except errors.OnceqError as error:
                what = "look at what waits; the service keeps as many processes as it has"
                telemetry.tell(log, telemetry.SupervisionFailed(what=what, error=str(error)))
            usual_s = LOOK_S if self.queues else FIRST_LOOK_S
            pause_s = max(usual_s, LOOK_SHARE * (time.monotonic() - began))
        self._link.close()

    def _decide(self) -> None:
        present = self._present()
        seen, before = self._look(present.processes), len(present.processes)
        if seen.waiting:
            self._idle_since = time.monotonic()
        idle_s = time.monotonic() - self._idle_since
        count = wanted(self._scale, present, seen, idle_s)
        if count < before:
            self._idle_since = time.monotonic()
        if count != self.count:
            telemetry.tell(
                log,
                telemetry.ServiceScaled(
                    processes=count,
                    before=before,
                    waiting=seen.waiting,
                    oldest_s=round(seen.oldest_s, 1),
                    is_open=self._scale.is_open(seen.now),
                ),
            )
        self.busy, self.count = seen.busy, count

    def _look(self, present: tuple[UUID, ...]) -> Backlog:
        with self._link.bounded(silence.within(PATIENCE_S)):
            self._link.reconnect()
            link = self._link
            return backlog.look(link.connection, link.repository, self.queues, present)
