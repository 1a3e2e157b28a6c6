"""The gate of a process: many together, or a suspect alone."""

from __future__ import annotations

import functools
import threading

from onceq.engine.gate import Gate
from tests.parts import Background, wait_until


def test_many_suspects_enter_one_after_the_other() -> None:
    gate = Gate()
    inside: list[int] = []
    most: list[int] = []

    def run(number: int) -> None:
        gate.enter(alone=True)
        inside.append(number)
        most.append(len(inside))
        inside.remove(number)
        gate.leave()

    gate.enter(alone=False)
    waiting = [Background(functools.partial(run, n)) for n in range(4)]
    wait_until(lambda: not gate.try_enter(alone=False))  # a suspect waits: it goes first
    assert not inside
    gate.leave()
    for one in waiting:
        one.result()
    assert most == [1, 1, 1, 1]


def test_nothing_enters_beside_a_suspect() -> None:
    gate = Gate()
    gate.enter(alone=True)
    assert not gate.try_enter(alone=False)
    assert not gate.try_enter(alone=True)
    entered = threading.Event()

    def enter() -> None:
        gate.enter(alone=False)
        entered.set()

    waiting = Background(enter)
    assert not entered.is_set()
    gate.leave()
    waiting.result()
    assert gate.try_enter(alone=False)


def test_who_gives_up_waiting_lets_the_others_in() -> None:
    """An async server that is cancelled while its suspect waits."""
    gate = Gate()
    gate.announce(alone=True)
    assert not gate.try_enter(alone=False)
    gate.withdraw(alone=True)
    assert gate.try_enter(alone=False)
