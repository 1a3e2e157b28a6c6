"""What happens to a source that sends, and what it then has done, as values. Pure.

`sending` takes the ones and returns the others; a driver brings them, over asyncio or simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from onceq.streams.model import asks, events
from onceq.streams.model.quorum import StoreList
from onceq.streams.source.epochs import WhyEnded


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """There is a link to a store, and nothing was asked on it."""

    store: str


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The link to a store is not there any more; what was on its way may have come, or not."""

    store: str
    why: str


class Unlinked(msgspec.Struct, frozen=True, kw_only=True):
    """There is no link to a store as an epoch begins: it was not waited for. One is made now."""

    store: str


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """A store answered to frames."""

    store: str
    answer: asks.Answer


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A store answered what it was asked; None: not in time, and the link is closed."""

    store: str
    ask: asks.Admit
    answer: asks.Answer | None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The application wants another list of stores."""

    own: StoreList


class GaveUp(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is not stable is to be given up."""

    number: int


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver has said on its link what it has processed. link: a number, of no other link."""

    link: int
    said: asks.Confirm


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The link of a receiver is gone."""

    link: int
    why: str


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """A while has passed."""


Beside: TypeAlias = Wanted | GaveUp | Confirmed | Left
"""What the application wants, and what receivers say: also between two epochs."""
Given: TypeAlias = Opened | Gone | Unlinked | Came | Answered | Ticked | Beside
BROKEN: Final = {asks.Forgot: WhyEnded.FORGOT, asks.Conflict: WhyEnded.CONFLICT}
"""What answers to frames end an epoch at once."""


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send bytes to a store, on the link that there is."""

    store: str
    data: bytes


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """Send bytes to all receivers that have room for them."""

    data: bytes


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a store. If it does not answer in time, close the link, so that the ask has no effect."""

    store: str
    ask: asks.Admit


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the application."""

    event: events.Event


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The epoch has ended: nothing is sent in it any more."""

    why: WhyEnded


Act: TypeAlias = Send | Publish | Ask | Tell | End


def told(some: Iterable[events.Event]) -> Iterator[Act]:
    """Yield that the application is told some events."""
    return (Tell(event=event) for event in some)
