"""What a life of a receiver shows: in order, once, no number left out untold."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks
from onceq.streams.model.choice import Stage
from onceq.streams.model.contiguous import Ascending, Contiguous
from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.model.frames import Frame, FrameKind, body_of, encode
from onceq.streams.model.quorum import listed
from onceq.streams.net.wire import TO_FRAMES, answer_frame, ask_frame
from onceq.streams.receiver.delivering import Delivering, confirmed
from onceq.streams.receiver.ops import Message, Shown

ABC = listed("a b c")
S = 7


def frame(epoch: int, number: int, count: int = 1, stable: int = 0, **given: Any) -> bytes:
    kind: FrameKind = given.get("kind", FrameKind.MESSAGES)
    texts = [b"%d.%d" % (epoch, one) for one in range(number, number + count)]
    return encode(
        Frame(
            kind=kind,
            stream=S,
            epoch=epoch,
            number=number,
            stable=stable,
            count=count,
            body=b"" if kind is FrameKind.VOID or not count else body_of(texts),
        )
    )


def information(epoch: int, *firsts: tuple[int, int], **given: Any) -> asks.Information:
    return asks.Information(
        stream=S,
        epoch=epoch,
        stage=given.get("stage", Stage.SETTLED),
        firsts=firsts,
        lists=given.get("lists", (ABC,)),
        address="x:1",
        stable=given.get("stable", 0),
    )


def live(begin: int = 0) -> Delivering:
    core = Delivering(S, begin, (ABC,), is_stable_only=False)
    core.inform(information(1, (1, 0)))
    return core


def stable(begin: int = 0) -> Delivering:
    core = Delivering(S, begin, (ABC,), is_stable_only=True)
    core.inform(information(1, (1, 0)))
    return core


def texts(shown: list[Shown]) -> list[str]:
    """What was shown: messages as their texts, with a star if they come again."""
    return [
        one.body.decode() + "*" * one.retransmitted if isinstance(one, Message) else repr(one)
        for one in shown
    ]


def given(core: Delivering, store: str, begin: int, *data: bytes, **more: Any) -> list[str]:
    end = more.pop("end", None)
    if end is None:
        end = begin + len(data)
    answer = asks.Range(begin=begin, end=end, frames=len(data), **more)
    return texts(core.given(store, answer, data))


def is_behind(core: Delivering) -> bool:
    return core.is_behind


def test_what_the_source_sends_is_shown_as_it_comes() -> None:
    core = live()
    assert texts(core.live(frame(1, 0, 2))) == ["1.0", "1.1"]
    assert texts(core.live(frame(1, 2))) == ["1.2"]
    assert texts(core.live(frame(1, 0, 3))) == [], "it was shown"
    assert (core.next, core.sure) == (3, 0)
    core.live(frame(1, 3, 0, stable=2))
    assert core.sure == 2, "no more is acknowledged to stores than is stable"


def test_only_what_is_stable_is_shown_to_who_wants_that() -> None:
    core = stable()
    assert texts(core.live(frame(1, 0, 3))) == []
    assert texts(core.live(frame(1, 3, 0, stable=2))) == ["1.0", "1.1"], "a part of a frame"
    assert texts(core.live(frame(1, 3, stable=3))) == ["1.2"]
    assert (core.next, core.sure) == (3, 3)


def test_a_gap_is_filled_from_stores_and_live_frames_follow() -> None:
    core = live()
    assert texts(core.live(frame(1, 2))) == []
    assert core.lacks
    assert given(core, "a", 0, frame(1, 0)) == ["1.0*"]
    assert given(core, "b", 1, frame(1, 1)) == ["1.1*", "1.2"]
    assert not core.lacks


def test_live_frames_may_come_in_any_order_and_more_than_once() -> None:
    core = live()
    assert texts(core.live(frame(1, 2))) == []
    assert texts(core.live(frame(1, 1))) == []
    assert texts(core.live(frame(1, 1))) == []
    assert texts(core.live(frame(1, 0, 2))) == ["1.0", "1.1", "1.2"]
    assert texts(core.live(frame(1, 3))) == ["1.3"]


def test_a_life_begins_where_it_is_told_to() -> None:
    core = live(4)
    assert given(core, "a", 4, frame(1, 3, 3), end=6) == ["1.4*", "1.5*"]
    assert core.sure == 4


def test_of_a_range_only_what_it_has_is_shown() -> None:
    """The last frame of a stable range may go on with what is not stable."""
    core = stable()
    assert given(core, "a", 0, frame(1, 0, 5), end=3) == ["1.0*", "1.1*", "1.2*"]


def test_a_former_life_that_still_sends_is_not_heard() -> None:
    core = live()
    core.live(frame(1, 0))
    core.inform(information(3, (1, 0), (3, 1)))
    assert texts(core.live(frame(1, 1))) == []
    assert texts(core.inform(information(1, (1, 0)))) == []
    assert texts(core.live(frame(3, 1))) == ["3.1"]


def test_frames_of_a_later_epoch_wait_until_it_is_told_of_that() -> None:
    core = live()
    core.live(frame(1, 0))
    assert texts(core.live(frame(2, 1))) == []
    assert is_behind(core)
    core.inform(information(2, (1, 0), (2, 1)))
    assert not is_behind(core)
    assert texts(core.live(frame(2, 1))) == ["2.1"]


def test_what_was_seen_and_cut_is_told_and_then_comes_again() -> None:
    core = live()
    core.live(frame(1, 0, 4))
    assert core.inform(information(3, (1, 0), (3, 2))) == [RolledBack(stream=S, first=2, last=3)]
    assert texts(core.live(frame(3, 2, 2))) == ["3.2", "3.3"]


def test_of_two_epochs_since_the_one_that_cut_more_counts() -> None:
    core = live()
    core.live(frame(1, 0, 4))
    assert core.inform(information(5, (1, 0), (3, 1), (5, 3))) == [
        RolledBack(stream=S, first=1, last=3)
    ]


def test_what_was_read_of_a_later_epoch_than_was_told_is_no_rollback() -> None:
    core = stable()
    given(core, "a", 0, frame(1, 0))
    given(core, "a", 1, frame(2, 1))
    assert core.inform(information(4, (1, 0), (2, 1), (4, 2))) == []
    assert core.next == 2


def test_what_is_told_late_of_an_epoch_before_one_that_was_shown_is_no_rollback() -> None:
    core = stable()
    given(core, "a", 0, frame(1, 0))
    given(core, "a", 1, frame(4, 1, 2), end=3)
    assert core.inform(information(3, (1, 0), (3, 1))) == []
    assert (core.next, core.epoch) == (3, 1)
    assert core.inform(information(4, (1, 0), (4, 1))) == []
    assert (core.next, core.epoch) == (3, 4)


def test_what_was_only_told_as_lost_was_not_seen() -> None:
    core = live()
    core.live(frame(1, 0))
    for store in "ab":
        core.given(store, asks.Range(begin=3, end=3), ())
    assert core.next == 3
    assert core.inform(information(2, (1, 0), (2, 1))) == []
    assert core.next == 1, "it may come now"


def test_a_store_that_trimmed_is_not_believed_alone() -> None:
    core = live()
    assert given(core, "a", 5) == []
    assert core.next == 0
    lost = Loss(stream=S, first=0, last=3, why=WhyLost.TRIMMED)
    assert core.given("b", asks.Range(begin=4, end=4), ()) == [lost]
    assert given(core, "b", 4, frame(1, 4)) == ["1.4*"]


def test_what_was_trimmed_since_an_earlier_life_acknowledged_it_is_told_as_that() -> None:
    core = Delivering(S, 1, (ABC,), is_stable_only=True, acknowledged=3)
    given(core, "a", 5)
    assert core.given("b", asks.Range(begin=5, end=5), ()) == [
        Loss(stream=S, first=1, last=2, why=WhyLost.ACKNOWLEDGED),
        Loss(stream=S, first=3, last=4, why=WhyLost.TRIMMED),
    ]
    core = Delivering(S, 1, (ABC,), is_stable_only=True, acknowledged=6)
    given(core, "a", 5)
    assert core.given("b", asks.Range(begin=5, end=5), ()) == [
        Loss(stream=S, first=1, last=4, why=WhyLost.ACKNOWLEDGED)
    ]


def test_a_store_that_keeps_no_messages_is_not_waited_for_to_say_that_one_is_lost() -> None:
    core = live()
    assert core.given("c", asks.Noted(epoch=1), ()) == []
    assert given(core, "a", 0, missing=True) == []
    lost = Loss(stream=S, first=0, last=0, why=WhyLost.LOST)
    assert core.given("b", asks.Range(begin=0, end=0, missing=True), ()) == [lost]


def test_a_number_that_no_store_can_read_is_lost() -> None:
    core = live()
    assert given(core, "a", 0, frame(1, 0), missing=True) == ["1.0*"]
    assert given(core, "b", 1, missing=True) == []
    lost = Loss(stream=S, first=1, last=1, why=WhyLost.LOST)
    assert core.given("c", asks.Range(begin=1, end=1, missing=True), ()) == [lost]
    assert given(core, "c", 2, frame(1, 2)) == ["1.2*"]


def test_a_number_that_one_store_cannot_read_comes_from_another() -> None:
    core = live()
    given(core, "a", 0, missing=True)
    given(core, "b", 0, missing=True)
    assert given(core, "c", 0, frame(1, 0)) == ["1.0*"]
    assert given(core, "c", 1, missing=True) == [], "what was harmed before is not counted"


def test_a_number_that_was_given_up_is_told() -> None:
    core = live()
    shown = core.live(frame(1, 0, 2, kind=FrameKind.VOID))
    assert shown == [Loss(stream=S, first=0, last=1, why=WhyLost.RECLAIMED)]
    assert texts(core.live(frame(1, 2))) == ["1.2"]


def test_a_store_that_is_behind_shows_nothing_of_another_log() -> None:
    core = live()
    core.inform(information(3, (1, 0), (3, 1)))
    assert given(core, "a", 0, frame(1, 0), frame(1, 1)) == ["1.0*"]
    assert given(core, "b", 1, frame(4, 1)) == []
    assert core.is_behind


def test_what_a_source_sends_is_frames_and_what_must_be_known() -> None:
    core = Delivering(S, 0, (ABC,), is_stable_only=False)
    assert core.heard(answer_frame(S, TO_FRAMES, asks.Forgot())) == []
    assert core.heard(answer_frame(S, TO_FRAMES, information(1, (1, 0)))) == []
    assert core.epoch == 1
    assert texts(core.heard(frame(1, 0))) == ["1.0"]
    assert len(core.heard(frame(1, 1, kind=FrameKind.VOID))) == 1
    with pytest.raises(FrameRefused):
        core.heard(ask_frame(S, 1, asks.Learn(topic="bars", session=9)))


def test_a_frame_that_has_not_what_it_says_is_refused_and_harms_nothing() -> None:
    core = live()
    short = Frame(
        kind=FrameKind.MESSAGES,
        stream=S,
        epoch=1,
        number=0,
        stable=0,
        count=2,
        body=body_of([b"one"]),
    )
    with pytest.raises(FrameRefused):
        core.live(encode(short))
    assert given(core, "a", 0, encode(short), end=2) == []
    assert texts(core.live(frame(1, 0, 2))) == ["1.0", "1.1"]


def test_what_is_no_range_gives_nothing() -> None:
    core = live()
    for answer in (None, asks.Forgot(), asks.Noted(epoch=1)):
        assert core.given("a", answer, ()) == []


def test_with_too_much_ahead_the_rest_comes_from_stores() -> None:
    core = live()
    body = body_of([b"x" * (1 << 19)])
    for number in range(1, 12):
        one = Frame(
            kind=FrameKind.MESSAGES, stream=S, epoch=1, number=number, stable=0, count=1, body=body
        )
        core.live(encode(one))
    assert len(core.live(frame(1, 0))) == 8, "itself, and what was kept"
    assert core.next == 8


def test_what_another_stream_sends_is_not_heard() -> None:
    core = live()
    assert core.inform(replace(information(9, (9, 0), stable=3), stream=8)) == []
    assert core.epoch == 1


@pytest.mark.parametrize(
    ("epochs", "epoch"),
    [
        ({"a": 1, "b": 1, "c": 1}, 1),
        ({"a": 2, "b": 1, "c": 1}, 1),
        ({"a": 2, "b": 2, "c": 1}, 2),
        ({"a": 2}, None),
        ({"a": 2, "b": 1}, None),
        ({}, None),
    ],
)
def test_an_epoch_counts_when_a_stable_set_was_admitted(
    epochs: dict[str, int], epoch: int | None
) -> None:
    told = {store: information(0, (its, 0), stable=its) for store, its in epochs.items()}
    found = confirmed(told)
    assert (None if found is None else found.epoch) == epoch
    if found is not None:
        assert found.stable == epoch


def test_in_one_epoch_the_lists_of_the_last_stage_count() -> None:
    """A, B and C are left: they will never say that what they have is lost."""
    lists = (ABC, listed("d e"))
    settling = information(2, (1, 0), (2, 0), stage=Stage.SETTLING, lists=lists)
    core = Delivering(S, 0, lists, is_stable_only=False)
    core.inform(settling)
    for store in "de":
        assert given(core, store, 3) == []
    core.inform(information(2, (1, 0), (2, 0), lists=lists[1:]))
    core.inform(settling)
    assert core.lists == lists[1:], "what is told of a former stage changes nothing"
    lost = Loss(stream=S, first=0, last=2, why=WhyLost.TRIMMED)
    assert core.given("d", asks.Range(begin=3, end=3), ()) == [lost]


def test_while_a_change_of_lists_is_joint_the_old_one_says_what_is_lost() -> None:
    lists = (ABC, listed("d e"))
    core = Delivering(S, 0, lists, is_stable_only=False)
    core.inform(information(2, (1, 0), (2, 0), stage=Stage.JOINT, lists=lists))
    given(core, "a", 3)
    lost = Loss(stream=S, first=0, last=2, why=WhyLost.TRIMMED)
    assert core.given("b", asks.Range(begin=3, end=3), ()) == [lost]


def test_of_stores_that_tell_of_an_epoch_the_last_stage_counts() -> None:
    lists = (ABC, listed("b c d"))
    told = {store: information(0, (3, 0), stage=Stage.SETTLING, lists=lists) for store in "abc"}
    told["d"] = information(0, (3, 0), lists=lists[1:])
    found = confirmed(told)
    assert found is not None
    assert (found.epoch, found.stage, found.lists) == (3, Stage.SETTLED, lists[1:])


def test_um_ack_ordering_0_1_5_2_4_acknowledges_2_and_no_more_than_is_stable() -> None:
    core, ended = live(), Contiguous()
    core.live(frame(1, 0, 7, stable=2))
    for number in (0, 1, 5, 2, 4):
        ended.end(number)
    assert min(ended.below, core.sure) == 2
    core.live(frame(1, 7, 0, stable=7))
    assert min(ended.below, core.sure) == 3, "2 is acknowledged: everything below 3"


def test_um_explicit_acknowledgements_5_10_15_wait_until_they_are_stable() -> None:
    core, explicit = live(), Ascending()
    core.live(frame(1, 0, 16))
    positions = []
    for number in (5, 10, 15):
        explicit.acknowledge(number)
        core.live(frame(1, 16, 0, stable=number - 1))
        positions.append(min(explicit.below, core.sure))
    assert positions == [4, 9, 14]
    core.live(frame(1, 16, 0, stable=16))
    assert min(explicit.below, core.sure) == 16
