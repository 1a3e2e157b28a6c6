"""The turns of a manager's calls: as many as there are, also after calls that were cut short."""

from __future__ import annotations

import sys
import threading
import time
from dis import opname
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from onceq.engine.connect.turns import Turns
from onceq.errors import DeadlineExceeded
from tests.parts import LIMIT_S, Background

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD")
MOST = 2
SOON_S = LIMIT_S


class Struck(KeyboardInterrupt):
    """The interrupt."""


def struck_at(moment: int, call: Callable[[], object]) -> bool:
    """Makes a call that is interrupted at that moment; False: it has fewer.

    A moment is where the interpreter looks for signals: after calls, and where functions and
    rounds of loops begin.
    """
    left = moment
    last: dict[FrameType, str] = {}

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= last.get(frame, "").startswith(LOOKS)
            last[frame] = opname[frame.f_code.co_code[frame.f_lasti]]
        if left == 0:
            raise Struck
        return step

    sys.settrace(step)
    try:
        call()
    except Struck:
        return True
    finally:
        sys.settrace(None)
        last.clear()  # else it would keep the frames, and what they hold
    return False


def all_there(turns: Turns) -> bool:
    """Whether all turns can be taken, and no more."""
    taken = [turns.take(SOON_S) for _ in range(MOST)]
    with pytest.raises(DeadlineExceeded, match="none of the 2 connections"):
        turns.take(0.001)
    for one in taken:
        turns.give_back(one)
    return True


def call_of(turns: Turns) -> None:
    """A call of a manager, as `Links.borrowed` makes it."""
    turn = turns.take(SOON_S)
    try:
        pass
    finally:
        turns.give_back(turn)


def test_no_turn_is_lost_whenever_a_call_is_cut_short() -> None:
    turns = Turns(MOST)
    moment = 1
    while struck_at(moment, partial(call_of, turns)):
        assert Background(partial(all_there, turns)).result(), moment
        moment += 1
    assert moment > 10


def test_a_semaphore_would_be_locked_for_ever() -> None:
    """Why there are Turns; and what is looked for is found."""
    for moment in range(1, 100):
        turns = threading.BoundedSemaphore(MOST)
        struck_at(moment, turns.acquire)
        taking = Background(partial(turns.acquire, timeout=5.0))
        time.sleep(0.02)
        if taking.is_running:
            return
    pytest.fail("a semaphore survives every interrupt")


def test_who_waits_has_the_next_turn_at_once() -> None:
    turns = Turns(MOST)
    held = [turns.take(SOON_S) for _ in range(MOST)]
    waiting = Background(lambda: turns.take(SOON_S))
    time.sleep(0.05)
    assert waiting.is_running
    began = time.monotonic()
    turns.give_back(held.pop())
    assert waiting.result().right is not None
    assert time.monotonic() - began < SOON_S


def test_turns_never_exceed_their_number() -> None:
    turns = Turns(MOST)
    now, most = 0, 0
    lock, all_taken = threading.Lock(), threading.Event()

    def work() -> None:
        nonlocal now, most
        for _ in range(200):
            turn = turns.take(SOON_S)
            with lock:
                now += 1
                most = max(most, now)
                if most == MOST:
                    all_taken.set()
            assert all_taken.wait(SOON_S)
            with lock:
                now -= 1
            turns.give_back(turn)

    for one in [Background(work) for _ in range(8)]:
        one.result()
    assert most == MOST
    assert all_there(turns)
