"""What a store tells a person of its streams. Pure."""

from __future__ import annotations

import msgspec

from onceq.streams.model.quorum import StoreList
from onceq.streams.model.tagged import Tagged


class Registrant(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver that a store knows. key: its name at all stores.

    regid: 0: the store knows of it from others only.
    """

    key: str
    regid: int
    session: int
    below: int


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows of a stream, for people. epoch: promised; admitted: 0: never. lists: its.

    damaged: how many numbers cannot be read there.
    """

    stream: int
    topic: str
    session: int
    address: str
    epoch: int
    admitted: int
    lists: tuple[StoreList, ...]
    begin: int
    end: int
    stable: int
    damaged: int
    receivers: tuple[Registrant, ...]


class Listing(Tagged, frozen=True):
    """The streams that a store knows, by their ids. more: there are others behind the last."""

    streams: tuple[Listed, ...]
    more: bool = False
