"""Messages that take several numbers, as a receiver is shown them: each as one, or none of it."""

from __future__ import annotations

from typing import Any

import pytest

from onceq.streams.model import asks
from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.model.fragments import CONTINUED, CONTINUES, split
from onceq.streams.model.frames import Frame, FrameKind, body_of, encode
from onceq.streams.receiver import assembling
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.outstanding import Outstanding
from tests.streams.receiver.test_delivering import S, information, live, stable

BOTH = CONTINUES | CONTINUED
VOID = FrameKind.VOID


def part(number: int, body: bytes, flags: int = 0, **given: Any) -> bytes:
    """A frame with one fragment, or message, or void."""
    kind = given.get("kind", FrameKind.MESSAGES)
    return encode(
        Frame(
            kind=kind,
            stream=S,
            epoch=given.get("epoch", 1),
            number=number,
            stable=given.get("stable", 0),
            count=1,
            flags=flags,
            body=b"" if kind is VOID else body_of([body]),
        )
    )


def parts(first: int, message: bytes, **given: Any) -> list[bytes]:
    """The frames of a message of two bytes a fragment."""
    pieces = enumerate(split(message, 2), first)
    return [part(number, body, flags, **given) for number, (body, flags) in pieces]


def show(core: Delivering, *frames: bytes) -> list[Shown]:
    return [one for data in frames for one in core.live(data)]


def lost(first: int, last: int, why: WhyLost) -> Loss:
    return Loss(stream=S, first=first, last=last, why=why)


def message(number: int, body: bytes, count: int = 1, **given: Any) -> Message:
    return Message(
        stream=S, epoch=given.pop("epoch", 1), number=number, body=body, parts=count, **given
    )


def test_a_message_that_takes_several_numbers_is_shown_as_one() -> None:
    core = live()
    frames = parts(0, b"abcde")
    assert show(core, *frames[:2]) == []
    assert core.next == 2
    assert show(core, frames[2], part(3, b"f")) == [message(2, b"abcde", 3), message(3, b"f")]
    assert message(2, b"abcde", 3).first == 0


def test_what_waits_for_the_rest_is_not_acknowledged() -> None:
    core, outstanding = stable(), Outstanding(0)
    shown = show(core, part(0, b"a", stable=3), *parts(1, b"bcdef", stable=3)[:2])
    outstanding.add(shown)
    outstanding.end(outstanding.show())
    assert (core.next, core.sure, outstanding.below(core.sure)) == (3, 1, 1)
    outstanding.add(show(core, parts(1, b"bcdef", stable=4)[2]))
    outstanding.end(outstanding.show())
    assert (core.sure, outstanding.below(core.sure)) == (4, 4)


def test_parts_that_come_from_a_store_and_from_the_source_are_one_message() -> None:
    core = live()
    frames = parts(0, b"abcde")
    assert show(core, frames[2]) == []
    answer = asks.Range(begin=0, end=2, frames=2)
    shown = core.given("a", answer, (frames[0], frames[1]))
    assert shown == [message(2, b"abcde", 3, retransmitted=True)]


def test_a_void_within_a_message_loses_all_of_it() -> None:
    core = live()
    first, _, last = parts(0, b"abcde")
    assert show(core, first, part(1, b"", kind=VOID)) == [lost(0, 1, WhyLost.RECLAIMED)]
    assert show(core, last, part(3, b"f")) == [lost(2, 2, WhyLost.RECLAIMED), message(3, b"f")]


def test_a_loss_within_a_message_loses_all_of_it() -> None:
    core = live()
    frames = parts(0, b"abcde")
    show(core, frames[0])
    shown = [one for store in "abc" for one in core.given(store, asks.Range(begin=2, end=2), ())]
    assert shown == [lost(0, 1, WhyLost.TRIMMED)]
    assert show(core, frames[2]) == [lost(2, 2, WhyLost.TRIMMED)]


def test_a_message_that_its_source_never_finished_is_told_and_the_next_one_shown() -> None:
    core = live()
    unfinished = parts(0, b"abcde")[:2]
    shown = show(core, *unfinished, *parts(2, b"xyz"), part(4, b"f"))
    assert shown == [lost(0, 1, WhyLost.UNFINISHED), message(3, b"xyz", 2), message(4, b"f")]


def test_a_message_that_goes_on_for_ever_is_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assembling, "MESSAGE_BYTES_MAX", 4)
    core = live()
    assert show(core, *parts(0, b"abcde"), part(3, b"f")) == [
        lost(0, 1, WhyLost.UNFINISHED),
        lost(2, 2, WhyLost.SKIPPED),
        message(3, b"f"),
    ]


def test_a_life_that_begins_within_a_message_is_told_that_it_skips_the_rest() -> None:
    core = live(1)
    assert show(core, *parts(0, b"abcde")[1:], part(3, b"f")) == [
        lost(1, 1, WhyLost.SKIPPED),
        lost(2, 2, WhyLost.SKIPPED),
        message(3, b"f"),
    ]


@pytest.mark.parametrize("is_shown", [True, False], ids=["shown", "kept"])
def test_a_message_that_an_epoch_cuts_comes_again_from_its_first_number(*, is_shown: bool) -> None:
    core = live()
    frames = parts(0, b"abcde")
    show(core, *frames[: 3 if is_shown else 2])
    told = core.inform(information(2, (1, 0), (2, 1)))
    assert told == ([RolledBack(stream=S, first=0, last=2)] if is_shown else [])
    assert core.next == 0
    again = [frames[0], *parts(0, b"abcde", epoch=2)[1:]]
    shown = core.given("a", asks.Range(begin=0, end=3, frames=3), tuple(again))
    assert shown == [message(2, b"abcde", 3, epoch=2, retransmitted=True)]


def test_a_message_that_an_epoch_leaves_whole_is_not_shown_again() -> None:
    core = live()
    show(core, *parts(0, b"abcde"), part(3, b"f"))
    told = core.inform(information(2, (1, 0), (2, 3)))
    assert (told, core.next) == ([RolledBack(stream=S, first=3, last=3)], 3)
