"""Messages that take several numbers: `into` has each once, and who reads by numbers, too."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from onceq.streams.bridge.epochs import Epochs
from onceq.streams.bridge.reading import Asked, Piece, Unread
from onceq.streams.bridge.whole import Tail, Wholes, tail_of
from onceq.streams.model import asks
from onceq.streams.model.events import Event, Loss, WhyLost
from onceq.streams.model.fragments import CONTINUED, CONTINUES, MESSAGE_BYTES_MAX, split
from onceq.streams.model.frames import Frame, FrameKind, body_of, encode
from onceq.streams.model.ops import WaitUntil
from onceq.streams.model.quorum import listed
from tests.streams.bridge.ledgers import Ledger, living
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.source.running import (
    SMALL_PARTS,
    WITHIN_S,
    S,
    cut_short,
    large,
    send_all,
    source,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.streams.source.async_source import AsyncSource


@pytest.fixture
def ledger(conninfo: str, repository: str) -> Ledger:
    return Ledger(conninfo, repository)


async def sent(one: AsyncSource, bodies: list[bytes]) -> None:
    await one.wait_registered(WITHIN_S)
    await send_all(one, bodies)
    await one.wait_stable(WITHIN_S)


# into


@pytest.mark.parametrize("batch", [1, 2, 1_000])
def test_into_has_each_message_once_however_many_numbers_it_takes(
    ledger: Ledger, batch: int
) -> None:
    bodies = [large(n, parts) for n, parts in enumerate([1, 3, 1, 2, 4, 1])]

    async def live() -> None:
        async with running(None) as stores, source(stores.listed(), policy=SMALL_PARTS) as one:
            await sent(one, bodies[:4])
            async with living(ledger.into(stores.listed(), batch=batch)):
                await soon(lambda: ledger.position() == one.next_number)
                await sent(one, bodies[4:])
                await soon(lambda: ledger.position() == one.next_number)
            await sent(one, bodies[1:3])
            async with living(ledger.into(stores.listed(), batch=batch)):
                await soon(lambda: ledger.position() == one.next_number)

    asyncio.run(live())
    assert ledger.effects() == [*bodies, *bodies[1:3]]


def test_a_source_that_dies_within_a_message_does_not_end_into(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there of it is passed, and told, as soon as a later life sends."""
    told: list[Event] = []

    async def live() -> None:
        async with running(None) as stores:
            async with source(stores.listed(), policy=SMALL_PARTS) as one:
                await sent(one, [large(0, 2)])
                cut_short(monkeypatch, 3)
                await sent(one, [large(1, 5)])
                monkeypatch.undo()
            async with living(ledger.into(stores.listed(), on_event=told.append)):
                await soon(lambda: ledger.position() == 2)
                async with source(stores.listed(), policy=SMALL_PARTS) as one:
                    await sent(one, [large(2, 2), large(3, 1)])
                    await soon(lambda: ledger.position() == 8)

    asyncio.run(live())
    assert ledger.effects() == [large(0, 2), large(2, 2), large(3, 1)]
    assert told == [Loss(stream=S, first=2, last=4, why=WhyLost.UNFINISHED)]


def test_the_rest_of_a_message_whose_beginning_was_passed_is_no_loss(ledger: Ledger) -> None:
    """Also in the next life, which is told that it began within a message."""
    rest = [
        Loss(stream=S, first=0, last=6, why=WhyLost.TRIMMED),
        Loss(stream=S, first=7, last=7, why=WhyLost.TRIMMED),
    ]

    async def live() -> None:
        one = ledger.into(listed("127.0.0.1:1"))
        assert await one._begin()
        for loss in rest:
            await one._show(loss)
        await one._effects.close()
        other = ledger.into(listed("127.0.0.1:1"))
        assert await other._begin()
        await other._show(Loss(stream=S, first=8, last=8, why=WhyLost.SKIPPED))
        await other._effects.close()

    asyncio.run(live())
    assert ledger.position() == 9


# by numbers

BODIES = [large(n, parts) for n, parts in enumerate([1, 4, 1, 1, 2, 3, 1])]


def pieces_of(bodies: list[bytes], begin: int = 0) -> list[Piece]:
    """One piece for each number."""
    parts = [one for body in bodies for one in split(body, 10)]
    return [
        Piece(epoch=1, begin=number, end=number + 1, bodies=(body,), flags=flags)
        for number, (body, flags) in enumerate(parts, begin)
    ]


ALL = pieces_of(BODIES)


def read(pieces: list[Piece], begin: int, end: int) -> Iterator[bytes]:
    """Read a range of a log as Spark's task does."""
    wholes = Wholes(end)
    for piece in pieces[begin:]:
        if piece.begin >= end and not wholes.is_open:
            return
        for one in wholes.take(piece):
            assert one.bodies is not None
            assert one.end - one.begin == len(one.bodies)
            yield from one.bodies


@pytest.mark.parametrize("seed", range(50))
def test_ranges_have_each_message_once_wherever_they_are_cut(seed: int) -> None:
    random_ = random.Random(seed)
    cuts = sorted(random_.choices(range(len(ALL) + 1), k=random_.randrange(6)))
    found = [
        body
        for begin, end in itertools.pairwise([0, *cuts, len(ALL)])
        for body in read(ALL, begin, end)
    ]
    assert found == BODIES


def test_several_messages_of_a_piece_are_cut_where_the_range_ends() -> None:
    wholes = Wholes(7)
    plain = Piece(epoch=1, begin=5, end=9, bodies=(b"5", b"6", b"7", b"8"))
    (found,) = wholes.take(plain)
    assert (found.begin, found.end, found.bodies) == (5, 7, (b"5", b"6"))
    assert [*wholes.take(Piece(epoch=1, begin=9, end=10, bodies=(b"9",)))] == []


@pytest.mark.parametrize(
    "then",
    [
        Piece(epoch=1, begin=2, end=3, bodies=None, why="reclaimed"),
        Piece(epoch=2, begin=2, end=3, bodies=(b"other",)),
        Piece(epoch=2, begin=2, end=3, bodies=(b"other",), flags=CONTINUED),
    ],
    ids=["void", "whole", "another"],
)
def test_what_is_unfinished_is_left_out(then: Piece) -> None:
    wholes = Wholes(2)
    first = Piece(epoch=1, begin=1, end=2, bodies=(b"begun",), flags=CONTINUED)
    found = [(wholes.is_open, [*wholes.take(one)]) for one in (first, then)]
    assert found == [(False, []), (True, [])]
    assert not wholes.is_open
    rest = Piece(epoch=2, begin=3, end=4, bodies=(b"rest",), flags=CONTINUES)
    assert [*wholes.take(rest)] == []


def test_what_is_larger_than_a_message_may_be_is_left_out() -> None:
    wholes = Wholes(40)
    body = bytes(MESSAGE_BYTES_MAX // 8)
    both = CONTINUES | CONTINUED
    flags = [CONTINUED, *[both] * 8, CONTINUES]
    given = [
        Piece(epoch=1, begin=n, end=n + 1, bodies=(body,), flags=one) for n, one in enumerate(flags)
    ]
    assert [one for piece in given for one in wholes.take(piece)] == []


UNKNOWN = Tail(0, 0)
FIRST = Epochs(firsts=((1, 0),))


class Store:
    """A store that has a log, and counts how often it is read."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        self.reads: list[int] = []

    def perform(self, op: Any) -> Any:
        assert not isinstance(op, WaitUntil)
        piece = self.pieces[op.ask.begin]
        self.reads.append(op.ask.begin)
        is_void = piece.bodies is None
        frame = Frame(
            kind=FrameKind.VOID if is_void else FrameKind.MESSAGES,
            stream=S,
            epoch=1,
            number=piece.begin,
            stable=0,
            count=1,
            flags=piece.flags,
            body=b"" if piece.bodies is None else body_of(piece.bodies),
        )
        return asks.Range(begin=piece.begin, end=piece.end, frames=1), (encode(frame),)

    def tail(self, begin: int, end: int, known: Tail = UNKNOWN) -> Tail | None:
        asked = Asked(stream=S, begin=begin, end=end, stores=("one",), epochs=FIRST)
        program = tail_of(asked, known, lambda unread: pytest.fail(str(unread)))
        answer = None
        try:
            while True:
                answer = self.perform(program.send(answer))
        except StopIteration as ended:
            found: Tail | None = ended.value
            return found


def test_the_tail_is_where_a_message_begins_that_goes_on() -> None:
    """Numbers 0; 1 to 4; 5; 6; 7, 8; 9 to 11; 12."""
    store = Store(ALL)
    found = [store.tail(0, end) for end in range(1, len(ALL) + 1)]
    wholes = [1, 1, 1, 1, 5, 6, 7, 7, 9, 9, 9, 12, 13]
    assert found == [Tail(whole, end) for end, whole in enumerate(wholes, 1)]
    assert store.tail(3, 4) == Tail(3, 4), "nothing before is looked at"


def test_nothing_is_read_twice_to_find_the_tail() -> None:
    store = Store(ALL)
    known = Tail(0, 0)
    for end in range(1, len(ALL) + 1):
        known = store.tail(0, end, known) or known
    assert known == Tail(13, 13)
    assert store.reads == [*range(13)]


def test_what_goes_on_a_void_number_is_no_message() -> None:
    void = Piece(epoch=1, begin=9, end=10, bodies=None, why="reclaimed")
    store = Store([*ALL[:9], void, *ALL[10:]])
    assert store.tail(0, 11) == Tail(10, 11)


def test_stores_that_do_not_tell_leave_the_tail_unknown() -> None:
    asked = Asked(stream=S, begin=0, end=3, stores=("one",), epochs=FIRST)
    unread: list[Unread] = []
    program = tail_of(asked, Tail(0, 0), unread.append)
    next(program)
    with pytest.raises(StopIteration) as ended:
        program.send(None)
    assert ended.value.value is None
    assert [(one.number, *one.why) for one in unread] == [(2, "one")]
