"""What a receiver that waits to be registered tells of the stores for which it waits. Pure.

It sees what was asked and answered, and tells of each store why it does not register the receiver:
once for a reason, again when that changes, and when the store is back while others are not. Source:
spec M6; UM, "Persistence Events".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from onceq.streams.model import asks, events
from onceq.streams.model.uses import InUse

_STEPS: Final[tuple[type[Any], ...]] = (asks.Learn, asks.Look, asks.Register)
"""What a store is asked, in this order: one that is asked later had what was asked before."""
_UNKNOWN: Final = "it knows nothing of this stream: its source has not begun there, or it forgot"
_BETWEEN: Final = "it is between two epochs of the stream: its source recovers, or is gone"
_FINE: Final = ""


def _found(one: asks.Found) -> str:
    if one.has.admitted == 0:
        return _UNKNOWN
    return _FINE if one.has.admitted == one.promised else _BETWEEN


def _plainly(text: str) -> Callable[[Any], str]:
    return lambda _: text


_WHY: Final[dict[type[Any], Callable[[Any], str]]] = {
    asks.Information: _plainly(_FINE),
    asks.Others: _plainly(_FINE),
    asks.Registered: _plainly(_FINE),
    asks.Found: _found,
    asks.Forgot: _plainly(_UNKNOWN),
    asks.NotAdmitted: _plainly(_BETWEEN),
    asks.Refused: _plainly("another receiver has this RegID there: give another"),
    asks.Full: _plainly("it has too many receivers of this stream: deregister those that are gone"),
    InUse: _plainly("it hears another live user of this registration: end it, or wait for its end"),
    type(None): _plainly("it does not answer, in time: start it, or see who can reach it"),
}
"""Why a store does not register a receiver, by its answer; empty: nothing hinders it."""
_BACK: Final = "it answers again, and the registration waits for others"


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What was told of a store. step: at which."""

    why: str
    step: int


class Lacking:
    """What was told of each store. stream: its id, as soon as a store said it; 0 before."""

    def __init__(self) -> None:
        self.stream = 0
        self._told: dict[str, _Told] = {}

    def look(
        self, asked: Mapping[str, asks.Ask], answers: Mapping[str, asks.Answer | None]
    ) -> Iterator[events.RegistrationError]:
        """Take what stores were asked and answered; yield what is told. None: no answer in time."""
        for one in answers.values():
            if isinstance(one, asks.Information | asks.Found):
                self.stream = one.stream or self.stream
        for store, ask in sorted(asked.items()):
            if type(ask) in _STEPS:
                answer = answers.get(store)
                why = _WHY[type(answer)](answer) if type(answer) in _WHY else _FINE
                yield from self._tell(store, _STEPS.index(type(ask)), why)

    def _tell(self, store: str, step: int, why: str) -> Iterator[events.RegistrationError]:
        before = self._told.get(store)
        if why:
            self._told[store] = _Told(why=why, step=step)
            if before is None or before.why != why:
                yield self._error(store, why)
        elif before is not None and before.step <= step:  # else that may be as it was
            del self._told[store]
            if _STEPS[step] is not asks.Register:  # else StoreRegistered tells it
                yield self._error(store, _BACK)

    def _error(self, store: str, why: str) -> events.RegistrationError:
        return events.RegistrationError(stream=self.stream, store=store, why=f"{store}: {why}")
