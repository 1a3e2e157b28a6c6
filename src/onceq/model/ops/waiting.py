"""A Program of the Ops that a full queue refuses: it waits for room (spec Q13). Pure."""

from __future__ import annotations

import math
from typing import TypeVar

from onceq import errors
from onceq.model.ops.base import Op, Program
from onceq.model.ops.server import Wait

T = TypeVar("T")

LEAST_S = 0.001


def when_there_is_room(op: Op[T], room_s: float | None) -> Program[T]:
    """Performs an Op, again and again while the queue is full, for room_s at most.

    room_s: 0 does not wait; None: without end. Raises QueueFull when the time is over, or a stop is
    due, and at once if what was sent never fits together: nothing happened.
    """
    first = True
    while True:
        try:
            return (yield from op)
        except errors.QueueFull as full:
            if math.isinf(full.retry_after_s):
                raise
            within_s = max(full.retry_after_s, LEAST_S)
            wait = Wait(key="room", first=first, timeout_s=room_s, within_s=within_s)
            if not (yield from wait):
                raise
            first = False
