"""How a receiver that knows one address learns whose stream it is, and its stores: a Program. Pure.

The address is of the source, or of any store that keeps the stream. Source: spec M7; M39.
"""

from __future__ import annotations

from onceq.errors import InvalidValue
from onceq.model.ops.base import Program
from onceq.streams.model import asks
from onceq.streams.model.ops import AskStore, WaitUntil


def seek(at: str, ask: asks.Learn, *, within_s: float, rest_s: float) -> Program[asks.Information]:
    """Ask at an address until what is there knows the stream, however long that takes.

    Raises InvalidValue if it has others instead.
    """
    while True:
        answer = yield from AskStore(
            store=at, ask=asks.Learn(topic=ask.topic, session=0), within_s=within_s
        )
        if isinstance(answer, asks.Others) and _has(answer, ask):
            answer = yield from AskStore(store=at, ask=ask, within_s=within_s)
        match answer:
            case asks.Information(session=session) if ask.session in {0, session}:
                return answer
            case asks.Information(session=session):
                raise InvalidValue(_refused(at, ask, ((ask.topic, session),)))
            case asks.Others(streams=streams):
                raise InvalidValue(_refused(at, ask, streams))
            case _:
                yield from WaitUntil(within_s=rest_s)


def _has(others: asks.Others, ask: asks.Learn) -> bool:
    return (ask.topic, ask.session) in others.streams


def _refused(at: str, ask: asks.Learn, streams: tuple[tuple[str, int], ...]) -> str:
    wanted = f"topic {ask.topic!r}" + (f" of session {ask.session:#x}" if ask.session else "")
    there = ", ".join(f"{topic!r} of session {session:#x}" for topic, session in streams)
    return f"{at} has no one stream of {wanted}, but {there}: name one of these, or another address"
