"""Asks and answers as frames. Pure."""

from __future__ import annotations

from typing import Final

from onceq.streams.model import asks, encoding
from onceq.streams.model.frames import Frame, FrameKind, encode

TO_FRAMES: Final = 0
"""The tag of answers to frames, of what a source tells unasked, and of what has no answer."""


def answer_frame(stream: int, tag: int, answer: asks.Answer) -> bytes:
    """Return a frame that answers an ask, or frames."""
    body = encoding.packed(answer)
    return encode(
        Frame(kind=FrameKind.ANSWER, stream=stream, epoch=0, number=tag, stable=0, body=body)
    )


def ask_frame(stream: int, tag: int, ask: asks.Ask | asks.Confirm) -> bytes:
    """Return a frame that asks. tag: greater than 0; its answer has it too. 0: it has none."""
    body = encoding.packed(ask)
    return encode(
        Frame(kind=FrameKind.ASK, stream=stream, epoch=0, number=tag, stable=0, body=body)
    )
