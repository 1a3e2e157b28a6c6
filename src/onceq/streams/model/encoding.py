"""What is asked and answered as bytes: msgpack, in the body of a frame. Pure.

What comes in may be anything: it is checked here, as far as one ask can be without what it is
about. Source: streams.md 4.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import msgspec

from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks
from onceq.streams.model.choice import Firsts
from onceq.streams.model.quorum import STORES_MAX

_ENCODER: Final = msgspec.msgpack.Encoder()
_ASKS: Final = msgspec.msgpack.Decoder(asks.Ask)
_SAID: Final = msgspec.msgpack.Decoder(asks.Said)
_ANSWERS: Final = msgspec.msgpack.Decoder(asks.Answer)


def packed(one: asks.Ask | asks.Confirm | asks.Answer) -> bytes:
    """Return the bytes of an ask, of a confirmation or of an answer."""
    return _ENCODER.encode(one)


def ask_of(data: bytes | memoryview) -> asks.Ask:
    """Return the ask that these bytes are. Raises FrameRefused."""
    ask: asks.Ask = _decoded(_ASKS, data)
    if isinstance(ask, asks.Admit) and not _is_sound(ask):
        raise FrameRefused("an admission whose log and bridge record do not fit")
    lists = ask.bridge.lists if isinstance(ask, asks.Admit) else ()
    for one in (ask.own,) if isinstance(ask, asks.Fence) else lists:
        if len(one.stores) > STORES_MAX or any(len(store) > asks.NAME_MAX for store in one.stores):
            raise FrameRefused("a list of stores that is longer than one may be")
    return ask


def _is_sound(ask: asks.Admit) -> bool:
    """Whether what an admission says of a log can be."""
    firsts = ask.bridge.firsts
    ends_here = bool(firsts) and firsts[-1] == (ask.bridge.epoch, ask.log.end)
    has_lists = 1 <= len(ask.bridge.lists) <= 2 and all(one.stores for one in ask.bridge.lists)
    is_log = _are_of_log(ask.log.firsts) if ask.log.firsts else ask.log.end == 0
    return ends_here and has_lists and is_log and _are_of_log(firsts)


def _are_of_log(firsts: Firsts) -> bool:
    """Whether a log can have these epochs: the first begins with the number 0, and they ascend."""
    ascends = all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(firsts))
    return bool(firsts) and firsts[0][1] == 0 and ascends


def said_of(data: bytes | memoryview) -> asks.Said:
    """Return what a receiver says to its source. Raises FrameRefused."""
    return _decoded(_SAID, data)  # type: ignore[no-any-return] # the decoder's own type


def answer_of(data: bytes | memoryview) -> asks.Answer:
    """Return the answer that these bytes are. Raises FrameRefused."""
    answer: asks.Answer = _decoded(_ANSWERS, data)
    if isinstance(answer, asks.Information) and not _are_of_log(answer.firsts):
        raise FrameRefused("what a receiver is told of a stream has epochs that no log has")
    return answer


def _decoded(decoder: Any, data: bytes | memoryview) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FrameRefused(f"these bytes are no ask and no answer of a store: {error}") from error
