"""Late join that a source turns off: each life of a receiver begins with what is next."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from onceq import streams
from tests.streams.api.towns import READER, SENDER, WITHIN_S, Heard, Shows, read, soon, town

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.streams.api.towns import Town

BEFORE = 5


@pytest.fixture(scope="module")
def shared() -> Iterator[Town]:
    with town() as stores:
        yield stores


def filled(
    topic: streams.Topic[bytes], stores: Town, n: int, *, late_join: bool
) -> list[streams.OptionsChanged]:
    """Send some messages in a life of the source; return what it was told of its options."""
    heard = Heard()
    with (
        streams.open(session_id=SENDER) as context,
        context.source(topic, stores=stores.at(), late_join=late_join, on_event=heard) as source,
    ):
        for number in range(n):
            source.send(b"%d" % number)
        source.wait_stable(WITHIN_S)
    return heard.of(streams.OptionsChanged)


def seen_of_two(
    topic: streams.Topic[bytes], stores: Town, *, begin: int, late_join: bool = False
) -> tuple[list[int], Heard]:
    """Let a receiver register before two messages more are sent; return what it saw."""
    heard, shows = Heard(), Shows(stop_at=begin + 1)
    with streams.open(session_id=READER) as context:
        shows.receiver = context.receiver(topic, shows, at=stores.at("b"), on_event=heard)
        running = threading.Thread(target=shows.receiver.run)
        running.start()
        soon(lambda: bool(heard.of(streams.RegistrationComplete)))
        filled(topic, stores, 2, late_join=late_join)
        running.join(WITHIN_S)
        assert not running.is_alive()
    return shows.numbers(), heard


def test_late_join_that_its_source_turns_off_begins_with_what_is_next(
    request: pytest.FixtureRequest, shared: Town
) -> None:
    topic: streams.Topic[bytes] = streams.Topic(request.node.name)
    filled(topic, shared, BEFORE, late_join=False)
    numbers, heard = seen_of_two(topic, shared, begin=BEFORE)
    assert numbers == [5, 6]
    (left_out,) = heard.of(streams.Loss)
    assert (left_out.first, left_out.last, left_out.why) == (0, 4, streams.WhyLost.SKIPPED)


def test_it_turns_recovery_off_too(request: pytest.FixtureRequest, shared: Town) -> None:
    """A receiver that was away gets nothing of what was sent meanwhile, and is told so."""
    topic: streams.Topic[bytes] = streams.Topic(request.node.name)
    filled(topic, shared, 2, late_join=True)
    with streams.open(session_id=READER) as context:
        assert read(context, topic, 1, at=shared.at("a")).numbers() == [0, 1]
    changed = filled(topic, shared, 3, late_join=False)
    assert [(one.option, one.before, one.now) for one in changed] == [
        ("late_join", "True", "False")
    ]
    numbers, heard = seen_of_two(topic, shared, begin=BEFORE)
    assert numbers == [5, 6]
    (left_out,) = heard.of(streams.Loss)
    assert (left_out.first, left_out.last) == (2, 4)


def test_what_a_receiver_wishes_is_not_asked_then(
    request: pytest.FixtureRequest, shared: Town
) -> None:
    topic: streams.Topic[bytes] = streams.Topic(request.node.name)
    filled(topic, shared, BEFORE, late_join=False)
    shows, heard = Shows(), Heard()

    def choose(_: streams.RecoveryInfo) -> int:
        raise AssertionError("it was asked")

    registered = asyncio.Event()

    def hear(event: streams.Event) -> None:
        heard(event)
        if isinstance(event, streams.RegistrationComplete):
            registered.set()

    async def live() -> None:
        async with streams.open_async(session_id=READER) as context:
            receiver = context.receiver(
                topic, shows, at=shared.at("a"), choose=choose, on_event=hear
            )
            running = asyncio.ensure_future(receiver.run())
            async with asyncio.timeout(WITHIN_S):
                await registered.wait()
            receiver.stop()
            await running

    asyncio.run(live())
    (complete,) = heard.of(streams.RegistrationComplete)
    assert complete.next_number == BEFORE


def test_turned_on_again_receivers_get_what_they_missed(
    request: pytest.FixtureRequest, shared: Town
) -> None:
    topic: streams.Topic[bytes] = streams.Topic(request.node.name)
    filled(topic, shared, 3, late_join=False)
    filled(topic, shared, 2, late_join=True)
    with streams.open(session_id=READER) as context:
        assert read(context, topic, 4, at=shared.at("a")).numbers() == [0, 1, 2, 3, 4]
