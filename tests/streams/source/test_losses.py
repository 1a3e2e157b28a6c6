"""A source goes on without what was lost: how its life recovers, and what it sends instead."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onceq.streams.errors import FlightFull
from onceq.streams.model import asks, events
from onceq.streams.model.choice import Stage
from onceq.streams.model.frames import COUNT_MAX, FrameKind
from onceq.streams.model.losses import Lost, acceptance
from onceq.streams.model.quorum import listed
from onceq.streams.source.epochs import Begun, Short, SourceLife
from tests.streams.source.senders import Source, begun
from tests.streams.source.test_recovering import past
from tests.streams.source.towns import S, Town, life


def accepts(text: str, **fields: Any) -> SourceLife:
    return replace(life(2), accepts=acceptance(text), born_s=100, **fields)


def test_what_more_stores_lost_than_may_be_is_gone_on_without_if_that_is_accepted(
    town: Town,
) -> None:
    town.wipe("b")
    town.wipe("c")
    short = town.recover(accepts("1-9@1 b c"))
    assert isinstance(short, Short), "it is of another loss"
    assert short.rest is not None
    assert short.rest.text() == "0-2@1 b c"
    begun = town.begun(accepts("0-9@1 b c"))
    assert begun.log.end == 0
    assert begun.epoch >= 100, "nobody may know the last epoch"
    assert begun.bridge.losses == (Lost(epoch=begun.epoch, first=0, count=9),)
    assert set(begun.noted) == {"a", "b", "c"}
    assert town.log("b") == town.log("a")
    again = town.begun(life(3))
    assert again.bridge.losses == begun.bridge.losses, "each later life goes on behind it"


def test_a_store_that_comes_back_with_what_was_accepted_as_lost_cuts_it(town: Town) -> None:
    """It knows that it was stable: had nobody accepted that loss, it would refuse for ever."""
    town.send(3, "bc", epoch=1)
    town.send(4, "bc", epoch=1, stable=4)
    for name in "de":
        town.stores[name] = Town(name).stores[name]
    town.down = {"b", "c"}
    assert isinstance(town.recover(accepts("0-9@1 b c")), Short), "a alone is no stable set"
    begun = town.begun(replace(accepts("0-9@1 b c"), life=3, own=listed("a d e")))
    for number in range(9):
        town.send(number, "ade", epoch=begun.epoch, life=3, stable=number)
    town.down = set()
    later = town.begun(life(4, listed("a b d")))
    assert (later.bridge.stage, later.log.end) == (Stage.JOINT, 9)
    assert town.log("b") == town.log("a")
    assert town.stores["b"].catalogue.of(S).stable == 0, "the next frame tells what is"


def test_a_list_without_the_store_that_is_left_begins_nothing_anew(town: Town) -> None:
    for name in "def":
        town.stores[name] = Town(name).stores[name]
    town.wipe("b")
    town.wipe("c")
    others = replace(accepts("2-9@1 b c"), own=listed("d e f"))
    assert town.recover(others) == Short(forgot=frozenset("def"))


def test_what_a_receiver_had_acknowledged_of_what_is_lost_counts_no_more(town: Town) -> None:
    """Its next life would begin behind messages that are sent under these numbers."""
    town.send(3, "bc", epoch=1, stable=3)
    its = town.stores["b"]
    its.do(its.catalogue.register(asks.Register(stream=S, epoch=1, topic="bars", session=7)))
    its.do(its.catalogue.acknowledge(asks.Acknowledge(stream=S, regid=2, below=3, session=7)))
    assert its.catalogue.of(S).positions == {"session 7": 3}
    for name in "de":
        town.stores[name] = Town(name).stores[name]
    town.down = {"b", "c"}
    begun = town.begun(replace(accepts("0-4@1 b c"), own=listed("a d e")))
    for number in range(4):
        town.send(number, "ade", epoch=begun.epoch, life=2, stable=number)
    town.down = set()
    town.begun(life(4, listed("a b d")))
    assert its.catalogue.of(S).positions == {"session 7": 0}


def test_a_life_that_has_sent_accepts_nothing(town: Town) -> None:
    first = town.begun(life(2))
    town.wipe("b")
    town.wipe("c")
    own = accepts("0-9@1 b c")
    short = Short(forgot=frozenset("bc"), is_known=True)
    assert town.recover(own, past(first)) == short, "it may have more"


def test_the_list_of_the_source_counts_at_once_if_stores_are_gone_for_ever(town: Town) -> None:
    for name in "de":
        town.stores[name] = Town(name).stores[name]
    town.down = {"b", "c"}
    begun = town.begun(replace(accepts("0-2@1 b c"), own=listed("a d e")))
    assert (begun.bridge.stage, begun.bridge.lists) == (Stage.SETTLED, (listed("a d e"),))
    assert set(begun.noted) == set("ade")
    assert town.log("d") == town.log("a")
    assert town.begun(life(3)).bridge.lists == (listed("a d e"),)


def test_a_stream_of_which_nothing_is_left_begins_anew_behind_what_was_given() -> None:
    town = Town()
    begun = town.begun(accepts("0-9@0 a b c"))
    assert begun.bridge.losses == (Lost(epoch=begun.epoch, first=0, count=9),)
    assert begun.bridge.stage is Stage.SETTLED


LOST = (Lost(epoch=2, first=3, count=6),)


def went_on(epoch: int = 2, end: int = 3, **given: Any) -> Begun:
    one = begun(epoch, end=end, **given)
    return replace(one, bridge=replace(one.bridge, losses=LOST))


def test_what_is_lost_is_sent_as_void_and_told_once() -> None:
    source = Source()
    source.begin(went_on())
    assert source.core.next == 9
    (frame,) = source.sent.pop("a")
    assert (frame.kind, frame.number, frame.end, frame.body) == (FrameKind.VOID, 3, 9, b"")
    assert rows_of(source.of(events.LossAccepted)) == [(3, 8)]
    assert source.send(b"9") == [9]
    source.have("abc", 9)
    assert source.of(events.Stable) == [], "nobody sent them"
    assert source.core.stable == 9
    source.have("abc", 10)
    assert rows_of(source.of(events.Stable)) == [(9, 9)]
    assert rows_of(source.of(events.Reclaimed)) == [(9, 9)]


def rows_of(told: list[Any]) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in told]


def test_a_later_life_sends_what_the_former_did_not_void() -> None:
    source = Source()
    source.begin(went_on(4, end=5))
    assert source.core.next == 9
    assert source.ranges("b") == [(5, 9)]
    assert rows_of(source.of(events.LossAccepted)) == [(3, 8)], "that one may not have told it"
    later = Source()
    later.begin(went_on(4, end=12))
    assert later.core.next == 12
    assert later.of(events.LossAccepted) == []


def test_what_is_lost_is_not_given_up_and_takes_no_room() -> None:
    lifetime = {"message_stability_lifetime_ms": 1_000}
    source = Source(flight=1, policy=lifetime)
    source.begin(went_on())
    assert source.core.retention.bytes == 0
    assert source.send(b"9") == [9]
    with pytest.raises(FlightFull):
        source.core.send(b"10")
    source.pass_s(0.1)
    source.pass_s(5.0)
    assert rows_of(source.of(events.NotStable)) == [(9, 9)]
    assert source.core.keeping.giving_up.asked == {9}


def test_many_numbers_that_are_lost_are_few_frames() -> None:
    source = Source()
    one = begun(2, end=3)
    lost = (Lost(epoch=2, first=3, count=199_997),)
    source.begin(replace(one, bridge=replace(one.bridge, losses=lost)))
    ranges = source.ranges("a")
    assert ranges[0] == (3, 3 + COUNT_MAX)
    assert ranges[-1][1] == 200_000
    assert len(ranges) == 4
    source.begin(went_on(3, end=3 + COUNT_MAX, firsts=((0, 0), (2, 3))))
    assert source.ranges("a") == ranges[1:], "the same frames in the next epoch"
