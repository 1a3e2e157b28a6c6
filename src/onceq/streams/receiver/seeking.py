"""How a receiver that knows one address learns whose stream it is, and its stores: Programs. Pure.

The address is of the source, or of any store that keeps the stream. What the source is called at
stores is asked there. Source: UM, "Adding Fault Recovery with Registration IDs"; spec M5, M7, M39.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from onceq.errors import InvalidValue
from onceq.model.ops.base import Program
from onceq.streams.model import asks
from onceq.streams.model.ops import AskStore, AskStores, WaitUntil
from onceq.streams.model.quorum import are_stable
from onceq.streams.receiver.placing import Who, has_all


class SourceRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """What a source is called: its session, and its RegIDs by stores, of enough of them."""

    session_id: int
    regids: Mapping[str, int]


class Id(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver without a session is called at stores. key: see Who."""

    regid: int
    key: str


def source_registration(who: Who, *, within_s: float, rest_s: float) -> Program[SourceRegistration]:
    """Ask stores what the source is called there, until a stable set has answered."""
    ask = asks.Look(topic=who.topic, session=who.source)
    while True:
        answers = yield from AskStores(
            asked=dict.fromkeys(sorted(who.known.stores), ask),
            enough=partial(has_all, who.known.stores),
            within_s=within_s,
        )
        found = {store: one for store, one in answers.items() if isinstance(one, asks.Found)}
        regids = {store: one.regid for store, one in sorted(found.items()) if one.regid}
        if are_stable((who.known,), regids.keys()):
            return SourceRegistration(session_id=who.source, regids=regids)
        yield from WaitUntil(within_s=rest_s)


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
