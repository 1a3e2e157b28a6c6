"""A stop may be asked for in a signal handler, wherever in its own wait the thread is."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from onceq.engine.perform.stop import Stop
from tests.parts import LIMIT_S, Background

if TYPE_CHECKING:
    from types import FrameType

WAITS_S = 4.0


def asked_at(instruction: int, stop: Stop | threading.Event) -> float | None:
    """Waits, and is asked to stop before that instruction of the wait; how long it waited then.

    None: it was not asked, since it slept or had ended before it came to that instruction.
    """
    left = instruction
    asked: list[float] = []

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0 and not asked:
            asked.append(time.monotonic())
            sys.settrace(None)
            stop.set()
        return step

    sys.settrace(step)
    try:
        stop.wait(WAITS_S)
    finally:
        sys.settrace(None)
    return time.monotonic() - asked[0] if asked else None


def first_hung(kind: type[Stop | threading.Event], after_s: float) -> tuple[int, bool]:
    """Goes through the instructions of a wait: the last one, and whether it was for ever.

    after_s: so long it is waited for.
    """
    instruction = 0
    while True:
        instruction += 1
        waiting = Background(partial(asked_at, instruction, kind()))
        end = time.monotonic() + after_s
        while waiting.is_running and time.monotonic() < end:
            time.sleep(0.001)
        if waiting.is_running:
            return instruction, True
        waited = waiting.result()
        if waited is None:
            return instruction, False
        assert waited < WAITS_S / 2, f"asked at {instruction}, it waited on"


def test_it_is_asked_for_at_any_instruction_of_its_wait() -> None:
    instructions, is_hung = first_hung(Stop, LIMIT_S)
    assert not is_hung, f"at {instructions}"
    assert instructions > 20


def test_an_event_waits_for_itself() -> None:
    """Why there is a Stop; and what is looked for is found."""
    assert first_hung(threading.Event, 1.5 * WAITS_S)[1]


def test_all_who_wait_are_told_and_it_is_taken_back() -> None:
    stop = Stop()
    waiting = [Background(lambda: stop.wait(2 * LIMIT_S)) for _ in range(2)]
    assert not stop.wait(0.05)
    stop.set()
    stop.set()
    assert all(one.result() for one in waiting)
    stop.clear()
    assert not stop.is_set()
    assert not stop.wait(0)
