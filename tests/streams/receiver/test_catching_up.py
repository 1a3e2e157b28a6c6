"""A life of a receiver finds its place, registers, and reads from stores what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq.streams.model import asks, frames, low, ops
from onceq.streams.model.frames import Frame, FrameKind, body_of, encode
from onceq.streams.model.quorum import listed
from onceq.streams.receiver.catching_up import Patience, follow
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.ops import Message, ReadStore, Show
from onceq.streams.receiver.placing import Position, Registration, Who, enter, place, register
from onceq.streams.store import records
from onceq.streams.store.catalogue import Step
from onceq.streams.store.ranging import ranged
from onceq.streams.store.records import key_of
from tests.streams.source.towns import ABC, S, Town, life

if TYPE_CHECKING:
    from collections.abc import Callable

WHO = Who(topic="bars", source=9, session=5, key=key_of(0, 5), known=ABC)


@pytest.fixture
def town() -> Town:
    """A stream of seven numbers at all stores, of which six are stable."""
    made = Town()
    made.begun()
    for number in range(7):
        made.send(number, "abc", epoch=1, stable=number)
    return made


class Following:
    """A life that follows: what it was shown, and which stores it read from."""

    def __init__(self, town: Town, core: Delivering, who: Who = WHO) -> None:
        self.town = town
        self.core = core
        self.meanwhile: Callable[[], None] = lambda: None
        self.read: list[str] = []
        self.waits = 0
        self.harms = ""
        self.shown: list[Any] = []
        self._program = follow(core, who, Patience())
        self._op: Any = next(self._program)

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(200):
            if done():
                return
            self._op = self._program.send(self._perform(self._op))
        raise AssertionError(f"not in 200 steps: {self.core.next}")

    def _perform(self, op: Any) -> Any:
        match op:
            case ReadStore(store=store, ask=ask):
                self.read.append(store)
                self.meanwhile()
                if store in self.town.down:
                    return None
                answer, data = ranged(self.town.stores[store], ask, frames.FRAME_BYTES_MAX)
                if store in self.harms:
                    data = [*data[:1], *(one[:-1] + b"?" for one in data[1:])]
                return answer, tuple(data)
            case Show(shown=shown):
                self.shown += shown
                return None
            case ops.WaitUntil():
                self.waits += 1
                return None
            case _:
                return self.town.perform(op, "")

    def texts(self) -> list[str]:
        return [one.body.decode() for one in self.shown if isinstance(one, Message)]


def registered(town: Town, who: Who = WHO, answer: int | None = None) -> Registration:
    position = town.run(place(who, 1.0))
    assert isinstance(position, Position)
    found = town.run(register(who, position, 1.0, lambda _: answer))
    assert isinstance(found, Registration)
    return found


def test_a_new_receiver_begins_with_the_first_number_or_behind_what_is_stable(town: Town) -> None:
    for from_newest, begin in ((False, 0), (True, 6)):
        who = Who(topic="bars", source=9, session=5, key="new", known=ABC, from_newest=from_newest)
        position = town.run(place(who, 1.0))
        assert (position.shown.low, position.is_known, position.stream) == (begin, False, S)


def test_um_recovery_6_4_1_begins_at_4(town: Town) -> None:
    """Seven messages; 0 was acknowledged; at most 2 are requested back."""
    first = registered(town)
    for store, regid in first.regids.items():
        town.answer(store, asks.Acknowledge(stream=S, regid=regid, below=1))
    who = Who(topic="bars", source=9, session=5, key=WHO.key, known=ABC, maximum=2)
    position = town.run(place(who, 1.0))
    assert position.shown == low.RecoveryInfo(high=6, low_rxreq_max=4, low=1)
    assert registered(town, who).begin == 4
    assert registered(town, who, answer=1).begin == 4, "the unchanged value does not override"
    assert registered(town, who, answer=7).begin == 7


def test_a_life_does_not_begin_with_what_was_trimmed_since_an_earlier_one_acknowledged_it(
    town: Town,
) -> None:
    """One store has heard how far it was, and the others have heard that of this store."""
    first = registered(town)
    ask = asks.Acknowledge(stream=S, regid=first.regids["a"], below=5)
    town.answer("a", ask)
    assert registered(town).begin == 0, "where most of them say"
    for store in "abc":
        trimmed = records.Trimmed(stream=S, below=3)
        town.stores[store].do(Step(records=(trimmed,), answer=asks.Forgot()))
    again = registered(town)
    assert (again.begin, again.position.acknowledged) == (3, 5)
    begin, known = again.begin, again.position.acknowledged
    core = Delivering(S, begin, (ABC,), is_stable_only=True, acknowledged=known)
    following = Following(town, core)
    following.until(lambda: following.waits > 0)
    assert following.texts() == ["1.3", "1.4", "1.5"]
    assert len(following.shown) == 3, "nothing is told as lost"


def test_a_life_that_begins_behind_what_is_stable_is_registered_with_that(town: Town) -> None:
    """What is not stable may be cut: its next life would leave out what comes instead."""
    found = registered(town, answer=7)
    assert (found.begin, found.below) == (7, 6)
    assert town.stores["a"].catalogue.of(S).positions == {WHO.key: 6}


def test_a_registration_has_a_stable_set_of_stores(town: Town) -> None:
    town.down = {"c"}
    assert set(registered(town).regids) == {"a", "b"}
    town.down = set()
    position = town.run(place(WHO, 1.0))
    assert position.is_known
    town.down = {"b", "c"}
    assert town.run(register(WHO, position, 1.0)) is None


def test_a_place_is_found_when_a_recover_set_answers_in_one_epoch(town: Town) -> None:
    town.down = {"b", "c"}
    assert town.run(place(WHO, 1.0)) is None
    town.down = {"c"}
    assert town.run(place(WHO, 1.0)).epoch == 1
    town.answer("a", asks.Fence(stream=S, epoch=4, life=8, own=ABC))
    assert town.run(place(WHO, 1.0)) is None, "it is between a promise and an admission"


def test_a_list_that_has_changed_is_found_from_an_old_one(town: Town) -> None:
    town.stores["d"] = Town("d").stores["d"]
    own = life(2, listed("a b d"))
    begun = town.begun(own)
    assert len(begun.bridge.lists) == 2
    assert len(town.run(place(WHO, 1.0)).lists) == 2


def test_a_receiver_reads_from_one_store_after_the_other_all_that_is_stable(town: Town) -> None:
    core = Delivering(S, 0, (ABC,), is_stable_only=True)
    following = Following(town, core)
    following.until(lambda: following.waits > 0)
    assert following.texts() == [f"1.{number}" for number in range(6)]
    assert core.epoch == 1
    assert set(following.read) == set("abc")


def test_a_live_receiver_reads_all_of_the_epoch_that_it_follows(town: Town) -> None:
    core = Delivering(S, 2, (ABC,), is_stable_only=False)
    following = Following(town, core)
    following.until(lambda: following.waits > 0)
    assert following.texts() == [f"1.{number}" for number in range(2, 7)]
    assert core.sure == 6


def test_one_store_serves_what_is_stable_while_two_are_down(town: Town) -> None:
    for down in ("ab", "ac", "bc"):
        town.down = set(down)
        core = Delivering(S, 0, (ABC,), is_stable_only=True)
        following = Following(town, core)
        following.until(lambda: following.waits > 0)  # noqa: B023 - it is called at once
        assert len(following.texts()) == 6
        assert core.told is None


def test_while_the_source_sends_what_comes_next_stores_are_asked_once_in_a_while(
    town: Town,
) -> None:
    core = Delivering(S, 0, (ABC,), is_stable_only=False)
    following = Following(town, core)
    following.until(lambda: core.next == 7 and following.waits > 0)
    following.read.clear()
    following.waits = 0

    def send() -> None:
        data = encode(
            Frame(
                kind=FrameKind.MESSAGES,
                stream=S,
                epoch=1,
                number=core.next,
                stable=0,
                count=1,
                body=body_of([b"live"]),
            )
        )
        assert len(core.live(data)) == 1

    following.meanwhile = send
    following.until(lambda: following.waits == 4)
    assert len(following.read) == 4, "each rest is followed by one ask"


def test_a_frame_that_was_harmed_on_its_way_comes_from_another_store(town: Town) -> None:
    core = Delivering(S, 0, (ABC,), is_stable_only=True)
    following = Following(town, core)
    following.harms = "b"
    following.until(lambda: following.waits > 0)
    assert following.texts() == [f"1.{number}" for number in range(6)]
    assert "b" in following.read


def test_a_receiver_waits_until_enough_stores_answer(town: Town) -> None:
    town.down = {"b", "c"}
    program = enter(WHO, 1.0, 0.5)
    answer: Any = None
    for _ in range(9):
        answer = town.perform(program.send(answer), "")
    town.down = set()
    found = town.run(program, answer=answer)
    assert (found.begin, set(found.regids)) == (0, set("abc"))


def test_a_receiver_goes_on_when_the_source_has_begun_an_epoch(town: Town) -> None:
    core = Delivering(S, 0, (ABC,), is_stable_only=False)
    following = Following(town, core)
    following.until(lambda: core.next == 7)
    town.begun(life(2))
    town.send(7, "abc", epoch=2, life=2)
    following.until(lambda: following.texts()[-1:] == ["2.7"])
    assert (core.epoch, core.next) == (2, 8)
