"""Asks each store by itself what it has of every stream, when all work is done.

Used by the runner, while the stores run: they must have the same, also the one that was wiped.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.streams.bridge.reading import taken
from onceq.streams.model import asks
from onceq.streams.net.asker import Asker
from onceq.streams.net.asking import listed

if TYPE_CHECKING:
    from onceq.streams.bridge.reading import Piece
    from onceq.streams.model.listings import Listed

ANSWER_S: Final = 5.0
AGAIN_S: Final = 0.2

StreamName = tuple[str, int]
"""The topic of a stream, and the session of its source."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has of a stream: numbers from begin on, below end.

    bodies: a digest of the messages; epochs: one of the epoch of each. voids: of these numbers,
    those without a message: ranges, their ends exclusive.
    """

    begin: int
    end: int
    bodies: str
    epochs: str
    voids: tuple[tuple[int, int], ...] = ()

    def has(self, number: int) -> bool:
        """Whether there is a message of this number."""
        is_void = any(begin <= number < end for begin, end in self.voids)
        return self.begin <= number < self.end and not is_void

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self.end - self.begin - sum(end - begin for begin, end in self.voids)


def digest(bodies: Iterable[bytes]) -> str:
    """Return a digest of messages, in order."""
    made = hashlib.sha256()
    for body in bodies:
        made.update(len(body).to_bytes(4, "little") + body)
    return made.hexdigest()


def contents(
    stores: Sequence[str], ends: Mapping[StreamName, int], limit_s: float
) -> list[dict[StreamName, Kept]]:
    """Return what each store has, as soon as that goes to these ends, or when the limit is over."""
    return asyncio.run(_all(stores, ends, limit_s))


async def _all(
    stores: Sequence[str], ends: Mapping[StreamName, int], limit_s: float
) -> list[dict[StreamName, Kept]]:
    asker = Asker(None)
    try:
        return [await _contents(asker, store, ends, limit_s) for store in stores]
    finally:
        asker.close()


async def _contents(
    asker: Asker, store: str, ends: Mapping[StreamName, int], limit_s: float
) -> dict[StreamName, Kept]:
    over = asyncio.get_running_loop().time() + limit_s
    while True:
        found = {
            (one.topic, one.session): one for one in await listed(asker, store, ANSWER_S) or ()
        }
        has_all = all(name in found and found[name].end >= end for name, end in ends.items())
        if has_all or asyncio.get_running_loop().time() > over:
            return {name: await _kept(asker, store, one) for name, one in found.items()}
        await asyncio.sleep(AGAIN_S)


async def _kept(asker: Asker, store: str, one: Listed) -> Kept:
    pieces: list[Piece] = []
    end = one.begin
    while end < one.end:
        ask = asks.Read(stream=one.stream, epoch=one.admitted, begin=end, end=one.end)
        more, _ = taken(await asker.ask(store, ask, ANSWER_S), end, one.end)
        if not more:
            break  # damaged, or the store is not there any more
        pieces += more
        end = more[-1].end
    return Kept(
        begin=one.begin,
        end=end,
        bodies=digest(_bodies(pieces)),
        epochs=digest(_epochs(pieces)),
        voids=tuple((piece.begin, piece.end) for piece in pieces if piece.bodies is None),
    )


def _bodies(pieces: Iterable[Piece]) -> Iterator[bytes]:
    for piece in pieces:
        yield from piece.bodies or (piece.why.encode() for _ in range(piece.begin, piece.end))


def _epochs(pieces: Iterable[Piece]) -> Iterator[bytes]:
    for piece in pieces:
        yield from (piece.epoch.to_bytes(8, "little") for _ in range(piece.begin, piece.end))
