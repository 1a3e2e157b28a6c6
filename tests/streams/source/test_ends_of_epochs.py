"""Why an epoch of a source ends, what the next one sends again, and who is asked in it."""

from __future__ import annotations

from typing import Any

import pytest

from onceq.streams.errors import SourceSucceeded
from onceq.streams.model import asks, events
from onceq.streams.model.choice import Stage
from onceq.streams.model.frames import FrameKind
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.source import acts
from onceq.streams.source.epochs import WhyEnded
from tests.streams.source.senders import ABC, TIMING, S, Source, begun


@pytest.fixture
def source() -> Source:
    made = Source()
    made.begin(begun())
    return made


def counted(source: Source) -> tuple[StoreList, ...]:
    return source.core.needed


def wanted(source: Source) -> StoreList | None:
    return source.core.wanted


def test_a_store_that_lacks_what_was_released_is_filled_by_a_new_epoch(source: Source) -> None:
    source.step(acts.Gone(store="c", why="killed"))
    source.send(b"0")
    source.have("ab", 1)
    source.step(acts.Opened(store="c"))
    assert source.ends == []
    source.answer(asks.Holding(epoch=1, end=0))
    assert source.ends == [WhyEnded.BEHIND]


def test_with_much_retained_a_slow_store_is_not_waited_for() -> None:
    source = Source(policy={"retransmit_retention_size_limit": 100})
    source.begin(begun())
    source.send(b"x" * 60)
    source.have("ab", 1)
    assert source.core.retention.begin == 0
    source.send(b"x" * 60)
    source.have("ab", 2)
    assert source.core.retention.begin == 1
    assert source.ends == [], "what it lacks is on its way to it"
    source.step(acts.Gone(store="c", why="killed"))
    source.step(acts.Opened(store="c"))
    source.answer(asks.Holding(epoch=1, end=0))
    assert source.ends == [WhyEnded.BEHIND]


def test_a_store_that_has_no_room_does_not_cost_an_epoch_each_time_it_falls_behind() -> None:
    source = Source(policy={"retransmit_retention_size_limit": 100})
    source.begin(begun())
    source.send(b"x" * 60)
    source.step(acts.Came(store="c", answer=asks.Full(end=0)))
    source.have("ab", 1)
    source.send(b"x" * 60)
    source.have("ab", 2)
    assert source.core.retention.begin == 1
    source.pass_s(TIMING.room_s / 2)
    assert source.ends == []
    source.pass_s(TIMING.room_s / 2)
    assert source.ends == [WhyEnded.BEHIND], "it may have room now, and is filled by an epoch"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (acts.Came(store="c", answer=asks.Forgot()), WhyEnded.FORGOT),
        (acts.Came(store="c", answer=asks.Refused(promised=4)), WhyEnded.OVERTAKEN),
        (acts.Came(store="c", answer=asks.Conflict(number=0)), WhyEnded.CONFLICT),
        (acts.Wanted(own=listed("a b d")), WhyEnded.LIST_CHANGES),
        (acts.GaveUp(number=0), WhyEnded.GIVEN_UP),
    ],
)
def test_an_epoch_ends(source: Source, given: acts.Given, why: WhyEnded) -> None:
    source.send(b"0")
    source.step(given)
    assert source.ends == [why]
    source.sent.clear()
    source.have("ab", 1)
    source.pass_s(9.0)
    assert (source.core.stable, source.sent, source.ends) == (0, {}, [why]), "it is over"


def test_a_store_that_forgot_what_it_promised_is_found_when_it_is_asked(source: Source) -> None:
    source.step(acts.Gone(store="c", why="wiped"))
    source.step(acts.Opened(store="c"))
    source.answer(asks.Forgot())
    assert source.ends == [WhyEnded.FORGOT]


def test_a_store_that_has_no_room_for_a_promise_does_not_end_one_epoch_after_the_other() -> None:
    """It forgot nothing: it was never asked to keep the stream, as far as it knows."""
    source = Source()
    source.begin(begun(2, noted="ab", unable="c"))
    for seconds in (0.0, TIMING.room_s / 2, TIMING.room_s / 3):
        source.pass_s(seconds)
        source.step(acts.Gone(store="c", why="killed"))
        source.step(acts.Opened(store="c"))
        assert source.asked == []
    source.pass_s(TIMING.room_s)
    source.answer(asks.Forgot())
    assert source.ends == [WhyEnded.FORGOT], "there may be room now: the next epoch asks it"
    source.begin(begun(3, noted="ab"))
    source.step(acts.Opened(store="c"))
    assert len(source.asked) == 1


def test_a_source_is_fenced_when_those_that_promised_more_leave_no_stable_set(
    source: Source,
) -> None:
    source.begin(begun(2, refused="a"))
    assert source.ends == [WhyEnded.OVERTAKEN], "one alone may be a life that did not last"
    source.begin(begun(3, refused="ab"))
    assert source.ends[1:] == [WhyEnded.SUCCEEDED]
    assert events.SourceFenced(stream=S, epoch=3) in source.told
    with pytest.raises(SourceSucceeded):
        source.core.send(b"never")


def test_a_link_that_a_store_does_not_know_is_no_fence(source: Source) -> None:
    """A store heeds a life on the link on which it was told of it."""
    source.send(b"0")
    source.step(acts.Came(store="c", answer=asks.Refused(promised=1)))
    assert source.ends == []
    source.answer(asks.Holding(epoch=1, end=0))
    assert source.ranges("c") == [(0, 1), (0, 1)]


def test_what_the_chosen_log_lacks_is_sent_again_in_the_new_epoch(source: Source) -> None:
    for text in (b"0", b"1", b"2"):
        source.send(text)
    source.have("ab", 1)
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    source.sent.clear()
    source.published.clear()
    source.begin(begun(4, end=2, noted="ab", firsts=((1, 0),)))
    assert source.core.stable == 2
    assert {store: source.ranges(store) for store in "abc"} == {
        "a": [(2, 3)],
        "b": [(2, 3)],
        "c": [],
    }
    information, again = source.published
    assert information.firsts == ((1, 0), (4, 2))
    assert (again.epoch, again.number) == (4, 2)


def test_messages_taken_between_two_epochs_are_sent_in_the_next(source: Source) -> None:
    source.step(acts.GaveUp(number=0))
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    assert source.send(b"0") == [0]
    assert source.sent == {}
    source.begin(begun(2))
    assert source.ranges("a") == [(0, 1)]


def test_a_number_that_is_given_up_is_void_unless_the_chosen_log_has_it() -> None:
    for end, kinds in (
        (0, [FrameKind.MESSAGES, FrameKind.VOID, FrameKind.MESSAGES]),
        (3, []),
    ):
        source = Source()
        source.begin(begun())
        source.send(b"0", b"1", b"2")
        source.step(acts.GaveUp(number=1))
        assert source.ends == [WhyEnded.GIVEN_UP]
        source.sent.clear()
        source.begin(begun(2, end=end))
        frames = source.sent.get("a", [])
        assert [one.kind for one in frames] == kinds
        assert [(one.number, one.end) for one in frames] == [(n, n + 1) for n in range(end, 3)]


def told_of(source: Source, kind: type[Any]) -> list[Any]:
    return [one for one in source.told if isinstance(one, kind)]


def test_a_number_that_is_given_up_is_told_and_never_as_stable(source: Source) -> None:
    source.send(b"0", b"1", b"2")
    source.step(acts.GaveUp(number=1))
    assert told_of(source, events.Reclaimed) == [], "the chosen log may have it"
    source.begin(begun(2))
    (gone,) = told_of(source, events.Reclaimed)
    assert gone == events.Reclaimed(stream=S, first=1, last=1, forced=True, unstable=True)
    source.told.clear()
    source.have("ab", 3)
    stable = [(one.first, one.last) for one in told_of(source, events.Stable)]
    assert (stable, source.core.stable) == ([(0, 0), (2, 2)], 3)
    source.have("c", 3)
    released = [(one.first, one.last) for one in told_of(source, events.Reclaimed)]
    assert released == [(0, 0), (2, 2)], "it was told of 1"


def test_a_number_that_the_chosen_log_has_is_stable_and_was_not_given_up(source: Source) -> None:
    source.send(b"0")
    source.step(acts.GaveUp(number=0))
    source.begin(begun(2, end=1))
    assert told_of(source, events.Stable) == [events.Stable(stream=S, first=0, last=0)]
    assert not any(one.unstable for one in told_of(source, events.Reclaimed))


def test_what_is_released_is_told_and_whether_a_limit_forced_it() -> None:
    source = Source(policy={"retransmit_retention_size_limit": 100})
    source.begin(begun())
    source.send(b"x" * 60)
    source.have("abc", 1)
    source.send(b"x" * 60)
    source.have("ab", 2)
    source.send(b"x" * 60)
    source.have("ab", 3)
    assert told_of(source, events.Reclaimed) == [
        events.Reclaimed(stream=S, first=0, last=0),
        events.Reclaimed(stream=S, first=1, last=1, forced=True),
    ]


def test_a_store_that_may_have_forgotten_is_admitted_when_a_recover_set_of_others_is() -> None:
    source = Source()
    source.begin(begun(3, end=2, noted="a", admitted=2, fillings=(("c", 3),)))
    for store in "bc":
        source.step(acts.Opened(store=store))
    assert [one.store for one in source.asked] == ["b"]
    source.answer(asks.Holding(epoch=3, end=2))
    assert [one.store for one in source.asked] == ["c"]
    assert source.asked[0].ask.donors == ("a", "b")


def test_a_store_that_waits_is_admitted_though_the_list_of_those_it_waits_for_is_left() -> None:
    lists = (ABC, listed("a b d"))
    source = Source(lists[1])
    source.begin(
        begun(3, 2, "bcd", admitted=2, lists=lists, stage=Stage.SETTLING, fillings=(("a", 3),))
    )
    assert counted(source) == lists[1:]
    source.step(acts.Opened(store="a"))
    assert "a" in [one.store for one in source.asked]


def test_a_change_of_lists_is_wanted_until_the_new_one_alone_counts() -> None:
    """An epoch may end while it goes on; the next one begins the change again."""
    lists = (ABC, listed("b c d"))
    source = Source(lists[1])
    source.begin(begun(2, noted="bcd", lists=lists, stage=Stage.JOINT))
    assert wanted(source) == lists[1]
    assert source.ends == []
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    assert source.ends == [WhyEnded.FORGOT]
    assert wanted(source) == lists[1]
    source.begin(begun(3, noted="bcd", lists=lists, stage=Stage.SETTLING))
    assert wanted(source) is None
    assert counted(source) == lists[1:]


def test_an_ask_without_an_answer_is_asked_again(source: Source) -> None:
    source.step(acts.Gone(store="c", why="killed"))
    source.step(acts.Opened(store="c"))
    source.answer(None)
    assert source.asked == []
    source.pass_s(1.0)
    ask = source.answer(asks.Lacking(begin=0, end=1))
    source.pass_s(1.0)
    source.step(acts.Gone(store="c", why="again"))
    source.step(acts.Answered(store="c", ask=ask, answer=asks.Holding(epoch=1, end=0)))
    assert "c" not in source.core.feeding.responsive, "the answer is of a link that was lost"
