"""Waits grow from short to long, per series, and end at their deadline."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onceq.engine.wake.bell import LISTEN_FROM_S
from onceq.engine.wake.waiting import (
    FALLING_ASLEEP_S,
    LONGEST_DEFAULT_S,
    LONGEST_RUNG_S,
    POLLED,
    POLLED_PACES,
    RUNG,
    RUNG_PACES,
    Pace,
    Pause,
)
from onceq.model.ops import Rest, Wait


def series(pause: Pause, key: str, count: int, *, first: bool = True) -> list[float]:
    delays: list[float] = []
    for number in range(count):
        delay = pause.next(Wait(key=key, first=first and number == 0), 0.0)
        assert delay is not None
        delays.append(delay)
    return delays


FIRST_S = POLLED.first_s


@pytest.mark.parametrize(
    ("bells", "key", "pace", "longest"),
    [
        (0, "receive", POLLED, LONGEST_DEFAULT_S),
        (0, "environment", POLLED, POLLED_PACES["environment"].longest_s),
        (1, "receive", RUNG, LONGEST_RUNG_S),
        (1, "reply", RUNG_PACES["reply"], LONGEST_RUNG_S),
        (1, "dequeue", RUNG, LONGEST_RUNG_S),
        (1, "claim", POLLED, LONGEST_DEFAULT_S),
        (1, "environment", POLLED, POLLED_PACES["environment"].longest_s),
    ],
)
def test_waits_grow_to_their_longest(bells: int, key: str, pace: Pace, longest: float) -> None:
    delays = series(Pause(rung=bool(bells)), key, 100)
    assert delays[0] == pace.first_s
    assert delays[-1] == longest
    grown = [later / earlier for earlier, later in pairwise(delays) if later < longest]
    assert all(ratio == pytest.approx(pace.growth) for ratio in grown)


def test_a_series_that_nobody_began_here_has_its_time_all_the_same() -> None:
    """It had begun on a connection that is gone."""
    pause = Pause()
    assert pause.next(Wait(key="claim", first=False, timeout_s=0.3), 5.0) == FIRST_S
    assert pause.next(Wait(key="claim", first=False, timeout_s=0.3), 5.3) is None


def test_a_ring_makes_the_series_short_again_and_keeps_its_deadline() -> None:
    pause = Pause(rung=True)
    assert pause.next(Wait(key="receive", first=True, timeout_s=1.0), 0.0) == RUNG.first_s
    series(pause, "receive", 20, first=False)
    pause.again("receive")
    assert pause.next(Wait(key="receive", first=False, timeout_s=1.0), 0.5) == RUNG.first_s
    assert pause.next(Wait(key="receive", first=False, timeout_s=1.0), 1.0) is None


def test_the_first_of_a_series_is_short_again() -> None:
    pause = Pause()
    series(pause, "idle", 20)
    assert series(pause, "idle", 1, first=False)[0] > FIRST_S
    assert series(pause, "idle", 1) == [FIRST_S]


def test_series_do_not_disturb_each_other() -> None:
    pause = Pause()
    series(pause, "idle", 20)
    assert series(pause, "receive", 1, first=False) == [FIRST_S]


def test_a_wait_ends_at_its_deadline() -> None:
    pause = Pause()
    wait = Wait(key="receive", first=True, timeout_s=FIRST_S * 1.5)
    later = Wait(key="receive", first=False, timeout_s=FIRST_S * 1.5)
    assert pause.next(wait, 10.0) == FIRST_S
    assert pause.next(later, 10.0 + FIRST_S) == pytest.approx(FIRST_S / 2)
    assert pause.next(later, 10.0 + 2 * FIRST_S) is None


def test_no_time_at_all_does_not_wait() -> None:
    assert Pause().next(Wait(key="receive", first=True, timeout_s=0.0), 5.0) is None


def test_without_a_deadline_it_waits_for_ever() -> None:
    pause = Pause()
    assert pause.next(Wait(key="idle", first=True), 0.0) == FIRST_S
    assert pause.next(Wait(key="idle", first=False), 1e9) is not None


@pytest.mark.parametrize("key", RUNG_PACES)
def test_whoever_is_never_rung_comes_to_listen(key: str) -> None:
    """Only a wait in vain of some length begins to LISTEN, where datagrams do not arrive."""
    pause = Pause(rung=True)
    waits = [pause.next(Wait(key=key, first=n == 0), 0.0) for n in range(3)]
    assert max(wait or 0 for wait in waits) >= LISTEN_FROM_S
    assert max(FALLING_ASLEEP_S) >= LISTEN_FROM_S


def test_a_wait_is_no_longer_than_what_is_waited_for() -> None:
    pause = Pause(rung=True)
    series(pause, "receive", 20)
    assert pause.next(Wait(key="receive", first=False, within_s=0.3), 0.0) == 0.3


def test_whoever_falls_asleep_looks_a_few_times_and_again_when_it_was_woken_to_look() -> None:
    pause = Pause(rung=True)
    looks = [pause.falling_asleep(first=number == 0) for number in range(5)]
    assert looks == [*FALLING_ASLEEP_S, None, None]
    pause.woken(Rest.WATCH)
    assert pause.falling_asleep(first=False) is None
    pause.woken(Rest.LOOK)
    assert pause.falling_asleep(first=False) == FALLING_ASLEEP_S[0]
