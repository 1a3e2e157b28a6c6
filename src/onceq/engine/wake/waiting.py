"""How long to wait before looking again: short at first, then longer, up to a bound.

Used by the drivers for `Wait` and `Sleep`. Pure: the clock is a parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceq.model.ops import Rest, Wait

LONGEST_DEFAULT_S = 0.05
"""Where nobody rings: an element that became ready is seen at most this much later."""
LONGEST_RUNG_S = 1.5
"""With a bell: a lost ring is discovered at most this much later."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a series of waits goes: its first, how much longer each next one is, and the longest."""

    first_s: float
    growth: float
    longest_s: float


POLLED = Pace(0.0003, 1.25, LONGEST_DEFAULT_S)
"""Where nobody rings: a reply is seen late by at most a quarter of its own latency."""
POLLED_PACES = {"environment": Pace(0.0003, 1.25, 5.0), "room": Pace(0.005, 1.5, 0.5)}
RUNG = Pace(0.002, 4.0, LONGEST_RUNG_S)
"""Where somebody rings. Still short at first: a transaction committing just now looked for sleepers
before this one was among them, and rings nobody."""
RUNG_PACES = {
    "receive": RUNG,
    "dequeue": RUNG,
    "reply": Pace(0.04, 4.0, LONGEST_RUNG_S),
}
"""What is waited for with a bell. "reply" is for a client that was asleep before it sent."""
FALLING_ASLEEP_S = (0.002, 0.008, 0.032)
"""How long a server session that falls asleep waits before each of its looks; then it sleeps."""


@dataclass(slots=True)
class Wakes:
    """How the waits of a session with a bell ended: by a ring, or by time.

    called: by a sibling in its process. rubbish: datagrams that were not rings.
    """

    rung: int = 0
    polled: int = 0
    called: int = 0
    rubbish: int = 0


def pace_of(key: str, *, is_rung: bool) -> Pace:
    """Returns how waits of a key go, of a session with a bell or without."""
    pace = RUNG_PACES.get(key) if is_rung else None
    return pace or POLLED_PACES.get(key, POLLED)


class Series:
    """One series of growing waits at a time."""

    __slots__ = ("_deadline", "_delay_s", "_is_begun")

    def __init__(self) -> None:
        self._is_begun = False
        self._delay_s: float | None = None
        self._deadline: float | None = None

    def next(self, op: Wait, now: float, pace: Pace) -> float | None:
        """Returns the seconds to wait; None when the series' deadline has passed."""
        if op.first or not self._is_begun:  # or it had begun on a connection that is gone
            self._is_begun = True
            self._delay_s = None
            self._deadline = None if op.timeout_s is None else now + op.timeout_s
        deadline = self._deadline
        if deadline is not None and now >= deadline:
            return None
        delay_s = pace.first_s if self._delay_s is None else self._delay_s
        self._delay_s = min(delay_s * pace.growth, pace.longest_s)
        bounds = (op.within_s, None if deadline is None else deadline - now)
        return min([delay_s, *(bound for bound in bounds if bound is not None)])

    def again(self) -> None:
        """Begins it anew, with its old deadline, after a ring."""
        self._delay_s = None


class Pause:
    """A series of waits for each of several keys. rung: there is a bell."""

    __slots__ = ("_looks", "_rung", "_series")

    def __init__(self, *, rung: bool = False) -> None:
        self._rung = rung
        self._looks = 0
        self._series: dict[str, Series] = {}

    def is_rung(self, key: str) -> bool:
        """Returns whether a ring ends a wait of this key."""
        return self._rung and key in RUNG_PACES

    def next(self, op: Wait, now: float) -> float | None:
        """See Series.next."""
        series = self._series.setdefault(op.key, Series())
        return series.next(op, now, pace_of(op.key, is_rung=self._rung))

    def falling_asleep(self, *, first: bool) -> float | None:
        """Returns how long a session falling asleep waits before its next look; None: it sleeps."""
        self._looks = 0 if first else self._looks
        if self._looks == len(FALLING_ASLEEP_S):
            return None
        self._looks += 1
        return FALLING_ASLEEP_S[self._looks - 1]

    def woken(self, rest: Rest) -> None:
        """Makes it fall asleep anew, unless it was woken to survey."""
        if rest is not Rest.WATCH:
            self._looks = 0

    def again(self, key: str) -> None:
        """See Series.again."""
        self._series[key].again()
