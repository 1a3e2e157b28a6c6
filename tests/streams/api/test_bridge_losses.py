"""A loss that a person accepted, as bridges are told of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import onceq
from onceq import streams
from onceq.errors import InvalidValue
from onceq.streams import logged
from onceq.streams.bridge import relay as relaying
from onceq.streams.bridge import waiting
from onceq.streams.bridge.fetching import fetched
from onceq.streams.bridge.relay import AsyncRelay
from tests.events import emits
from tests.parts import plain, rows
from tests.streams.api.losing import know, texts, wipe
from tests.streams.api.losing import told as told_to_a_source
from tests.streams.api.test_bridges import run
from tests.streams.api.towns import RAW, SENDER, WITHIN_S, Heard, read, town

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceq.streams.bridge.reading import Asked
    from onceq.telemetry import Event
    from tests.events import Events
    from tests.streams.api.towns import Town

OUTBOX: onceq.Queue[bytes, bytes] = onceq.Queue("outbox", bytes, bytes)
READER = 0x0B5


class Died(Exception):
    """Instead of a death."""


class Outbox:
    """A queue that is relayed."""

    def __init__(self, qm: onceq.QueueManager, conninfo: str) -> None:
        self.qm = qm
        self.where: dict[str, Any] = {"url": conninfo, "repository": qm.repository}
        qm.declare(OUTBOX)

    def put(self, bodies: list[bytes]) -> None:
        self.qm.enqueue_many(OUTBOX, bodies)

    def relay(self, at: str, **given: Any) -> streams.Bridge:
        return streams.relay(
            OUTBOX, RAW, name="out", stores=at, session_id=SENDER, **self.where, **given
        )

    def drain(self, at: str, **given: Any) -> None:
        """Have all that is queued sent."""
        run(self.relay(at, **given), lambda: self.qm.show("outbox").depth == 0)

    def dies(self, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have a relay send all, which is stable, and die before that has ended."""

        async def finish(relay: AsyncRelay, *, waits: bool) -> None:
            assert waits
            await relay._source.wait_stable(WITHIN_S)
            raise Died

        with monkeypatch.context() as patched:
            patched.setattr(AsyncRelay, "_finish", finish)
            with pytest.raises(Died):
                self.relay(at).run()


@pytest.fixture
def outbox(qm: onceq.QueueManager, conninfo: str) -> Outbox:
    return Outbox(qm, conninfo)


def told(
    events: Events, bridge: streams.Bridge, kind: type[Event] = logged.StoresForgot, **known: Any
) -> dict[str, Any]:
    """What the log says while a relay waits for its stores. known: fields of the event."""

    async def wait() -> dict[str, Any]:
        running = asyncio.ensure_future(bridge.run_async())
        found = await asyncio.to_thread(events.wait_for, kind, **known)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])
        return found

    return asyncio.run(wait())


def received(stores: Town, at: str, stop_at: int) -> tuple[list[tuple[int, bytes]], list[Any]]:
    """What a new receiver is shown, and told as lost."""
    heard = Heard()
    with streams.open(session_id=READER) as context:
        shows = read(context, RAW, stop_at, at=stores.at(at), on_event=heard)
    lost = [(one.first, one.last, one.why) for one in heard.of(streams.Loss)]
    return [(one.number, one.value) for one in shows.shown], lost


@emits(logged.StoresForgot, logged.LossAccepted)
def test_a_relay_whose_stores_were_wiped_says_so_and_goes_on_when_a_person_says_so(
    tmp_path: Path, outbox: Outbox, events: Events
) -> None:
    with town(tmp_path) as stores:
        outbox.put(texts(3))
        outbox.drain(stores.at())
        know(stores, "a", 3)
        wipe(stores, "bc")
        outbox.put(texts(2, 3))
        waits = told(events, outbox.relay(stores.at()))
        assert set(waits["forgot"].split()) == set(stores.at("bc").split())
        assert (waits["bridge"], waits["topic"]) == ("out", RAW.name)
        assert (waits["silent"], waits["end"]) == ("", 3)
        accepted = waits["accept_loss"]
        assert accepted.startswith("3-1000003@")
        outbox.drain(stores.at(), accept_loss=accepted.replace("3-1000003@", "3-5@"))
        (accepted,) = events.of(logged.LossAccepted)
        assert accepted == {"bridge": "out", "topic": RAW.name, "first": 3, "last": 4}
        shown, lost = received(stores, "a", 6)
        assert shown == [*enumerate(texts(3)), (5, b"3"), (6, b"4")]
        assert lost == [(3, 4, "lost")]


@pytest.fixture
def parted(
    tmp_path: Path, outbox: Outbox, events: Events, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Town, str]]:
    """Stores of which a lacks the numbers 3 to 5, which b and c have; and what is to be accepted.

    A relay had planned them, and died before they had ended.
    """
    with town(tmp_path, names="abcd") as stores:
        outbox.put(texts(3))
        outbox.drain(stores.at("abc"))
        know(stores, "a", 3)
        stores.end("a")
        outbox.put(texts(3, 3))
        outbox.dies(stores.at("abc"), monkeypatch)
        know(stores, "c", 6)
        stores.end("bc")
        stores.start("a")
        accepted = told(events, outbox.relay(stores.at("abc")))["accept_loss"]
        yield stores, accepted.replace("3-1000003@", "3-6@")


@emits(logged.BridgeLacksStore)
def test_a_relay_that_reads_what_it_had_planned_says_for_which_stores_it_waits(
    parted: tuple[Town, str], outbox: Outbox, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here for one that was given up, and is back with its disk."""
    stores, accepted = parted

    async def asks_c_alone(asked: Asked, *given: Any) -> Any:
        await asyncio.to_thread(stores.start, "c")
        return await fetched(replace(asked, stores=(stores.at("c"),)), *given)

    monkeypatch.setattr(relaying, "fetched", asks_c_alone)
    monkeypatch.setattr(waiting, "FIRST_S", 0.0)
    events.all.clear()
    relay = outbox.relay(stores.at("abd"), accept_loss=accepted)
    one = told(events, relay, logged.BridgeLacksStore, store=stores.at("c"))
    assert (one["bridge"], one["topic"]) == ("out", RAW.name)
    assert "it does not know of the loss that was accepted in epoch" in one["why"]
    assert outbox.qm.show("outbox").depth > 0


def test_a_relay_does_not_believe_a_store_that_is_back_with_what_was_lost(
    parted: tuple[Town, str], outbox: Outbox, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was planned is not there as planned: it is void, and planned again."""
    stores, accepted = parted

    async def asks_c_first(asked: Asked, *given: Any) -> Any:
        await asyncio.to_thread(stores.start, "c")  # the source has begun without it
        return await fetched(replace(asked, stores=(stores.at("c"), *asked.stores)), *given)

    monkeypatch.setattr(relaying, "fetched", asks_c_first)
    outbox.drain(stores.at("abd"), accept_loss=accepted)
    began = events.of(logged.RelayBegan)[-1]
    assert (began["finished"], began["again"]) == (0, 3)
    shown, lost = received(stores, "a", 8)
    assert shown == [*enumerate(texts(3)), *enumerate(texts(3, 3), 6)]
    assert lost == [(3, 5, "lost")]


def test_into_ends_at_what_is_lost_unless_it_is_to_go_on(
    tmp_path: Path, outbox: Outbox, conninfo: str, qm: onceq.QueueManager
) -> None:
    table = f"{qm.repository}.booked"
    with plain(conninfo) as connection:
        connection.execute(f"create table {table} (number bigint)".encode())

    def book(messages: list[Any], context: Any) -> None:
        for one in messages:
            context.connection.execute(f"insert into {table} values (%s)".encode(), (one.number,))

    def booked() -> list[int]:
        return [n for (n,) in rows(conninfo, f"select number from {table} order by number")]

    def into(**given: Any) -> streams.Bridge:
        own: dict[str, Any] = {**outbox.where, "source_session_id": SENDER}
        return streams.into(RAW, book, name="in", at=stores.at("a"), **own, **given)

    with town(tmp_path) as stores:
        outbox.put(texts(3))
        outbox.drain(stores.at())
        run(into(), lambda: booked() == [0, 1, 2])
        know(stores, "a", 3)
        wipe(stores, "bc")
        with streams.open(session_id=SENDER) as context:
            rest = told_to_a_source(context, stores.at()).accept_loss
        outbox.put([b"6"])
        outbox.drain(stores.at(), accept_loss=rest.replace("3-1000003@", "3-6@"))
        with pytest.raises(streams.DataLost, match="fail_on_data_loss") as raised:
            into().run()
        error = raised.value
        assert (error.first, error.last, error.why) == (3, 5, "lost")
        heard = Heard()
        goes_on = into(fail_on_data_loss=False, on_event=heard)
        run(goes_on, lambda: booked() == [0, 1, 2, 6])
        assert [(e.first, e.last, e.why) for e in heard.of(streams.Loss)] == [(3, 5, "lost")]


@pytest.mark.parametrize(
    ("text", "says"), [("127.0.0.1:1", "StoresForgot"), (5, "accept_loss is 5")]
)
def test_what_is_no_acceptance_is_refused(text: Any, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        streams.relay(OUTBOX, RAW, name="out", stores="127.0.0.1:1", session_id=1, accept_loss=text)
