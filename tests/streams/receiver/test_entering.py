"""Lives of a receiver that enter at once, at stores that may be down: one is in, one is told."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from onceq.streams.errors import RegistrationInUse
from onceq.streams.model import asks
from onceq.streams.model.ops import AskStores, WaitUntil
from onceq.streams.receiver.placing import Registration, Who, enter
from onceq.streams.store import acts
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.records import key_of
from tests.streams.store.served import Served
from tests.streams.store.test_disk_store import ABC, S

if TYPE_CHECKING:
    from collections.abc import Generator

SESSION, KEY = 5, key_of(0, 5)
REST_S, BEAT_S, DELAY_S = 0.5, 1.0, 0.05
LIMIT_S = 600.0


class Life:
    """A life: what it does next, and when. said: what it is told in the end."""

    def __init__(self, number: int, activity_ms: int = 30_000) -> None:
        self.number = number
        self.at_s = 0.0
        self.is_frozen = False
        self.registration: Registration | None = None
        self.said: RegistrationInUse | None = None
        self.activity_ms = activity_ms
        who = Who(
            topic="bars",
            source=9,
            session=SESSION,
            key=KEY,
            known=ABC,
            life=number,
            activity_ms=activity_ms,
        )
        self.program = enter(who, 1.0, REST_S)


class World:
    """Three stores, lives, and a clock; what is asked arrives after a while, in any order."""

    def __init__(self, seed: int, down: str = "") -> None:
        self.chance = random.Random(seed)
        self.now_s = 0.0
        self.stores = {name: Served(MemoryStore(clock=lambda: self.now_s)) for name in "abc"}
        for one in self.stores.values():
            one.begin()
        self.down = set(down)
        self.lives: list[Life] = []
        self._steps: dict[Life, Generator[float]] = {}

    def enter(self, number: int, activity_ms: int = 30_000) -> Life:
        life = Life(number, activity_ms)
        life.at_s = self.now_s
        self.lives.append(life)
        for one in self.stores.values():
            one.step(acts.Opened(link=number))
        self._steps[life] = self._live(life)
        return life

    def die(self, life: Life) -> None:
        del self._steps[life]
        for one in self.stores.values():
            one.step(acts.Gone(link=life.number))

    def step(self) -> None:
        awake = [one for one in self._steps if not one.is_frozen]
        life = min(awake, key=lambda one: (one.at_s, one.number))
        self.now_s = max(self.now_s, life.at_s)
        assert self.now_s < LIMIT_S, [(one.registration, one.said) for one in self.lives]
        try:
            life.at_s = self.now_s + next(self._steps[life])
        except StopIteration:
            self.die(life)

    def _live(self, life: Life) -> Generator[float]:
        """All that a life does; yields how long each takes."""
        answer: Any = None
        while True:
            try:
                op = life.program.send(answer)
            except StopIteration as stop:
                life.registration = stop.value
                break
            except RegistrationInUse as error:
                life.said = error
                return
            if isinstance(op, WaitUntil):
                yield op.within_s
                answer = None
            else:
                assert isinstance(op, AskStores)
                answer = yield from self._ask(life, op.asked)
        assert life.registration is not None
        while True:
            yield BEAT_S
            beats = {
                store: asks.Acknowledge(
                    stream=S,
                    regid=regid,
                    below=0,
                    session=SESSION,
                    life=life.number,
                    activity_ms=life.activity_ms,
                )
                for store, regid in life.registration.regids.items()
            }
            yield from self._ask(life, beats)

    def _ask(self, life: Life, asked: Any) -> Generator[float, None, dict[str, Any]]:
        answers: dict[str, Any] = {}
        for store in self.chance.sample(sorted(asked), len(asked)):
            yield self.chance.random() * DELAY_S
            if store not in self.down:
                answers[store] = self.stores[store].told(asked[store], life.number)
        return answers

    def until(self, *lives: Life) -> None:
        while any(one.registration is None and one.said is None for one in lives):
            self.step()


@pytest.mark.parametrize("down", ["", "a", "c"])
def test_of_two_that_enter_at_once_one_is_in_and_the_other_is_refused(down: str) -> None:
    for seed in range(100):
        world = World(seed, down)
        one, other = world.enter(11), world.enter(12)
        world.until(one, other)
        assert (one.registration is None) is not (other.registration is None)
        assert (one.said is None) is not (other.said is None)


def test_of_five_one_is_in() -> None:
    for seed in range(40):
        world = World(seed)
        lives = [world.enter(number) for number in range(11, 16)]
        world.until(*lives)
        assert sum(one.registration is not None for one in lives) == 1


def test_one_that_died_is_followed_soon_and_one_that_lives_is_not() -> None:
    world = World(1)
    first = world.enter(11)
    world.until(first)
    second = world.enter(12)
    world.until(second)
    assert second.registration is None
    assert "session 5" in str(second.said)
    world.die(first)
    died_s = world.now_s
    third = world.enter(13)
    world.until(third)
    assert third.registration is not None
    assert world.now_s < died_s + REST_S


@pytest.mark.parametrize("down", ["", "b"])
def test_one_that_is_frozen_is_followed_when_it_was_silent_for_long_enough(down: str) -> None:
    world = World(2, down)
    first = world.enter(11, activity_ms=5_000)
    world.until(first)
    frozen_s, first.is_frozen = world.now_s, True
    second = world.enter(12)
    world.until(second)
    assert second.registration is not None
    assert frozen_s + 5 - BEAT_S < world.now_s < frozen_s + 5 + 4 * REST_S


def test_one_store_of_three_that_says_in_use_refuses_nobody_and_a_quorum_does() -> None:
    world = World(3)
    first = world.enter(11)
    world.until(first)
    world.down = set("bc")
    second = world.enter(12)
    for _ in range(300):
        world.step()
    assert second.registration is None
    assert second.said is None, "it does not know"
    world.down = set("c")
    world.until(second)
    assert second.said is not None


def test_one_that_is_heard_by_a_minority_alone_does_not_keep_others_out() -> None:
    world = World(4)
    first = world.enter(11)
    world.until(first)
    for store in "bc":
        world.stores[store].step(acts.Gone(link=first.number))
    assert first.registration is not None
    heard = {"a": first.registration.regids["a"]}
    first.registration = Registration(position=first.registration.position, begin=0, regids=heard)
    second = world.enter(12)
    world.until(second)
    assert second.registration is not None
    assert set(second.registration.regids) == set("bc")
