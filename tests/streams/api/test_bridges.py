"""Bridges as programs use them: into a database, and from a queue."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq import streams
from onceq.errors import HandlerMisuse, IllegalState, InvalidValue, UsageError
from tests.parts import plain, rows, wait_until
from tests.streams.api.towns import BARS, RAW, SENDER, WITHIN_S, Bar, bars, town

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import psycopg

BOOKED: onceq.Queue[Bar, bytes] = onceq.Queue("bars", Bar, bytes)


@pytest.fixture
def booked(qm: onceq.QueueManager, conninfo: str) -> str:
    table = f"{qm.repository}.booked"
    with plain(conninfo) as connection:
        connection.execute(f"create table {table} (number bigint, day text)".encode())
    qm.declare(BOOKED)
    return table


def run(bridge: streams.Bridge, condition: Any) -> None:
    """Run a bridge in a thread until a condition holds, then stop it."""
    thread = threading.Thread(target=bridge.run)
    thread.start()
    try:
        wait_until(lambda: condition() or not thread.is_alive(), WITHIN_S)
    finally:
        bridge.stop()
        thread.join()
    assert condition()


def test_what_is_sent_takes_effect_once_and_what_is_queued_is_sent_once(
    qm: onceq.QueueManager, conninfo: str, booked: str
) -> None:
    def book(
        messages: list[streams.Message[Bar]], context: streams.IntoContext[psycopg.Connection[Any]]
    ) -> None:
        for message in messages:
            row = (message.number, message.value.day)
            context.connection.execute(f"insert into {booked} values (%s, %s)".encode(), row)

    def count() -> int:
        return len(rows(conninfo, f"select * from {booked}"))

    where: dict[str, Any] = {"url": conninfo, "repository": qm.repository}
    with town() as stores:
        qm.enqueue_many(BOOKED, bars(20))
        relay: dict[str, Any] = {"name": "out", "stores": stores.at(), "session_id": SENDER}
        relay |= where
        run(streams.relay(BOOKED, BARS, **relay), lambda: qm.show("bars").depth == 0)
        into: dict[str, Any] = {"name": "in", "at": stores.at(), "source_session_id": SENDER}
        into |= {**where, "batch": 7}
        run(streams.into(BARS, book, **into), lambda: count() == 20)
        qm.enqueue_many(BOOKED, bars(5, 20))
        run(streams.relay(BOOKED, BARS, **relay), lambda: qm.show("bars").depth == 0)
        run(streams.into(BARS, book, **into), lambda: count() == 25)
    found = rows(conninfo, f"select number, day from {booked} order by number")
    assert found == [(n, f"day {n}") for n in range(25)]


def test_a_bridge_for_asyncio(qm: onceq.QueueManager, conninfo: str, booked: str) -> None:
    with town() as stores:
        qm.enqueue_many(BOOKED, bars(3))
        where: dict[str, Any] = {"url": conninfo, "repository": qm.repository}
        relay = streams.relay(BOOKED, BARS, name="out", stores=stores.at(), session_id=1, **where)
        asyncio.run(_until_drained(relay, qm))
        given: dict[str, Any] = {"name": "in", "at": stores.at(), "source_session_id": 1, **where}

        async def book(messages: list[streams.Message[Bar]], context: Any) -> None:
            for message in messages:
                with pytest.raises(IllegalState, match="acknowledged when"):
                    message.retain()
                row = (message.number, message.value.day)
                await context.connection.execute(f"insert into {booked} values (%s, %s)", row)

        bridge = streams.into(BARS, book, **given)
        run(bridge, lambda: len(rows(conninfo, f"select * from {booked}")) == 3)
        with pytest.raises(IllegalState, match="run once"):
            bridge.run()


async def _until_drained(bridge: streams.Bridge, qm: onceq.QueueManager) -> None:
    running = asyncio.ensure_future(bridge.run_async())
    await asyncio.to_thread(wait_until, lambda: qm.show("bars").depth == 0, WITHIN_S)
    bridge.stop()
    await running


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"at": "nowhere"}, "nowhere"),
        ({"at": "10.0.0.1:7401"}, "certificates"),
        ({"source_session_id": 0}, "source_session_id"),
        ({"batch": 0}, "batch is an int from 1"),
        ({"batch": "7"}, "batch is an int from 1 to 2147483647, not '7'"),
        ({"abort_limit": 2.5}, "abort_limit is an int from 1"),
        ({"abort_limit": True}, "abort_limit is an int from 1"),
        ({"fail_on_data_loss": "no"}, "fail_on_data_loss is True or False, not 'no'"),
        ({"fail_on_dataloss": False}, "streams.into has no keyword 'fail_on_dataloss'; 'fail_on"),
        ({"repositry": "onceq"}, "'repositry'; 'repository' was meant"),
        ({"on_event": 5}, "on_event is 5: give a function"),
        ({"url": 5}, "url is 5: give a text"),
        ({"certificates": "x.pem"}, "certificates is 'x.pem': give streams.Certificates"),
        ({"name": ""}, "name is '': give 1 to 57 of A-Z"),
        ({"name": "x" * 58}, "give 1 to 57 of A-Z"),
        ({"name": "no name"}, "name is 'no name': give"),
        ({"name": None}, "name is None: give"),
        ({"at": None}, "at is None: give a text such as"),
        ({"at": ["127.0.0.1:7401"]}, "at is a value of class list: give a text"),
        ({"repository": "No Name"}, "repository"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_begun(
    given: dict[str, Any], says: str
) -> None:
    right: dict[str, Any] = {"name": "in", "at": "127.0.0.1:7401", "source_session_id": 1}
    with pytest.raises(UsageError, match=says):
        streams.into(RAW, lambda *_: None, **right | given)


@pytest.mark.parametrize("handler", [None, "book", 5])
def test_a_handler_can_be_called(handler: Any) -> None:
    with pytest.raises(InvalidValue, match=r"handler is .*: give a function that is called with a"):
        streams.into(RAW, handler, name="in", at="127.0.0.1:7401", source_session_id=1)


def generator(*_: Any) -> Iterator[int]:
    yield 1


async def async_generator(*_: Any) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("handler", [generator, async_generator])
def test_a_handler_that_yields_is_refused(handler: Any) -> None:
    with pytest.raises(HandlerMisuse, match="the handler yields, and nobody iterates"):
        streams.into(RAW, handler, name="in", at="127.0.0.1:7401", source_session_id=1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"flight_size": 3}, "streams.relay has no keyword 'flight_size'"),
        ({"session_id": "7"}, "session_id is '7': give a whole number"),
        ({"session_id": None}, "session_id is None: give a whole number"),
        ({"batch": "7"}, "batch is an int from 1"),
        ({"batch": 0}, "batch is an int from 1"),
        ({"idle_s": "1"}, "idle_s is a number of seconds"),
        ({"idle_s": 0}, "idle_s and stop_s above 0"),
        ({"listen": 7500}, "listen is 7500: give a text"),
        ({"accept_loss": 5}, "accept_loss is 5: give a text"),
        ({"stores": None}, "stores is None: give a text"),
        ({"name": ""}, "a relay has 1 to 200 bytes, not 0"),
        ({"name": None}, "a relay is a str, not NoneType"),
        ({"name": "a" + chr(10)}, "contains a control character"),
    ],
)
def test_what_cannot_be_of_a_relay_is_refused(given: dict[str, Any], says: str) -> None:
    right: dict[str, Any] = {"name": "out", "stores": "127.0.0.1:7401", "session_id": 1}
    with pytest.raises(UsageError, match=says):
        streams.relay(BOOKED, BARS, **right | given)


def test_a_relay_has_a_queue() -> None:
    queue: Any = "bars"
    with pytest.raises(InvalidValue, match=r"queue is 'bars': give an onceq.Queue"):
        streams.relay(queue, BARS, name="out", stores="127.0.0.1:7401", session_id=1)


def test_a_relay_passes_on_what_is_of_one_type() -> None:
    other: Any = onceq.Queue("bars", bytes, bytes)
    with pytest.raises(InvalidValue, match="give one type"):
        streams.relay(other, BARS, name="out", stores="127.0.0.1:7401", session_id=1)
