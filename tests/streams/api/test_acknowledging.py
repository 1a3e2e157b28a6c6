"""What a handler acknowledges, and when: by returning, by a token, or not."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.errors import IllegalState, InvalidValue
from tests.streams.api.towns import RAW, READER, Shows, read, sent, soon, town

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.streams.api.towns import Town

KEY = f"session {READER:x}"
Raw = streams.Message[bytes]


@pytest.fixture(scope="module")
def shared() -> Iterator[Town]:
    with town(names="a") as stores:
        yield stores


@pytest.fixture
def at(shared: Town) -> str:
    return shared.at("a")


@pytest.fixture
def context() -> Iterator[streams.StreamContext]:
    with streams.open() as made:
        yield made


class Mine(Exception):
    """An application's own error."""


def topic_of(request: pytest.FixtureRequest) -> streams.Topic[bytes]:
    """A stream of the test's own in the stores that all share."""
    return streams.Topic(request.node.name)


def filled(context: streams.StreamContext, topic: streams.Topic[bytes], at: str, n: int) -> None:
    with context.source(topic, stores=at, session_id=9) as source:
        for number in range(n):
            source.send(b"%d" % number)
        source.wait_stable(60)


def numbers_of_next_life(
    context: streams.StreamContext, topic: streams.Topic[bytes], at: str, last: int
) -> list[int]:
    return read(context, topic, last, at=at, session_id=READER).numbers()


def test_what_a_handler_raises_ends_the_life_and_comes_again(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    topic = topic_of(request)
    filled(context, topic, at, 10)

    def show(message: Raw) -> None:
        if message.number == 6:
            raise Mine

    with pytest.raises(Mine):
        context.receiver(topic, show, at=at, session_id=READER).run()
    assert numbers_of_next_life(context, topic, at, 9) == [6, 7, 8, 9]


def test_what_was_retained_is_acknowledged_by_other_threads_up_to_the_first_gap(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    """UM's example: of 0, 1, 5, 2, 4 the 2 is acknowledged; then 3 to 6 come again."""
    topic = topic_of(request)
    filled(context, topic, at, 7)
    tokens: dict[int, streams.Token] = {}

    def finish() -> None:
        for number in (0, 1, 5, 2, 4):
            assert tokens[number].acknowledge()
        receiver.stop()

    def show(message: Raw) -> None:
        tokens[message.number] = message.retain()
        if message.number == 6:
            thread.start()

    thread = threading.Thread(target=finish)
    receiver = context.receiver(topic, show, at=at, session_id=READER)
    receiver.run()
    thread.join()
    assert not tokens[3].acknowledge(), "the life has ended: nobody will be told"
    assert numbers_of_next_life(context, topic, at, 6) == [3, 4, 5, 6]


def test_explicitly_each_token_covers_all_before_it_and_they_ascend(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    """UM's example: 5, 10, 15."""
    topic = topic_of(request)
    filled(context, topic, at, 20)
    found: list[int] = []

    def show(message: Raw) -> None:
        tokens[message.number] = message.retain()
        if message.number == 19:
            for number in (5, 10, 15):
                tokens[number].acknowledge()
                soon(lambda n=number: receiver.statistics().acknowledged_below == n + 1)  # type: ignore[misc] # a default
                found.append(number)
            with pytest.raises(InvalidValue, match="ascending"):
                tokens[12].acknowledge()
            receiver.stop()

    tokens: dict[int, streams.Token] = {}
    receiver = context.receiver(topic, show, at=at, session_id=READER, explicit_ack_only=True)
    receiver.run()
    assert found == [5, 10, 15]
    assert numbers_of_next_life(context, topic, at, 19) == [16, 17, 18, 19]


def test_explicitly_nothing_is_acknowledged_by_a_return(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    topic = topic_of(request)
    filled(context, topic, at, 3)
    first = read(context, topic, 2, at=at, session_id=READER, explicit_ack_only=True)
    assert first.numbers() == [0, 1, 2]
    assert numbers_of_next_life(context, topic, at, 2) == [0, 1, 2]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_is_retained_before_its_handler_returns(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str, *, is_async: bool
) -> None:
    topic = topic_of(request)
    filled(context, topic, at, 2)
    seen: list[Raw] = []

    def show(message: Raw) -> None:
        for one in seen:
            with pytest.raises(IllegalState, match="has returned"):
                one.retain()
        seen.append(message)
        if message.number == 1:
            stop[0]()

    stop: list[Callable[[], Any]] = []

    async def run() -> None:
        async with streams.open_async(session_id=READER) as own:
            receiver = own.receiver(topic, show, at=at)
            stop.append(receiver.stop)
            await receiver.run()

    if is_async:
        asyncio.run(run())
    else:
        receiver = context.receiver(topic, show, at=at, session_id=READER)
        stop.append(receiver.stop)
        receiver.run()
    assert [one.number for one in seen] == [0, 1]


def test_for_asyncio_what_was_retained_waits_for_its_token(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    topic = topic_of(request)
    filled(context, topic, at, 5)

    async def run() -> None:
        async with streams.open_async(session_id=READER) as own:
            tokens: list[streams.Token] = []

            async def show(message: Raw) -> None:
                await asyncio.sleep(0)
                if message.number in {1, 3}:
                    tokens.append(message.retain())
                if message.number == 4:
                    tokens[0].acknowledge()
                    receiver.stop()

            receiver = own.receiver(topic, show, at=at)
            await receiver.run()

    asyncio.run(run())
    assert numbers_of_next_life(context, topic, at, 4) == [3, 4]


def test_a_call_back_begins_where_it_says_unless_it_says_nothing_new(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    """UM's example: 6 is the last, at most 2 are asked for, 1 is next: 4."""
    topic = topic_of(request)
    filled(context, topic, at, 7)
    read(context, topic, 0, at=at, session_id=READER)
    seen: list[streams.RecoveryInfo] = []

    def same(known: streams.RecoveryInfo) -> int:
        seen.append(known)
        return known.low

    given: dict[str, Any] = {"at": at, "session_id": READER, "retransmit_request_maximum": 2}
    heard: list[streams.Event] = []
    shows = read(context, topic, 6, choose=same, on_event=heard.append, **given)
    assert seen == [streams.RecoveryInfo(high=6, low_rxreq_max=4, low=1)]
    assert shows.numbers() == [4, 5, 6]
    (loss,) = [one for one in heard if isinstance(one, streams.Loss)]
    assert (loss.first, loss.last, loss.why) == (1, 3, streams.WhyLost.SKIPPED)
    again = read(context, topic, 6, choose=lambda _: 5, at=at, session_id=READER)
    assert again.numbers() == [5, 6]


def test_without_late_join_a_life_begins_with_what_is_next(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    topic = topic_of(request)
    filled(context, topic, at, 5)
    heard: list[streams.Event] = []
    shows = Shows(stop_at=6)
    shows.receiver = context.receiver(
        topic, shows, at=at, session_id=READER, use_late_join=False, on_event=heard.append
    )
    running = threading.Thread(target=shows.receiver.run)
    running.start()
    soon(lambda: any(isinstance(one, streams.RegistrationComplete) for one in heard))
    filled(context, topic, at, 2)
    running.join()
    assert shows.numbers() == [5, 6]


def test_one_without_a_session_is_known_by_the_id_that_it_chose(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    topic = topic_of(request)
    filled(context, topic, at, 5)
    first = read(context, topic, 2, at=at, regid=4711)
    assert first.receiver.statistics().regids == {at: 4711}
    assert read(context, topic, 4, at=at, regid=4711).numbers() == [3, 4]
    assert read(context, topic, 4, at=at, regid=4712).numbers() == [0, 1, 2, 3, 4]


def test_a_source_of_another_session_is_another_stream(
    request: pytest.FixtureRequest, context: streams.StreamContext, at: str
) -> None:
    topic = topic_of(request)
    filled(context, topic, at, 2)
    with context.source(topic, stores=at, session_id=10) as source:
        source.send(b"of another")
        source.wait_stable(60)
    with pytest.raises(InvalidValue, match=r"of session 0x9, .* of session 0xa: name one"):
        read(context, topic, 0, at=at, session_id=READER)
    one = read(context, topic, 0, at=at, session_id=READER, source_session_id=10)
    assert one.values() == [b"of another"]


def test_the_session_of_an_object_overrides_that_of_its_context(shared: Town) -> None:
    at = shared.at("a")
    with streams.open(session_id=READER) as context:
        sent(context, at, [b"1", b"2"])
        assert read(context, RAW, 1, at=at, session_id=77).numbers() == [0, 1]
        assert read(context, RAW, 0, at=at).numbers() == [0]
        assert read(context, RAW, 1, at=at).numbers() == [1]
