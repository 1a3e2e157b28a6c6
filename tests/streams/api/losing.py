"""How more is lost than a list of stores allows, and how a person accepts that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq import streams
from tests.streams.api.towns import RAW, Heard, sent, soon

if TYPE_CHECKING:
    from tests.streams.api.towns import Town


def texts(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(begin, begin + count)]


def know(stores: Town, names: str, below: int) -> None:
    """Wait until stores know that all below a number is stable."""
    catalogues = [stores.cluster.stores[name].catalogue for name in names]
    soon(lambda: all(held.stable == below for one in catalogues for held in one.streams.values()))


def wipe(stores: Town, names: str) -> None:
    stores.end(names)
    for name in names:
        stores.cluster.wipe(name)
    stores.start(names)


def told(context: streams.StreamContext, at: str) -> streams.StoresForgot:
    """What a source is told that finds too little, and cannot send."""
    heard = Heard()
    with context.source(RAW, stores=at, on_event=heard, within_s=0.0) as source:
        soon(lambda: bool(heard.of(streams.StoresForgot)))
        with pytest.raises(streams.NotRegistered) as raised:
            source.send(b"lost")
    one: streams.StoresForgot = heard.of(streams.StoresForgot)[0]
    assert f"accept_loss={one.accept_loss!r}" in str(raised.value)
    return one


def split(stores: Town, context: streams.StreamContext) -> None:
    """Have a know the numbers 0 to 2, and b and c, which are down, 3 to 5 too: all are stable."""
    at = stores.at("abc")
    sent(context, at, texts(3))
    know(stores, "a", 3)
    stores.end("a")
    sent(context, at, texts(3, 3))
    know(stores, "bc", 6)
    stores.end("bc")
    stores.start("a")


def lose(
    stores: Town,
    context: streams.StreamContext,
    *,
    below: int = 6,
    then: tuple[bytes, ...] = (b"6",),
) -> None:
    """Give up b and c, and send to a, b and d; then b and c come back with their disks.

    No source is there which would have b cut what is lost. below: where messages go on.
    """
    accepted = told(context, stores.at("abc")).accept_loss.replace("3-1000003@", f"3-{below}@")
    sent(context, stores.at("abd"), list(then), accept_loss=accepted, fragment_size=10)
    soon(lambda: all(_end(stores, name) == _end(stores, "d") > below for name in "ad"))
    stores.start("bc")


def _end(stores: Town, name: str) -> int:
    """Below which number all is stable, as a store knows."""
    return max(held.stable for held in stores.cluster.stores[name].catalogue.streams.values())
