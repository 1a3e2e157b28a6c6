"""How long to wait before looking again: short at first, then longer, up to a bound.

Used by the drivers for `Wait`. Pure: the clock is a parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceq.model.ops import Wait

FIRST_S = 0.0003
GROWTH = 1.25
"""Each wait is this much longer: a reply is seen a quarter of its own latency late, at most."""
LONGEST_S: dict[str, float] = {"environment": 5.0}
LONGEST_DEFAULT_S = 0.05
"""The fallback poll: an element that became ready is seen this much later, at most."""


class Pause:
    """One series of growing waits at a time, for each of several keys."""

    __slots__ = ("_deadlines", "_delays")

    def __init__(self) -> None:
        self._delays: dict[str, float] = {}
        self._deadlines: dict[str, float | None] = {}

    def next(self, op: Wait, now: float) -> float | None:
        """Returns the seconds to wait; None when the series' deadline has passed."""
        if op.first or op.key not in self._delays:
            self._delays[op.key] = FIRST_S
            self._deadlines[op.key] = None if op.timeout_s is None else now + op.timeout_s
        deadline = self._deadlines[op.key]
        if deadline is not None and now >= deadline:
            return None
        delay = self._delays[op.key]
        self._delays[op.key] = min(delay * GROWTH, LONGEST_S.get(op.key, LONGEST_DEFAULT_S))
        return delay if deadline is None else min(delay, deadline - now)
