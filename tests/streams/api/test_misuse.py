"""A handler that would do nothing is refused: its message is not acknowledged, and comes again."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.errors import HandlerMisuse, InvalidValue
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, Shows, read, sent, town

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.streams.api.towns import Town

AT = "127.0.0.1:7401"
SESSIONS = itertools.count(READER)


@pytest.fixture(scope="module")
def stores() -> Iterator[Town]:
    """Stores with two messages of a stream; each test has a session of its own."""
    with town(names="a") as made, streams.open() as context:
        sent(context, made.at("a"), [b"0", b"1"])
        yield made


@pytest.fixture
def session() -> int:
    return next(SESSIONS)


async def coroutine(_: Any) -> None:
    raise AssertionError("nobody awaits it")


def generator(_: Any) -> Iterator[int]:
    yield 1
    raise AssertionError("nobody iterates over it")


async def async_generator(_: Any) -> AsyncIterator[int]:
    yield 1
    raise AssertionError("nobody iterates over it")


class Called:
    """An object that is called as a function would be."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, one: Any) -> Any:
        return self.function(one)


class CalledAsync:
    async def __call__(self, _: Any) -> None:
        raise AssertionError("nobody awaits it")


async def returns(function: Callable[[Any], Any], one: Any) -> Any:
    return function(one)


SEEN = [
    (coroutine, "is `async def`, and nobody awaits it here: make it a plain `def`"),
    (CalledAsync(), "is `async def`"),
    (CalledAsync().__call__, "is `async def`"),
    (partial(coroutine), "is `async def`"),
    (generator, "yields, and nobody iterates"),
    (async_generator, "yields, and nobody iterates"),
]
RETURNED = [
    (coroutine, "what nobody awaits"),
    (generator, "a generator, and nobody iterates"),
    (async_generator, "a generator, and nobody iterates"),
]


@pytest.mark.parametrize(("show", "says"), SEEN)
def test_a_handler_that_would_do_nothing_is_refused_where_it_is_given(show: Any, says: str) -> None:
    with streams.open(session_id=1) as context, pytest.raises(HandlerMisuse, match=f"show {says}"):
        context.receiver(RAW, show, at=AT)


@pytest.mark.parametrize("show", [generator, async_generator])
def test_a_handler_for_asyncio_may_be_awaited_but_not_yield(show: Any) -> None:
    context = streams.open_async(session_id=1)
    with pytest.raises(HandlerMisuse, match="show yields"):
        context.receiver(RAW, show, at=AT)
    for awaited in (coroutine, CalledAsync(), partial(coroutine)):
        context.receiver(RAW, awaited, at=AT)


@pytest.mark.parametrize(("function", "says"), RETURNED)
def test_what_a_handler_returned_and_nobody_runs_is_not_acknowledged(
    stores: Town, session: int, function: Any, says: str
) -> None:
    with streams.open(session_id=session) as context:
        receiver = context.receiver(RAW, Called(function), at=stores.at("a"))
        with pytest.raises(HandlerMisuse, match=f"show returned {says}"):
            receiver.run()
        assert receiver.statistics().acknowledged_below == 0
        assert stores.positions(f"session {session:x}", "a") == [0]
        assert read(context, RAW, 0, at=stores.at("a")).numbers() == [0]


@pytest.mark.parametrize(
    ("show", "says"),
    [
        (Called(generator), "a generator"),
        (Called(async_generator), "a generator"),
        (partial(returns, coroutine), "what nobody awaits"),
        (partial(returns, generator), "a generator"),
        (partial(returns, async_generator), "a generator"),
    ],
)
def test_likewise_for_asyncio(stores: Town, session: int, show: Any, says: str) -> None:
    async def run() -> None:
        async with streams.open_async(session_id=session) as context:
            receiver = context.receiver(RAW, show, at=stores.at("a"))
            with pytest.raises(HandlerMisuse, match=f"show returned {says}"):
                await receiver.run()
            assert stores.positions(f"session {session:x}", "a") == [0]
            shows = Shows(stop_at=1)
            shows.receiver = context.receiver(RAW, shows, at=stores.at("a"))
            await shows.receiver.run()
            assert shows.numbers() == [0, 1]

    asyncio.run(run())


def test_a_plain_function_for_asyncio_may_return_what_is_awaited(
    stores: Town, session: int
) -> None:
    shows = Shows(stop_at=1)

    async def later(message: streams.Message[Any]) -> None:
        await asyncio.sleep(0)
        shows(message)

    async def run() -> None:
        async with streams.open_async(session_id=session) as context:
            shows.receiver = context.receiver(RAW, Called(later), at=stores.at("a"))
            await shows.receiver.run()

    asyncio.run(run())
    assert shows.numbers() == [0, 1]


# events


@pytest.mark.parametrize(("on_event", "says"), SEEN)
def test_a_handler_of_events_that_would_do_nothing_is_refused(on_event: Any, says: str) -> None:
    with streams.open(session_id=1) as context:
        own: Any
        for own in (context, streams.open_async(session_id=1)):
            with pytest.raises(InvalidValue, match=f"on_event {says}"):
                own.source(RAW, stores=AT, on_event=on_event)
            with pytest.raises(InvalidValue, match=f"on_event {says}"):
                own.receiver(RAW, lambda _: None, at=AT, on_event=on_event)
    for make in (streams.open, streams.open_async):
        with pytest.raises(InvalidValue, match=f"on_event {says}"):
            make(on_event=on_event)


@pytest.mark.parametrize(("function", "says"), RETURNED)
def test_what_a_handler_of_events_returned_and_nobody_runs_is_told(
    stores: Town, session: int, function: Any, says: str
) -> None:
    with streams.open(session_id=session) as context:
        receiver = context.receiver(
            RAW, lambda _: None, at=stores.at("a"), on_event=Called(function)
        )
        with pytest.raises(HandlerMisuse, match=f"on_event returned {says}"):
            receiver.run()


def test_a_handler_of_events_may_return_a_task() -> None:
    """It runs by itself: nobody needs to await it."""
    tasks: list[Any] = []

    async def run(at: str) -> None:
        async def heard(_: Any) -> None:
            await asyncio.sleep(0)

        def begin(event: Any) -> Any:
            tasks.append(asyncio.ensure_future(heard(event)))
            return tasks[-1]

        async with streams.open_async(session_id=SENDER + 1, on_event=begin) as context:
            async with context.source(RAW, stores=at) as source:
                await source.send(b"2")
                await source.wait_stable(WITHIN_S)
            await asyncio.gather(*tasks)

    with town(names="a") as own:
        asyncio.run(run(own.at("a")))
    assert tasks
