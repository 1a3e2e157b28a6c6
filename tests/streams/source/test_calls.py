"""What a message costs its source is counted in calls of functions: no clock is looked at."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Self

from onceq import streams
from tests.streams.source.senders import Source, begun

if TYPE_CHECKING:
    from types import FrameType

MESSAGES: Final = 1_000
CALLS_MAX: Final = 10.5
"""They were 9.6 when this was written, with a message's share of what its block needs."""


class Calls:
    """Counts the functions that are called in a block."""

    def __init__(self) -> None:
        self.count = 0

    def _called(self, _: FrameType, event: str, __: object) -> None:
        self.count += event == "call"

    def __enter__(self) -> Self:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def test_a_message_is_taken_sent_and_released_by_few_calls() -> None:
    source = Source(flight=2 * MESSAGES)
    source.begin(begun())
    with Calls() as calls:
        for _ in range(MESSAGES):
            source.core.send(b"x" * 100)
        source.send()
        source.have("abc", MESSAGES)
    assert (source.core.stable, source.core.retention.bytes) == (MESSAGES, 0)
    assert calls.count / MESSAGES <= CALLS_MAX


def test_bytes_are_encoded_and_decoded_by_one_call_each() -> None:
    topic = streams.Topic("raw")
    with Calls() as calls:
        assert topic.decode(topic.encode(b"bytes")) == b"bytes"
    assert calls.count <= 3  # __exit__ is one
