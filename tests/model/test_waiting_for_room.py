"""Who waits for room in a full queue, and who is told at once that it never comes."""

from __future__ import annotations

import math

import pytest

from onceq.errors import QueueFull
from onceq.model import ops
from onceq.model.ops.waiting import when_there_is_room

ENQUEUE = ops.Enqueue(queue="raw", body=b"x")


def test_what_never_fits_together_is_not_waited_for() -> None:
    program = when_there_is_room(ENQUEUE, None)
    assert next(program) is ENQUEUE
    with pytest.raises(QueueFull):
        program.throw(QueueFull("full", retry_after_s=math.inf))


def test_room_is_waited_for_and_the_op_done_again() -> None:
    program = when_there_is_room(ENQUEUE, 5.0)
    next(program)
    wait = program.throw(QueueFull("full", retry_after_s=0.5))
    assert wait == ops.Wait(key="room", first=True, timeout_s=5.0, within_s=0.5)
    has_come, is_over = True, False
    assert program.send(has_come) is ENQUEUE
    program.throw(QueueFull("full", retry_after_s=0.5))
    with pytest.raises(QueueFull):
        program.send(is_over)
