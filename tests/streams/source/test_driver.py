"""A source over TCP to real stores: what it sends is stable, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from onceq.errors import DeadlineExceeded, IllegalState, InvalidValue
from onceq.streams.errors import FlightFull, NotRegistered, SourceSucceeded
from onceq.streams.model import asks, events
from onceq.streams.model.frames import Splitter, decode
from onceq.streams.model.quorum import listed
from onceq.streams.net.address import Address
from onceq.streams.net.wire import answer_frame
from onceq.streams.source.epochs import Timing
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.source.running import (
    WITHIN_S,
    Heard,
    S,
    is_settled,
    send_all,
    source,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceq.streams.source.async_source import AsyncSource


async def registered(one: AsyncSource) -> AsyncSource:
    await one.start()
    await one.wait_registered(WITHIN_S)
    return one


async def refused(send: Callable[[], int], kind: type[Exception]) -> None:
    """Send until that is refused as it should be; before that, it may lack a stable set."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                send()
            except kind:
                return
            except NotRegistered:
                pass
            await asyncio.sleep(0.01)


def test_what_is_sent_is_stable_in_order_and_once_at_three_disks(tmp_path: Path) -> None:
    async def run() -> None:
        heard = Heard()
        async with running(tmp_path) as stores:
            async with source(stores.listed(), heard, flight=100) as one:
                await one.wait_registered(WITHIN_S)
                assert await send_all(one, texts(2_000)) == [*range(2_000)]
                await one.wait_stable(WITHIN_S)
                assert one.stable_below == one.next_number == 2_000
                await soon(lambda: stores.having(S, texts(2_000)) == set("abc"))
            assert stores.links() == 0
        stable = [(event.first, event.last) for event in heard.of(events.Stable)]
        assert [n for first, last in stable for n in range(first, last + 1)] == [*range(2_000)]

    asyncio.run(run())


def test_a_store_that_was_killed_gets_what_it_lacks_when_it_is_back(tmp_path: Path) -> None:
    async def run() -> None:
        heard = Heard()
        async with running(tmp_path) as stores, source(stores.listed(), heard) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(100))
            await one.wait_stable(WITHIN_S)
            await stores.end("c")
            await send_all(one, texts(100, 100))
            await one.wait_stable(WITHIN_S)
            await stores.start("c")
            await soon(lambda: stores.log("c", S) == texts(200))
            await stores.end("a")
            await send_all(one, texts(100, 200))
            await one.wait_stable(WITHIN_S)
            assert stores.log("c", S) == stores.log("b", S) == texts(300)
        gone = {event.store for event in heard.of(events.StoreUnresponsive)}
        assert gone >= {str(stores.addresses[name]) for name in "ac"}

    asyncio.run(run())


def test_another_life_goes_on_behind_the_last_message(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as stores:
            for life in range(3):
                async with source(stores.listed()) as one:
                    await one.wait_registered(WITHIN_S)
                    assert one.next_number == 10 * life
                    await send_all(one, texts(10, 10 * life))
                    await one.wait_stable(WITHIN_S)
                await stores.end("abc")
                await stores.start("abc")
            assert len(stores.having(S, texts(30))) >= 2

    asyncio.run(run())


def test_a_former_life_that_still_sends_is_fenced(tmp_path: Path) -> None:
    async def run() -> None:
        heard = Heard()
        async with running(tmp_path) as stores:
            zombie = await registered(source(stores.listed(), heard))
            await send_all(zombie, texts(5))
            await zombie.wait_stable(WITHIN_S)
            async with source(stores.listed()) as one:
                await one.wait_registered(WITHIN_S)
                await refused(lambda: zombie.send(b"zombie"), SourceSucceeded)
                await soon(lambda: zombie._driver._is_over)
                with pytest.raises(SourceSucceeded):  # in a thread that did not know it yet
                    zombie._driver.take(b"zombie", asyncio.get_running_loop())
                with pytest.raises(SourceSucceeded):
                    await zombie.wait_room(1, WITHIN_S)
                await soon(lambda: len(heard.of(events.SourceFenced)) == 1)
                await zombie.close()
                await send_all(one, texts(5, 5))
                await one.wait_stable(WITHIN_S)
            assert len(stores.having(S, texts(10))) >= 2
            assert not any(b"zombie" in stores.log(name, S) for name in "abc")

    asyncio.run(run())


def test_without_a_stable_set_nothing_is_sent_and_it_goes_on_by_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(5))
            await one.wait_stable(WITHIN_S)
            await stores.end("bc")
            await soon(lambda: one._core.is_starved)
            with pytest.raises(NotRegistered):
                one.send(b"never")
            with pytest.raises(NotRegistered):
                await one.wait_room(1, WITHIN_S)
            assert one.next_number == 5
            await stores.start("b")
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(5, 5))
            await one.wait_stable(WITHIN_S)
            assert stores.log("a", S) == stores.log("b", S) == texts(10)

    asyncio.run(run())


def test_it_begins_when_the_stores_do() -> None:
    async def run() -> None:
        heard = Heard()
        async with running(None) as stores:
            await stores.end("abc")
            async with source(stores.listed(), heard) as one:
                with pytest.raises(NotRegistered):
                    one.send(b"never")
                with pytest.raises(NotRegistered):
                    assert one.next_number
                with pytest.raises(DeadlineExceeded, match="no stable set"):
                    await one.wait_registered(0.3)
                all_of_them = sorted(str(at) for at in stores.addresses.values())
                await soon(lambda: missing(heard) == all_of_them)
                await stores.start("abc")
                await one.wait_registered(WITHIN_S)
                assert one.send(b"first") == 0
                await one.wait_stable(WITHIN_S)

    asyncio.run(run())


def missing(heard: Heard) -> list[str]:
    return [event.store for event in heard.of(events.RegistrationError)]


def test_a_flight_that_is_full_has_room_when_messages_are_stable() -> None:
    async def run() -> None:
        async with running(None) as stores, source(stores.listed(), flight=2) as one:
            await one.wait_registered(WITHIN_S)
            assert [one.send(b"0"), one.send(b"1")] == [0, 1]
            with pytest.raises(FlightFull):
                one.send(b"2")
            await one.wait_room(1, WITHIN_S)
            assert one.send(b"2") == 2
            with pytest.raises(DeadlineExceeded, match="not all is stable"):
                await one.wait_stable(0.0)

    asyncio.run(run())


def test_a_list_is_changed_while_it_sends(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, "abcd") as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(5))
            await soon(lambda: stores.having(S, texts(5)) == set("abc"))
            own = stores.listed("abd")
            one.want(own)
            await soon(lambda: is_settled(one) and one._core.needed == (own,))
            await send_all(one, texts(5, 5))
            await one.wait_stable(WITHIN_S)
            await soon(lambda: stores.log("d", S) == texts(10))
            left = str(stores.addresses["c"])
            await soon(lambda: not one._driver._asker.is_linked(left))
            assert stores.having(S, texts(5)) == {"c"}
            with pytest.raises(InvalidValue, match="certificates"):
                one.want(listed("192.0.2.1:7401"))

    asyncio.run(run())


def test_a_link_on_which_an_admission_has_no_answer_is_closed() -> None:
    """What was asked has no effect later, when the source has gone on."""

    async def run() -> None:
        closed = asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 16):
                    pass
            writer.close()
            closed.set()

        timing = Timing(ask_s=1.0, copy_s=0.2, interval_s=0.1, retry_s=0.05)
        async with running(None) as stores, source(stores.listed(), timing=timing) as one:
            await one.wait_registered(WITHIN_S)
            await stores.end("c")
            at = stores.addresses["c"]
            mute = await asyncio.start_server(listen, at.host, at.port)
            async with asyncio.timeout(WITHIN_S):
                await closed.wait()
            mute.close()
            await stores.start("c")
            assert one.send(b"0") == 0
            await one.wait_stable(WITHIN_S)
            await soon(lambda: stores.having(S, [b"0"]) == set("abc"))

    asyncio.run(run())


def test_a_store_that_has_much_to_copy_is_waited_for() -> None:
    """Closing its link after a while would have it begin to copy anew, for ever."""

    async def run() -> None:
        async def copies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            splitter = Splitter()
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    for one in splitter.feed(data):
                        await asyncio.sleep(0.4)
                        answer = asks.Holding(epoch=1, end=0)
                        writer.write(answer_frame(S, decode(one).number, answer))
            writer.close()

        timing = Timing(admit_s=0.2, interval_s=0.1, retry_s=0.05)
        async with running(None) as stores, source(stores.listed(), timing=timing) as one:
            await one.wait_registered(WITHIN_S)
            await stores.end("c")
            at = stores.addresses["c"]
            await soon(lambda: str(at) not in one._core.feeding.responsive)
            slow = await asyncio.start_server(copies, at.host, at.port)
            await soon(lambda: str(at) in one._core.feeding.responsive)
            slow.close()

    asyncio.run(run())


class Mine(Exception):
    """An application's own error."""


def test_what_on_event_raises_is_reported_and_the_source_goes_on() -> None:
    async def run() -> None:
        reported: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

        def on_event(event: events.Event) -> None:
            if isinstance(event, events.Stable):
                raise Mine("of the application")

        async with running(None) as stores:
            one = await registered(source(stores.listed(), on_event))
            for text in texts(3):
                one.send(text)
                await one.wait_stable(WITHIN_S)
            await soon(lambda: reported == ["of the application"] * 3)
            with pytest.raises(Mine, match="of the application"):
                await one.close()
            assert len(stores.having(S, texts(3))) >= 2
            assert stores.links() == 0

    asyncio.run(run())


def test_an_event_may_send() -> None:
    """In order, though the call-back is called between what the core wants done."""

    async def run() -> None:
        async with running(None) as stores:

            def on_event(event: events.Event) -> None:
                if isinstance(event, events.Stable) and one.next_number < 50:
                    one.send(b"%06d" % one.next_number)

            one = await registered(source(stores.listed(), on_event))
            one.send(texts(1)[0])
            await soon(lambda: one.stable_below == 50)
            await one.close()
            assert len(stores.having(S, texts(50))) >= 2

    asyncio.run(run())


def test_what_was_taken_is_sent_when_it_is_closed() -> None:
    async def run() -> None:
        async with running(None) as stores:
            one = await registered(source(stores.listed()))
            assert one.send(b"last") == 0
            await one.close()
            await soon(lambda: stores.log("a", S) == [b"last"])

    asyncio.run(run())


def test_what_was_stable_when_it_is_closed_is_known_to_stores() -> None:
    async def run() -> None:
        async with running(None) as stores:
            one = await registered(source(stores.listed()))
            await send_all(one, texts(5))
            await one.wait_stable(WITHIN_S)
            await one.close()
            its = [store.catalogue for store in stores.stores.values()]
            await soon(lambda: [one.of(S).stable for one in its] == [5] * 3)

    asyncio.run(run())


def test_it_lives_once() -> None:
    async def run() -> None:
        async with running(None) as stores:
            one = source(stores.listed())
            with pytest.raises(IllegalState, match="start"):
                one.send(b"early")
            await registered(one)
            with pytest.raises(IllegalState, match="once"):
                await one.start()
            await one.close()
            await one.close()
            for refused_now in (lambda: one.send(b"late"), lambda: one.give_up(0)):
                with pytest.raises(IllegalState, match="closed"):
                    refused_now()

    asyncio.run(run())


def test_a_wait_ends_with_the_source() -> None:
    async def run() -> None:
        async with running(None) as stores:
            await stores.end("abc")
            one = source(stores.listed())
            await one.start()
            waiting = asyncio.ensure_future(one.wait_registered())
            await asyncio.sleep(0.01)
            await one.close()
            with pytest.raises(IllegalState, match="closed"):
                await waiting

    asyncio.run(run())


def test_nothing_goes_beyond_this_machine_without_certificates() -> None:
    own = listed("127.0.0.1:1")
    for stores, listen in (
        (listed("192.0.2.1:7401"), None),
        (own, Address(host="0.0.0.0", port=0)),
    ):
        with pytest.raises(InvalidValue, match="certificates"):
            source(stores, listen=listen)
    source(own, listen=Address(host="127.0.0.1", port=0))
