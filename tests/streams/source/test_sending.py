"""A source that sends: numbers, blocks, flight, what is stable, and why an epoch ends."""

from __future__ import annotations

import pytest

from onceq.errors import TooLarge
from onceq.streams.errors import FlightFull, NotRegistered
from onceq.streams.model import asks, events
from onceq.streams.model.choice import Stage
from onceq.streams.model.fragments import FRAGMENT_BYTES_MAX, MESSAGE_BYTES_MAX
from onceq.streams.model.quorum import Intergroup, Intragroup, StoreList, listed
from onceq.streams.source import acts
from onceq.streams.source.epochs import WhyEnded
from tests.streams.source.senders import ABC, S, Source, begun


@pytest.fixture
def source() -> Source:
    made = Source()
    made.begin(begun())
    return made


def stable(source: Source) -> list[tuple[int, int]]:
    found = [(one.first, one.last) for one in source.told if isinstance(one, events.Stable)]
    source.told.clear()
    return found


def counted(source: Source) -> tuple[StoreList, ...]:
    return source.core.needed


def test_before_a_recovery_is_complete_nothing_is_sent() -> None:
    source = Source()
    with pytest.raises(NotRegistered, match="no stable set"):
        source.core.send(b"early")
    assert source.core.information() is None
    source.begin(begun(end=3, seen={"a": 3, "b": 3, "c": 1}))
    (complete,) = source.of(events.RegistrationComplete)
    assert complete == events.RegistrationComplete(stream=S, next_number=3, reported=2, epoch=1)
    assert source.send(b"next") == [3]


def test_a_message_goes_to_all_stores_and_to_receivers_at_once(source: Source) -> None:
    assert source.send(b"one", b"two") == [0, 1]
    for store in "abc":
        (frame,) = source.sent[store]
        assert (frame.number, frame.count, frame.epoch, frame.stream) == (0, 2, 1, S)
        assert [bytes(one) for one in frame.messages()] == [b"one", b"two"]
    information, published = source.published
    assert information == source.core.information()
    assert published == source.sent["a"][0], "the same bytes"


def test_a_message_is_stable_when_a_quorum_has_it(source: Source) -> None:
    source.send(b"one")
    source.have("a", 1)
    assert stable(source) == []
    source.have("b", 1)
    assert stable(source) == [(0, 0)]
    source.have("c", 1)
    assert stable(source) == [], "it is told once"


def test_what_is_stable_is_so_in_one_row(source: Source) -> None:
    source.send(b"0")
    source.send(b"1")
    source.send(b"2")
    source.have("a", 3)
    source.have("b", 1)
    source.have("c", 2)
    assert stable(source) == [(0, 0), (1, 1)]
    assert source.core.stable == 2


@pytest.mark.parametrize(
    ("intragroup", "intergroup", "enough"),
    [
        (Intragroup.QUORUM, Intergroup.ANY, "ab"),
        (Intragroup.QUORUM, Intergroup.ALL, "abde"),
        (Intragroup.QUORUM, Intergroup.ALL_ACTIVE, "abde"),
        (Intragroup.ALL, Intergroup.ANY, "abc"),
    ],
)
def test_the_rules_of_the_list_say_what_is_stable(
    intragroup: Intragroup, intergroup: Intergroup, enough: str
) -> None:
    lists = (listed("a b c; d e", intragroup=intragroup, intergroup=intergroup),)
    source = Source(lists[0])
    source.begin(begun(noted="abcde", lists=lists))
    source.send(b"one")
    for store in enough:
        assert source.core.stable == 0
        source.have(store, 1)
    assert source.core.stable == 1


def test_a_group_that_is_gone_is_not_active() -> None:
    lists = (listed("a b c; d e", intergroup=Intergroup.ALL_ACTIVE),)
    source = Source(lists[0])
    source.begin(begun(noted="abcde", lists=lists))
    source.send(b"one")
    source.have("ab", 1)
    assert source.core.stable == 0
    source.step(acts.Gone(store="d", why="killed"))
    assert source.core.stable == 1


def test_while_a_list_changes_both_say_what_is_stable() -> None:
    lists = (ABC, listed("b c d"))
    source = Source(lists[1])
    source.begin(begun(2, noted="abd", lists=lists, stage=Stage.JOINT))
    source.send(b"one")
    source.have("ab", 1)
    assert source.core.stable == 0, "of the new list b alone has it"
    source.have("d", 1)
    assert source.core.stable == 1


def test_a_change_of_lists_settles_in_two_stages() -> None:
    lists = (ABC, listed("b c d"))
    source = Source(lists[1])
    source.begin(begun(2, noted="abc", lists=lists, stage=Stage.JOINT))
    assert counted(source) == lists
    source.step(acts.Opened(store="d"))
    assert source.answer(asks.Holding(epoch=2, end=0)).bridge.stage is Stage.JOINT
    stages = {one.store: one.ask.bridge.stage for one in source.asked}
    assert stages == dict.fromkeys("abcd", Stage.SETTLING), "all of the new list hold it"
    for _ in range(3):
        assert counted(source) == lists
        source.answer(asks.Holding(epoch=2, end=0))
    assert counted(source) == (lists[1],), "a stable set of both has noted that"
    asked = [one for one in source.asked if one.ask.bridge.stage is Stage.SETTLED]
    assert {one.store for one in asked} <= set("bcd")
    told = [(one.stage, one.lists) for one in source.published]
    assert told == [
        (Stage.JOINT, lists),
        (Stage.SETTLING, lists),
        (Stage.SETTLED, lists[1:]),
    ], "receivers are told of each stage"
    assert source.core.wanted is None


def test_a_change_of_lists_begins_when_a_stable_set_knows_that_the_last_one_is_settled() -> None:
    lists = (ABC, listed("b c d"))
    source = Source(listed("c d e"))
    source.begin(begun(3, noted="bcd", lists=lists, stage=Stage.SETTLING))
    assert counted(source) == lists[1:]
    source.answer(asks.Holding(epoch=3, end=0))
    assert source.ends == []
    source.answer(asks.Holding(epoch=3, end=0))
    assert source.ends == [WhyEnded.LIST_CHANGES]


def test_um_flight_size_blocks_until_messages_are_stable() -> None:
    source = Source(flight=2)
    source.begin(begun())
    source.send(b"0", b"1")
    with pytest.raises(FlightFull, match="not yet stable"):
        source.core.send(b"2")
    source.have("ab", 2)
    assert source.send(b"2") == [2]


def test_um_a_send_without_a_quorum_fails_and_succeeds_when_it_is_tried_again(
    source: Source,
) -> None:
    """The retry loop: a source that is not registered with a quorum raises, nothing was sent."""
    source.step(acts.Gone(store="a", why="killed"))
    assert source.send(b"0") == [0], "two of three are enough"
    source.step(acts.Gone(store="b", why="killed"))
    for _ in range(3):
        with pytest.raises(NotRegistered):
            source.core.send(b"again")
    assert source.core.next == 1
    source.step(acts.Opened(store="b"))
    source.answer(asks.Holding(epoch=1, end=0))
    assert source.send(b"again") == [1]
    gone = [one.store for one in source.told if isinstance(one, events.StoreUnresponsive)]
    assert gone == ["a", "b"], "one event for each"


def test_a_store_that_is_back_says_who_it_heeds_before_it_is_sent_what_it_lacks(
    source: Source,
) -> None:
    source.send(b"0")
    source.step(acts.Gone(store="c", why="killed"))
    source.send(b"1")
    assert source.ranges("c") == [(0, 1)]
    source.step(acts.Opened(store="c"))
    assert source.ranges("c") == []
    source.answer(asks.Holding(epoch=1, end=1))
    assert source.ranges("c") == [(1, 2)]


def test_a_store_that_does_not_answer_is_sent_it_again(source: Source) -> None:
    source.send(b"0")
    source.ranges("c")
    source.have("ab", 1)
    source.pass_s(2.0)
    gone = [one for one in source.told if isinstance(one, events.StoreUnresponsive)]
    assert [one.store for one in gone] == ["c"]
    source.pass_s(2.0)
    assert source.ranges("c") == [(0, 1)]
    source.have("c", 1)
    assert "c" in source.core.feeding.responsive


def gone(source: Source) -> list[events.StoreUnresponsive]:
    return [one for one in source.told if isinstance(one, events.StoreUnresponsive)]


def test_a_store_that_says_again_what_it_had_is_told_once(source: Source) -> None:
    """It stood still: what it answers now is old, and each answer was a reason to tell it anew."""
    source.send(b"0")
    source.have("abc", 1)
    source.send(b"1")
    source.have("ab", 2)
    source.pass_s(2.0)
    for _ in range(20):
        source.have("c", 1)
        source.pass_s(0.1)
    assert [one.store for one in gone(source)] == ["c"]
    assert "c" not in source.core.feeding.responsive
    source.have("c", 2)
    assert "c" in source.core.feeding.responsive


def test_a_store_without_room_is_told_when_that_lasts_and_counts_as_one_that_answers(
    source: Source,
) -> None:
    for round_ in range(2):
        source.send(b"one")
        source.have("ab", round_ + 1)
        for _ in range(10):
            source.step(acts.Came(store="c", answer=asks.Full(end=round_, blocking=7 * round_)))
            assert "c" in source.core.feeding.responsive
            source.pass_s(0.3)
        told = gone(source)
        assert [one.store for one in told] == ["c"] * (round_ + 1), "once, until it takes more"
        words = "onceq stream deregister bars" if round_ else "free space on its disk"
        assert words in told[-1].why
        source.have("c", round_ + 1)


def test_a_store_without_room_for_a_moment_is_not_told(source: Source) -> None:
    source.send(b"0")
    source.step(acts.Came(store="c", answer=asks.Full(end=0)))
    source.pass_s(0.6)
    source.have("abc", 1)
    source.pass_s(5.0)
    assert gone(source) == []


def test_a_store_that_was_not_waited_for_is_told_only_when_it_stays_away(source: Source) -> None:
    source.step(acts.Unlinked(store="c"))
    assert gone(source) == []
    source.step(acts.Opened(store="c"))
    source.pass_s(0.5)
    assert gone(source) == [], "it was just asked to take part"
    source.pass_s(5.0)
    (one,) = gone(source)
    assert (one.store, "stands still" in one.why) == ("c", True)


def test_a_full_store_is_sent_nothing_for_a_while(source: Source) -> None:
    source.send(b"0")
    source.step(acts.Came(store="c", answer=asks.Full(end=0)))
    source.ranges("c")
    source.send(b"1")
    assert source.ranges("c") == []
    source.pass_s(1.0)
    source.send(b"2")
    assert source.ranges("c") == [(0, 1), (1, 2), (2, 3)]


def test_what_is_stable_is_told_where_no_frame_tells_it(source: Source) -> None:
    source.send(b"0")
    source.have("ab", 1)
    source.sent.clear()
    source.published.clear()
    source.pass_s(0.005)
    assert source.ranges("c") == [], "it does not have it yet"
    for frame in (*source.sent["a"], *source.sent["b"], *source.published):
        assert (frame.number, frame.count, frame.stable) == (1, 0, 1)
    source.sent.clear()
    source.pass_s(0.005)
    assert source.sent == {}, "once"
    source.have("c", 1)
    source.pass_s(0.005)
    assert source.ranges("c") == [(1, 1)]


def test_a_frame_tells_what_is_stable(source: Source) -> None:
    source.send(b"0")
    source.have("abc", 1)
    source.sent.clear()
    source.send(b"1")
    assert source.sent["a"][0].stable == 1
    source.sent.clear()
    source.pass_s(0.005)
    assert source.sent == {}


def test_what_all_that_are_there_have_is_released(source: Source) -> None:
    source.send(b"0")
    source.send(b"1")
    source.have("ab", 2)
    assert source.core.retention.begin == 0
    source.have("c", 1)
    assert source.core.retention.begin == 1
    source.step(acts.Gone(store="c", why="killed"))
    assert source.core.retention.begin == 2
    assert source.core.retention.bytes == 0


def test_a_store_that_keeps_no_messages_counts_for_no_stability() -> None:
    source = Source()
    source.begin(begun(noted="ab"))
    source.step(acts.Opened(store="c"))
    source.answer(asks.Noted(epoch=1))
    source.send(b"0")
    assert source.ranges("c") == [(0, 1)]
    source.have("a", 1)
    source.step(acts.Came(store="c", answer=asks.Noted(epoch=1)))
    assert source.core.stable == 0
    source.have("b", 1)
    assert source.core.stable == 1


def test_messages_leave_in_blocks_of_64_kib(source: Source) -> None:
    for _ in range(3):
        source.core.send(b"x" * 40_000)
    assert source.sent == {}
    source.do(source.core.flush(0.0))
    assert source.ranges("a") == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(TooLarge, match="as one"):
        source.core.send(b"x" * (MESSAGE_BYTES_MAX + 1))
    assert source.send(b"x" * FRAGMENT_BYTES_MAX) == [3]
    assert source.ranges("a") == [(3, 4)]


def test_who_lacks_something_is_known(source: Source) -> None:
    source.send(b"0")
    source.have("ab", 1)
    feeding = source.core.feeding
    assert set(feeding.lacking(1)) == {"c"}
    assert feeding.answering == {"a", "b", "c"}
    source.step(acts.Gone(store="c", why="killed"))
    assert set(feeding.lacking(1)) == set(feeding.lacking(0)) == {"c"}
    assert feeding.answering == {"a", "b"}
