"""A source as threads use it: what waits, what is raised, and what its application is told."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.errors import DeadlineExceeded
from tests.parts import wait_until
from tests.streams.api.towns import RAW, SENDER, WITHIN_S, Heard, read, soon, town

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def context() -> Any:
    with streams.open(session_id=SENDER) as made:
        yield made


def test_a_send_without_a_quorum_is_tried_again_until_it_is_back(
    tmp_path: Path, context: streams.StreamContext
) -> None:
    """UM's retry loop: the send fails, nothing was sent, and a later one succeeds."""
    with town(tmp_path) as stores:
        heard = Heard()
        with context.source(RAW, stores=stores.at(), on_event=heard) as source:
            source.send(b"0")
            source.wait_stable(WITHIN_S)
            stores.end("bc")
            soon(lambda: not source.statistics().is_registered)
            with pytest.raises(streams.NotRegistered, match="no stable set"):
                source.send(b"lost")
            back = threading.Thread(target=lambda: stores.start("bc"))
            back.start()
            while True:
                try:
                    assert source.send(b"1") == 1
                    break
                except streams.NotRegistered:
                    source.wait_registered(WITHIN_S)
            back.join()
            source.wait_stable(WITHIN_S)
        gone = [event.store for event in heard.of(streams.StoreUnresponsive)]
        assert set(gone) >= set(stores.at("bc").split())
        shows = read(context, RAW, 1, at=stores.at("b"))
        assert shows.values() == [b"0", b"1"]


def test_a_source_may_begin_before_its_stores(context: streams.StreamContext) -> None:
    with town() as stores:
        at = stores.at()
        stores.end("abc")
        with context.source(RAW, stores=at, within_s=0.0) as source:
            with pytest.raises(streams.NotRegistered):
                source.send(b"0")
            with pytest.raises(streams.NotRegistered):
                assert source.next_number
            with pytest.raises(DeadlineExceeded, match="no stable set"):
                source.wait_registered(0.01)
            stores.start("abc")
            source.wait_registered(WITHIN_S)
            assert source.send(b"0") == 0


NOTIFIED: Any = {"flight_size": 1, "flight_size_behavior": "notify"}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_full_flight_is_waited_for_or_told(*, is_async: bool) -> None:
    told: list[streams.Event] = []

    async def run(at: str) -> None:
        async with streams.open_async(session_id=SENDER) as own:
            async with own.source(RAW, stores=at, on_event=told.append, **NOTIFIED) as source:
                assert [await source.send(b"%d" % n) for n in range(2)] == [0, 1]
                await source.wait_stable(WITHIN_S)
            async with own.source(RAW, stores=at, flight_size=1) as source:
                assert [await source.send(b"%d" % n) for n in range(2, 9)] == [*range(2, 9)]
                await source.wait_stable(WITHIN_S)

    def in_threads(at: str) -> None:
        with streams.open(session_id=SENDER) as own:
            with own.source(RAW, stores=at, on_event=told.append, **NOTIFIED) as source:
                assert [source.send(b"%d" % n) for n in range(2)] == [0, 1]
                source.wait_stable(WITHIN_S)
            with own.source(RAW, stores=at, flight_size=1) as source:
                assert [source.send(b"%d" % n) for n in range(2, 9)] == [*range(2, 9)]
                source.wait_stable(WITHIN_S)

    with town() as stores:
        if is_async:
            asyncio.run(run(stores.at()))
        else:
            in_threads(stores.at())
        logs = [stores.cluster.log(name, stream_of(stores)) for name in "abc"]
        assert [b"%d" % n for n in range(9)] in logs
    assert any(isinstance(one, streams.FlightSize) for one in told)


def stream_of(stores: Any) -> int:
    (stream,) = stores.cluster.stores["a"].catalogue.streams
    return int(stream)


def test_many_threads_send_in_one_order(context: streams.StreamContext) -> None:
    with town() as stores, context.source(RAW, stores=stores.at(), flight_size=50) as source:
        taken: list[tuple[int, bytes]] = []

        def send(who: int) -> None:
            for n in range(200):
                text = b"%d %d" % (who, n)
                taken.append((source.send(text), text))

        threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        source.wait_stable(WITHIN_S)
        shows = read(context, RAW, 799, at=stores.at("c"), session_id=5)
        assert sorted(taken) == [(one.number, one.body) for one in shows.shown]


def test_what_happens_to_messages_is_told(context: streams.StreamContext) -> None:
    heard = Heard()
    with town() as stores:
        with context.source(RAW, stores=stores.at(), on_event=heard, flight_size=1) as source:
            for n in range(3):
                assert source.send(b"%d" % n, given=f"mine {n}") == n
                assert heard.of(streams.SequenceNumbers)[-1].given == f"mine {n}"
            source.wait_stable(WITHIN_S)
            wait_until(lambda: any(one.last == 2 for one in heard.of(streams.Reclaimed)))
            epoch = source.statistics().epoch
        (complete,) = heard.of(streams.RegistrationComplete)
        assert (complete.next_number, complete.reported, complete.epoch) == (0, -1, epoch)
        stable = [(one.first, one.last) for one in heard.of(streams.Stable)]
        assert [n for first, last in stable for n in range(first, last + 1)] == [0, 1, 2]
        released = [(one.first, one.last, one.forced) for one in heard.of(streams.Reclaimed)]
        assert [n for first, last, _ in released for n in range(first, last + 1)] == [0, 1, 2]
        assert not any(forced for _, _, forced in released)


def test_a_later_life_takes_over_and_the_former_one_is_told(
    context: streams.StreamContext,
) -> None:
    heard = Heard()
    with (
        town() as stores,
        context.source(RAW, stores=stores.at(), on_event=heard, activity_timeout_ms=0) as zombie,
    ):
        zombie.send(b"0")
        zombie.wait_stable(WITHIN_S)
        with context.source(RAW, stores=stores.at()) as source:
            assert source.next_number == 1
            with pytest.raises(streams.SourceSucceeded):
                send_for_ever(zombie)
            soon(lambda: len(heard.of(streams.SourceFenced)) == 1)
            with pytest.raises(streams.SourceSucceeded):
                zombie.wait_registered(WITHIN_S)
            assert source.send(b"1") == 1
            source.wait_stable(WITHIN_S)
        assert read(context, RAW, 1, at=stores.at("a")).values() == [b"0", b"1"]


def send_for_ever(source: streams.Source[bytes]) -> None:
    while True:
        source.send(b"of a former life")


def test_the_list_changes_while_it_sends(context: streams.StreamContext) -> None:
    heard = Heard()
    with town(names="abcd") as stores:
        with context.source(RAW, stores=stores.at("abc"), on_event=heard) as source:
            source.send(b"0")
            source.want(stores.at("abd"))
            soon(lambda: source.statistics().stores == stores.at("abd"))
            source.send(b"1")
            source.wait_stable(WITHIN_S)
            soon(lambda: stores.cluster.log("d", source.statistics().stream) == [b"0", b"1"])
        assert len(heard.of(streams.RegistrationComplete)) >= 2


class Mine(Exception):
    """An application's own error."""


def test_what_a_handler_of_events_raises_is_raised_at_the_end(
    context: streams.StreamContext,
) -> None:
    def on_event(event: streams.Event) -> None:
        if isinstance(event, streams.Stable):
            raise Mine

    with town(names="a") as stores:
        source = context.source(RAW, stores=stores.at("a"), on_event=on_event)
        source.__enter__()
        source.send(b"0")
        source.wait_stable(WITHIN_S)
        with pytest.raises(Mine):
            source.close()
        source.close()


def test_a_handler_of_events_may_send_and_wait(context: streams.StreamContext) -> None:
    def on_event(event: streams.Event) -> None:
        if isinstance(event, streams.Stable) and event.first < 5:
            source.send(b"%d" % (event.last + 1))

    with town(names="a") as stores:
        source = context.source(RAW, stores=stores.at("a"), on_event=on_event, flight_size=1)
        with source:
            source.send(b"0")
            soon(lambda: source.stable_below >= 6)


def test_a_new_stream_begins_with_a_quorum_by_choice_alone(
    tmp_path: Path, context: streams.StreamContext
) -> None:
    """Its third store is silent; when that is back, it gets what was sent."""
    with town(tmp_path) as stores:
        at = stores.at()
        stores.end("c")
        with (
            context.source(RAW, stores=at, within_s=3.0) as source,
            pytest.raises(streams.NotRegistered),
        ):
            source.send(b"0")
        with context.source(RAW, stores=at, within_s=WITHIN_S, create="quorum") as source:
            assert source.send(b"0") == 0
            source.wait_stable(WITHIN_S)
            stores.start("c")
            stream = source.statistics().stream
            soon(lambda: stores.cluster.having(stream, [b"0"]) == {*"abc"})
            assert source.send(b"1") == 1
            source.wait_stable(WITHIN_S)


def test_the_choice_of_a_quorum_begins_nothing_anew_that_a_store_knows(
    tmp_path: Path, context: streams.StreamContext
) -> None:
    with town(tmp_path) as stores:
        at = stores.at()
        with context.source(RAW, stores=at) as source:
            source.send(b"0")
            source.wait_stable(WITHIN_S)
        stores.end("ab")
        for name in "ab":
            stores.cluster.wipe(name)
        stores.start("ab")
        with (
            context.source(RAW, stores=at, within_s=6.0, create="quorum") as source,
            pytest.raises(streams.NotRegistered),
        ):
            source.send(b"anew")
