"""What a source tells of each message, how it behaves without room, and what it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from onceq.streams.errors import FlightFull
from onceq.streams.model import asks, events
from onceq.streams.model.choice import Stage
from onceq.streams.model.frames import FrameKind
from onceq.streams.model.quorum import Intragroup, listed
from onceq.streams.model.window import FlightBehavior
from onceq.streams.source import acts
from onceq.streams.source.epochs import WhyEnded
from onceq.streams.source.objects import Objects
from tests.streams.source.senders import ABC, S, Source, begun

EACH = events.Notification.EACH_STORE


def started(**given: Any) -> Source:
    source = Source(**given)
    source.begin(begun())
    source.told.clear()
    return source


def send(source: Source, *messages: tuple[bytes, object]) -> None:
    for body, given in messages:
        source.core.send(body, given)
    source.do(source.core.flush(source.now_s))


def rows(told: list[Any]) -> list[tuple[int, int, object]]:
    return [(one.first, one.last, one.given) for one in told]


# the sender's objects

ROW = events.Stable(stream=S, first=0, last=9)


def test_um_the_senders_object_comes_with_every_event_of_its_message() -> None:
    source = started()
    send(source, (b"0", "zero"), (b"1", None), (b"2", None), (b"3", "three"))
    source.have("abc", 4)
    source.confirm(51, 4)
    each = [(0, 0, "zero"), (1, 2, None), (3, 3, "three")]
    assert rows(source.of(events.Stable)) == each
    assert rows(source.of(events.Reclaimed)) == each
    assert [one[:2] for one in rows(source.of(events.Confirmed))] == [(0, 3)], "it was released"


def test_an_event_is_split_at_the_bounds_of_messages() -> None:
    objects = Objects()
    objects.note(2, 2, "two")
    objects.note(4, 6, "four to six")
    objects.note(8, 8, None)
    assert rows(list(objects.split(ROW))) == [
        (0, 1, None),
        (2, 2, "two"),
        (3, 3, None),
        (4, 6, "four to six"),
        (7, 9, None),
    ]
    within = events.Stable(stream=S, first=5, last=5)
    assert rows(list(objects.split(within))) == [(5, 5, "four to six")]
    objects.forget(5)
    assert rows(list(objects.split(ROW)))[:2] == [(0, 3, None), (4, 6, "four to six")]
    objects.forget(7)
    assert rows(list(objects.split(ROW))) == [(0, 9, None)]


def test_no_event_of_a_message_is_made_if_nobody_is_told() -> None:
    source = started()
    source.core.keeping.is_heard = False
    send(source, (b"0", "zero"))
    source.have("abc", 1)
    source.confirm(51, 1)
    assert source.told == []
    assert source.core.retention.begin == 1


def test_um_each_store_that_has_a_message_is_told_if_that_is_wanted() -> None:
    source = started(policy={"message_stability_notification": EACH})
    send(source, (b"0", "zero"), (b"1", None))
    source.have("a", 2)
    source.have("b", 1)
    told = [(one.store, one.first, one.last, one.given) for one in source.of(events.Stable)]
    assert told == [
        ("a", 0, 0, "zero"),
        ("a", 1, 1, None),
        ("b", 0, 0, "zero"),
        (None, 0, 0, "zero"),
    ]


# several numbers

SMALL = {"fragment_size": 2}


def test_um_a_message_above_the_fragment_size_takes_several_numbers_each_reclaimed() -> None:
    source = started(policy=SMALL)
    send(source, (b"a", None), (b"bcdef", "large"))
    assert source.core.next == 4
    frames = source.sent["a"]
    assert [(one.number, one.count, one.flags) for one in frames] == [
        (0, 1, 0),
        (1, 1, 2),
        (2, 1, 3),
        (3, 1, 1),
    ]
    source.have("abc", 4)
    assert rows(source.of(events.Stable)) == [(0, 0, None), (1, 3, "large")]
    assert rows(source.of(events.Reclaimed)) == [
        (0, 0, None),
        (1, 1, "large"),
        (2, 2, "large"),
        (3, 3, "large"),
    ]


def test_a_large_message_needs_room_for_all_its_numbers_or_flies_alone() -> None:
    source = started(flight=2, policy=SMALL)
    source.send(b"a")
    with pytest.raises(FlightFull):
        source.core.send(b"bcdef")
    source.have("abc", 1)
    assert source.send(b"bcdef") == [3]
    with pytest.raises(FlightFull):
        source.core.send(b"g")


def test_a_message_is_given_up_with_all_its_numbers() -> None:
    source = started(policy=SMALL)
    source.send(b"a", b"bcdef", b"g")
    source.have("ab", 2)
    source.step(acts.GaveUp(number=3))
    assert source.ends == [WhyEnded.GIVEN_UP]
    source.sent.clear()
    source.begin(begun(2, end=2, firsts=((1, 0),)))
    kinds = [(one.number, one.kind, one.flags) for one in source.sent["a"]]
    assert kinds == [
        (2, FrameKind.VOID, 0),
        (3, FrameKind.VOID, 0),
        (4, FrameKind.MESSAGES, 0),
    ], "the beginning was stable"
    gone = [one for one in source.of(events.Reclaimed) if one.unstable]
    assert [(one.first, one.last) for one in gone] == [(2, 2), (3, 3)]


# without room in flight


def test_um_flight_size_notify_goes_on_and_tells_when_it_is_over_and_when_not() -> None:
    source = started(flight=2, flights={"behavior": FlightBehavior.NOTIFY})
    assert source.send(b"0", b"1", b"2", b"3") == [0, 1, 2, 3]
    (over,) = source.of(events.FlightSize)
    assert (over.is_over, over.messages, over.bytes) == (True, 3, 3)
    source.have("ab", 2)
    assert source.of(events.FlightSize) == []
    source.have("ab", 3)
    source.send(b"4")
    (under,) = source.of(events.FlightSize)
    assert not under.is_over


def test_um_a_flight_of_one_is_one_unstable_message_at_a_time() -> None:
    source = started(flight=1)
    for number in range(3):
        assert source.send(b"x") == [number]
        with pytest.raises(FlightFull):
            source.core.send(b"x")
        source.have("ab", number + 1)


def test_um_the_bytes_in_flight_are_limited_too() -> None:
    source = started(flight=0, flights={"bytes_max": 100})
    source.send(b"x" * 60, b"x" * 40)
    with pytest.raises(FlightFull):
        source.core.send(b"x")
    source.have("ab", 1)
    with pytest.raises(FlightFull):
        source.core.send(b"x" * 61)
    source.have("ab", 2)
    assert source.send(b"x" * 500) == [2], "a larger one flies alone"


# what is given up

SECOND = {"message_stability_lifetime_ms": 1_000}


def test_um_a_message_that_is_not_stable_in_its_lifetime_is_given_up() -> None:
    source = started(policy=SECOND)
    send(source, (b"0", "zero"))
    source.pass_s(0.0)
    source.have("a", 1)
    source.pass_s(0.9)
    assert source.ends == []
    source.pass_s(0.2)
    assert rows(source.of(events.NotStable)) == [(0, 0, "zero")]
    assert source.ends == [WhyEnded.GIVEN_UP]
    source.begin(begun(2))
    (gone,) = source.of(events.Reclaimed)
    assert (gone.first, gone.forced, gone.unstable, gone.given) == (0, True, True, "zero")
    source.pass_s(5.0)
    assert source.of(events.NotStable) == [], "once"


def test_a_message_that_is_stable_in_time_is_not_given_up() -> None:
    source = started(policy=SECOND)
    source.pass_s(0.0)
    source.send(b"0")
    source.have("ab", 1)
    source.pass_s(9.0)
    assert (source.of(events.NotStable), source.ends) == ([], [])


def test_lifetimes_stand_still_while_a_store_has_no_room() -> None:
    source = started(policy=SECOND)
    source.pass_s(0.0)
    source.send(b"0")
    for _ in range(4):
        source.step(acts.Came(store="a", answer=asks.Full(end=0)))
        source.pass_s(0.9)
    assert source.of(events.NotStable) == []


def test_lifetimes_go_on_while_no_epoch_does() -> None:
    source = started(policy=SECOND)
    source.pass_s(0.0)
    source.send(b"0")
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    source.pass_s(1.5)
    assert rows(source.of(events.NotStable)) == [(0, 0, None)]
    source.sent.clear()
    source.begin(begun(2))
    assert [one.kind for one in source.sent["a"]] == [FrameKind.VOID]


def test_um_beyond_the_limit_the_oldest_are_given_up_though_they_are_not_stable() -> None:
    source = started(policy={"retransmit_retention_size_limit": 130})
    for _ in range(3):
        source.send(b"x" * 60)
    source.pass_s(0.0)
    source.pass_s(0.0)
    assert source.ends == [WhyEnded.GIVEN_UP]
    source.begin(begun(2))
    gone = [(one.first, one.last) for one in source.of(events.Reclaimed) if one.unstable]
    assert gone == [(0, 0)]
    source.pass_s(0.0)
    assert source.ends == [WhyEnded.GIVEN_UP], "what is void takes no room"


# registration


def registered(source: Source) -> list[tuple[str, bool, int]]:
    return [(one.store, one.old, one.last) for one in source.of(events.StoreRegistered)]


def test_um_each_store_that_registers_a_source_is_told_with_its_last_number() -> None:
    source = Source()
    source.begin(begun(3, end=5, noted="ab", admitted=2, fresh="bc"))
    assert registered(source) == [("a", True, 4), ("b", False, 4)]
    source.step(acts.Opened(store="c"))
    source.answer(asks.Holding(epoch=3, end=5))
    assert registered(source) == [("c", False, 4)]
    source.step(acts.Gone(store="c", why="killed"))
    source.step(acts.Opened(store="c"))
    source.answer(asks.Holding(epoch=3, end=5))
    assert registered(source) == [("c", True, 4)], "again, and known by now"


def test_a_store_that_keeps_no_messages_has_no_last_number() -> None:
    source = Source()
    source.begin(begun(noted="ab", end=3))
    source.told.clear()
    source.step(acts.Opened(store="c"))
    source.answer(asks.Noted(epoch=1))
    assert registered(source) == [("c", True, -1)]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (asks.Full(end=0), "no room, and waits for no receiver"),
        (asks.Full(end=0, blocking=7), "the RegID 7 there"),
        (
            asks.Full(end=0, blocking=7),
            "onceq stream deregister bars --source 0x9 --stores c --receiver 'regid 7'",
        ),
        (asks.Lacking(begin=0, end=1), "lacks"),
        (asks.Refused(promised=9), "another life"),
    ],
)
def test_a_store_that_refuses_a_source_is_told_with_why(answer: asks.Answer, says: str) -> None:
    source = Source()
    source.begin(begun(noted="ab"))
    source.step(acts.Opened(store="c"))
    source.answer(answer)
    (error,) = source.of(events.RegistrationError)
    assert error.store == "c"
    assert says in error.why


def test_options_that_stores_know_otherwise_are_told_as_a_life_begins() -> None:
    own = listed("a b d", intragroup=Intragroup.ALL)
    source = Source(own)
    source.begin(begun())
    told = [(one.option, one.before, one.now) for one in source.of(events.OptionsChanged)]
    assert told == [
        ("stores", "a b c", "a b d"),
        ("retention_intragroup_stability_behavior", "quorum", "all"),
    ]
    source.begin(begun(2))
    assert source.of(events.OptionsChanged) == [], "a life is told once"
    same = Source(ABC)
    same.begin(begun())
    assert same.of(events.OptionsChanged) == []


def test_a_change_of_lists_is_told_stage_by_stage() -> None:
    lists = (ABC, listed("b c d"))
    source = Source(lists[1])
    source.begin(begun(2, noted="abc", lists=lists, stage=Stage.JOINT))
    source.step(acts.Opened(store="d"))
    while source.asked:
        source.answer(asks.Holding(epoch=2, end=0))
    told = [(one.stage, one.stores) for one in source.of(events.ListChanged)]
    both = ("a b c", "b c d")
    assert told == [("joint", both), ("settling", both), ("settled", both[1:])]
