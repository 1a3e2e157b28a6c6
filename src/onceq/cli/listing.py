"""What people are told of streams by stores: what these have, whether they keep messages, losses.

A listing has what a store has of each stream; what was accepted as lost of it, the store tells who
asks as a receiver does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from onceq.cli.output import Output, hint
from onceq.streams.errors import NotRegistered
from onceq.streams.model import asks, listings
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.net.address import address, refuse_unless_safe
from onceq.streams.net.asker import Asker
from onceq.streams.net.asking import listed_all

if TYPE_CHECKING:
    from onceq.cli.streams import Asked
    from onceq.streams.net.tls import Certificates

Found: TypeAlias = Mapping[str, tuple[listings.Listed, ...]]
"""The streams that stores know, by the stores."""
Told: TypeAlias = Mapping[tuple[str, int], asks.Information]
"""What a store tells receivers of a stream: of those that it was admitted to."""


@contextlib.contextmanager
def asker_of(certificates: Certificates | None) -> Generator[Asker]:
    """Gives who asks stores."""
    asker = Asker(None if certificates is None else certificates.connecting())
    try:
        yield asker
    finally:
        asker.close()


def checked(asked: Asked) -> StoreList:
    """Returns which stores are asked. InvalidValue, also beyond this machine without TLS."""
    own = listed(asked.stores)
    for store in sorted(own.stores):
        refuse_unless_safe(address(store), has_tls=asked.certificates is not None)
    return own


@contextlib.asynccontextmanager
async def asking(asked: Asked) -> AsyncGenerator[tuple[Asker, StoreList]]:
    """Gives who asks stores, and which."""
    own = checked(asked)
    with asker_of(asked.certificates) as asker:
        yield asker, own


async def found_by(asker: Asker, own: StoreList, timeout_s: float) -> Found:
    """Returns what stores know. NotRegistered: none answers."""
    found = await listed_all(asker, own.stores, timeout_s)
    if not found:
        raise NotRegistered(f"none of the stores answers within {timeout_s} s: {own.text()}")
    for silent in sorted(own.stores - found.keys()):
        hint(f"onceq: {silent} does not answer")
    return found


async def who_answers(asked: Asked, ask: asks.Ask, within_s: float) -> str:
    """Returns in words which stores answer now, and which do not."""
    async with asking(asked) as (asker, own):
        names = sorted(own.stores)
        given = await asyncio.gather(*(asker.ask(store, ask, within_s) for store in names))
    answering = {store for store, one in zip(names, given, strict=True) if one is not None}
    silent = own.stores - answering
    text = f"these of its stores answer: {' '.join(sorted(answering)) or 'none'}"
    return f"{text}; these do not: {' '.join(sorted(silent))}" if silent else text


def learning(one: listings.Listed) -> asks.Learn:
    """Returns what is asked for what a listing does not have."""
    return asks.Learn(topic=one.topic, session=one.session)


async def told_by(asker: Asker, found: Found, timeout_s: float) -> Told:
    """Returns what stores tell receivers of the streams that they know, of one after the other."""
    told: dict[tuple[str, int], asks.Information] = {}

    async def of_store(store: str) -> None:
        for one in found[store]:
            given = await asker.ask(store, learning(one), timeout_s)
            if given is None:
                return
            if isinstance(given[0], asks.Information):
                told[store, given[0].stream] = given[0]

    await asyncio.gather(*(of_store(store) for store in found))
    return told


def newest(told: Iterable[asks.Information | None]) -> asks.Information | None:
    """Returns what is told of the last epoch that a store was admitted to; None: nothing is."""
    known = [one for one in told if one is not None]
    return max(known, key=lambda one: one.firsts[-1:], default=None)


def kept(told: asks.Information | None) -> dict[str, Any]:
    """Returns as a part of a row whether stores keep messages, and what was accepted as lost.

    keeps: None: nobody told it.
    """
    losses = () if told is None else told.losses
    return {
        "keeps": None if told is None else told.keeps,
        "losses": [
            {"epoch": one.epoch, "first": one.first, "count": one.count, "below": one.below}
            for one in losses
        ],
    }


def tell_kept(output: Output, name: str, row: Mapping[str, Any]) -> None:
    """Tells people what `kept` has, if there is anything to tell. name: of whom."""
    if output.as_json:
        return
    if row["keeps"] is False:
        output.text(f"{name}: its stores keep no messages, the source alone has them")
    for one in row["losses"]:
        output.text(
            f"{name}: a loss was accepted in epoch {one['epoch']}: all below {one['first']} was"
            f" left, {one['count']} numbers are void, messages go on at {one['below']}"
        )
