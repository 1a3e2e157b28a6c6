"""Sources that run over real stores, as tests make them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from onceq.streams.errors import FlightFull
from onceq.streams.model import events, fragments
from onceq.streams.model.choice import Stage
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.model.window import Flight
from onceq.streams.source import retaining
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.epochs import SourceLife, Timing
from onceq.streams.source.releasing import Policy
from onceq.streams.source.sending import Sending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

TOPIC, SESSION = "bars", 9
WITHIN_S = 60.0
TIMING = Timing(
    ask_s=1.0,
    admit_s=5.0,
    interval_s=0.1,
    retry_s=0.05,
    resend_s=1.0,
    unresponsive_s=0.5,
    change_s=1.0,
)
_lives = itertools.count(1)


class Heard:
    """The events of a source."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


def core(
    own: StoreList,
    *,
    flight: int = 1_000,
    timing: Timing = TIMING,
    at: str = "",
    born_s: int = 1,
    policy: Policy | None = None,
) -> Sending:
    """The core of a new life. at: where receivers are told to find it; empty: where it listens."""
    life = SourceLife(
        life=next(_lives), born_s=born_s, own=own, topic=TOPIC, session=SESSION, address=at
    )
    return Sending(life, Flight(messages_max=flight), timing, policy=policy)


def source(
    own: StoreList, on_event: Callable[[events.Event], None] | None = None, **given: Any
) -> AsyncSource:
    """A source that is not yet started; it does not listen, unless it is told to."""
    listen = given.pop("listen", None)
    return AsyncSource(core(own, **given), listen=listen, on_event=on_event)


S = core(listed("127.0.0.1:1")).life.fresh
"""The stream of all of them."""


async def send_all(one: AsyncSource, texts: Iterable[bytes]) -> list[int]:
    """Send messages as there is room; return their numbers."""
    numbers: list[int] = []
    for text in texts:
        while True:
            try:
                numbers.append(one.send(text))
                break
            except FlightFull:
                await one.wait_room(len(text), WITHIN_S)
    return numbers


SMALL_PARTS = Policy(fragment_size=10)
"""Of a source whose messages take a number for each ten bytes."""


def large(number: int, parts: int) -> bytes:
    """A message that takes so many numbers then."""
    return (b"%06d" % number).ljust(10 * parts - 1, b".")


def cut_short(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """Have sources send only so many parts of what takes several, as if they died within it."""

    def split(message: bytes, size: int) -> list[tuple[bytes, int]]:
        return list(fragments.split(message, size))[:parts]

    monkeypatch.setattr(retaining, "split", split)


def is_settled(one: AsyncSource) -> bool:
    """Whether no change of lists is on."""
    begun = one._core.begun
    return one._core.is_sending and begun is not None and begun.bridge.stage is Stage.SETTLED


def texts(count: int, begin: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(begin, begin + count)]
