"""What is said of stores that do not have what a position has passed; and how often for whom."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from onceq.model.stream_ops import StreamPosition
from onceq.streams import logged
from onceq.streams.bridge.moving import hexed, refuse_replaced
from onceq.streams.bridge.waiting import FIRST_S, PAUSE_MAX_S, Waiting
from onceq.streams.errors import StreamReplaced
from onceq.streams.model.low import info
from onceq.streams.receiver.placing import Position
from tests.events import emits

if TYPE_CHECKING:
    from tests.events import Events

S = 7
FORMER = "a former one: they were given up when a loss was accepted, or are behind"
REPLACED = "with other messages there"


def found(epoch: int = 6, firsts: tuple[tuple[int, int], ...] = ((1, 0), (4, 3))) -> Position:
    """A stream with the numbers 0 to 4."""
    shown = info(acknowledged_below=0, end=5, maximum=None)
    return Position(
        stream=S, epoch=epoch, lists=(), shown=shown, is_known=False, below=0, firsts=firsts
    )


def at(epoch: int, number: int, stream: int = S) -> StreamPosition:
    return StreamPosition(life=0, stream=hexed(stream), epoch=epoch, number=number)


@pytest.mark.parametrize(
    ("position", "says"),
    [
        (at(7, 4), FORMER),
        (at(7, 9), FORMER),
        (at(7, 4, S + 1), FORMER),
        (at(6, 4, S + 1), REPLACED),
        (at(4, 6), REPLACED),
        (at(3, 4), REPLACED),
    ],
)
def test_a_refusal_says_whether_the_stream_was_replaced_or_the_stores_are_former_ones(
    position: StreamPosition, says: str
) -> None:
    with pytest.raises(StreamReplaced) as raised:
        refuse_replaced("ledger", position, found())
    text = str(raised.value)
    assert f"'ledger' is at number {position.number} of epoch {position.epoch}" in text
    assert f"up to 5, in epoch 6, {says}" in text
    assert ("another name" in text, "list of stores" in text) == (
        says == REPLACED,
        says == FORMER,
    )


def test_what_has_the_same_messages_is_not_refused() -> None:
    for position in (at(4, 4), at(6, 5), at(1, 3), at(1, 0)):
        refuse_replaced("ledger", position, found())
    nothing = StreamPosition(life=0, stream=None, epoch=0, number=0)
    refuse_replaced("ledger", nothing, found())


@emits(logged.BridgeLacksStore)
def test_who_waits_says_so_after_a_while_and_then_ever_less_often(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    waits = Waiting("copy", "bars")

    def told(until: float) -> list[float]:
        """Wait so long, and ask each second; return when it was said."""
        nonlocal now
        times = []
        while now < until:
            count = len(events.all)
            waits.note({"a:1": "it does not answer"})
            times += [now] * (len(events.all) - count)
            now += 1.0
        return times

    assert told(200.0) == [FIRST_S, 15.0, 35.0, 75.0, 75.0 + PAUSE_MAX_S, 75.0 + 2 * PAUSE_MAX_S]
    one = events.of(logged.BridgeLacksStore)[0]
    assert one == {"bridge": "copy", "topic": "bars", "store": "a:1", "why": "it does not answer"}
    waits.over()
    assert told(212.0) == [200.0 + FIRST_S]
