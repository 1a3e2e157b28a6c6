"""When a schedule ticks: five fields of cron in a zone, and what becomes of missed ticks. Pure.

Times come in and go out in UTC; no clock is read. cronsim computes them, as Debian's cron would:

- A schedule of which neither minute nor hour begins with `*` ticks once for each local time that it
  names. One that is skipped when clocks go forward comes at the end of the gap, and what meets
  there is one tick. Of one that is repeated when they go back, the first counts.
- Any other goes by elapsed time: what is skipped does not come, what is repeated comes twice.

The rules of zones are those of this machine (or of the package tzdata).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from onceq.errors import InvalidValue
from onceq.model.names import check_choice, check_text, shown

MISSED: Final = ("last", "all", "none")
ALL_MAX: Final = 1000
"""With missed="all", of more missed ticks than this only the last so many are sent."""
AT_ONCE_MAX: Final = 100
"""So many ticks of one periodic request are planned at a look; the rest at the next one."""
LATE: Final = timedelta(seconds=60)
"""A tick that nobody saw for longer was missed, to missed="none"."""
NEVER: Final = "it has no time in the next 50 years"
_SECOND: Final = timedelta(seconds=1)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+/-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tick:
    """What is to become of the tick at `due`: move on to `to`, and send the request of `at`.

    at: None: send nothing.
    """

    due: datetime
    at: datetime | None
    to: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule in a zone, and what becomes of ticks that were missed. Raises InvalidValue."""

    text: str
    zone: str
    missed: str

    def __post_init__(self) -> None:
        fields = check_text("schedule", self.text, 200).split()
        if len(fields) != 5:
            raise _wrong(self.text, f"it has {len(fields)} fields")
        try:
            next(CronSim(self.text, datetime(2000, 1, 1)))  # noqa: DTZ001 # a local time
        except CronSimError as error:
            raise _wrong(self.text, str(error)) from error
        except StopIteration as error:
            raise _wrong(self.text, NEVER) from error
        _zone(self.zone)
        check_choice("missed", self.missed, MISSED)

    def after(self, moment: datetime) -> datetime:
        """Returns the first tick after a moment. InvalidValue: none in the next 50 years."""
        moment = moment.astimezone(UTC)
        try:
            ticks = CronSim(self.text, moment.astimezone(_zone(self.zone)))
            # in a repeated hour, cronsim goes back to the first one
            return next(at for one in ticks if (at := one.astimezone(UTC)) > moment)
        except (StopIteration, OverflowError, ValueError) as error:  # or beyond the year 9999
            raise _wrong(self.text, NEVER) from error

    def plan(self, due: datetime, now: datetime) -> Iterator[Tick]:
        """Yields what is to be done about what is due by now: `due`, and what follows it."""
        return _PLANS[self.missed](self, due, now)


def _wrong(schedule: object, why: str) -> InvalidValue:
    return InvalidValue(
        f"schedule {shown(schedule)} is not valid: {why}; it is minute, hour, day of the month, "
        'month, day of the week, as in "0 2 * * *" for two in the morning'
    )


def _zone(name: object) -> tzinfo:
    try:
        if isinstance(name, str) and _ZONE.fullmatch(name) and name != "localtime":
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass  # whatever it is, it is no zone
    raise InvalidValue(
        f"zone {shown(name)} is not known here: it is a name of the IANA time zone database, like "
        '"Europe/Berlin" or "UTC"; if it is one, install the package tzdata'
    )


# --- what becomes of missed ticks -----------------------------------------------------------------


def _halved(low: datetime, high: datetime, holds: Callable[[datetime], bool]) -> datetime:
    """Returns the last second for which it holds: it does for `low`, and not for `high`."""
    low, high = low.replace(microsecond=0), high.replace(microsecond=0)
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _ticks(schedule: Schedule, due: datetime, now: datetime) -> Iterator[datetime]:
    """Yields `due`, and the ticks after it, up to now."""
    while due <= now:
        yield due
        due = schedule.after(due)


def _of_last(schedule: Schedule, due: datetime, now: datetime, n: int) -> datetime:
    """Returns the first of the last n ticks up to now; it counts no more than n at once."""
    if _count(_ticks(schedule, due, now), n + 1) <= n:
        return due

    def has_n(since: datetime) -> bool:
        return _count(_ticks(schedule, schedule.after(since), now), n) == n

    return schedule.after(_halved(due, now + _SECOND, has_n))


def _count(ticks: Iterator[datetime], most: int) -> int:
    return sum(1 for _ in itertools.islice(ticks, most))


def _last(schedule: Schedule, due: datetime, now: datetime) -> Iterator[Tick]:
    if due <= now:
        yield Tick(due, _of_last(schedule, due, now, 1), schedule.after(now))


def _punctual(schedule: Schedule, due: datetime, now: datetime) -> Iterator[Tick]:
    for one in _last(schedule, due, now):
        is_late = one.at is not None and now - one.at > LATE
        yield Tick(one.due, None if is_late else one.at, one.to)


def _each(schedule: Schedule, due: datetime, now: datetime) -> Iterator[Tick]:
    at = _of_last(schedule, due, now, ALL_MAX)
    for tick in itertools.islice(_ticks(schedule, at, now), AT_ONCE_MAX):
        to = schedule.after(tick)
        yield Tick(due, tick, to)
        due = to


_PLANS: Final[dict[str, Callable[[Schedule, datetime, datetime], Iterator[Tick]]]] = {
    "last": _last,
    "all": _each,
    "none": _punctual,
}
