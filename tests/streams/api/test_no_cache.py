"""Lists of stores that keep no messages: numbers go on, positions stay, nothing is read later."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from onceq import streams
from tests.parts import wait_until
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, Heard, Shows, soon, town

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.streams.api.towns import Town

LISTEN = "127.0.0.1:0"


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path, names="abcd", noting="abc") as made:
        yield made


@pytest.fixture
def context() -> Iterator[streams.StreamContext]:
    with streams.open(session_id=SENDER) as made:
        yield made


class Reading:
    """A receiver that runs beside, at a source."""

    def __init__(self, context: streams.StreamContext, at: str, stop_at: int) -> None:
        self.heard, self.shows = Heard(), Shows(stop_at)
        receiver = context.receiver(
            RAW, self.shows, at=at, session_id=READER, on_event=self.heard, deliver="stable"
        )
        self.shows.receiver = receiver
        self.thread = threading.Thread(target=receiver.run)
        self.thread.start()
        soon(lambda: bool(self.heard.of(streams.RegistrationComplete)))

    def end(self) -> list[int]:
        self.thread.join(WITHIN_S)
        assert not self.thread.is_alive()
        return self.shows.numbers()


def test_a_quorum_of_them_is_enough_and_the_next_life_goes_on(
    stores: Town, context: streams.StreamContext
) -> None:
    at = stores.at("abc")
    with context.source(RAW, stores=at, listen=LISTEN) as source:
        reading = Reading(context, source.address, 2)
        for n in range(3):
            assert source.send(b"%d" % n) == n
        source.wait_stable(WITHIN_S)
        assert reading.end() == [0, 1, 2]
    stores.end("a")
    with context.source(RAW, stores=at, listen=LISTEN) as source:
        assert source.next_number == 3
        reading = Reading(context, source.address, 4)
        assert [source.send(b"x"), source.send(b"y")] == [3, 4]
        source.wait_stable(WITHIN_S)
        assert reading.end() == [3, 4], "the position is known to stores"
        stores.end("b")
        soon(lambda: not source.statistics().is_registered)
        with pytest.raises(streams.NotRegistered):
            source.send(b"lost")


def test_who_was_away_gets_what_the_source_keeps(
    stores: Town, context: streams.StreamContext
) -> None:
    at = stores.at("abc")
    with context.source(RAW, stores=at, listen=LISTEN) as source:
        reading = Reading(context, source.address, 0)
        source.send(b"0")
        source.wait_stable(WITHIN_S)
        assert reading.end() == [0]
        for n in range(1, 5):
            source.send(b"%d" % n)
        source.wait_stable(WITHIN_S)
        again = Reading(context, source.address, 5)
        soon(lambda: again.shows.numbers() == [1, 2, 3, 4])
        source.send(b"5")
        assert again.end() == [1, 2, 3, 4, 5]
        assert again.heard.of(streams.Loss) == []


def test_what_nobody_keeps_any_more_is_told_in_its_place(
    stores: Town, context: streams.StreamContext
) -> None:
    at = stores.at("abc")
    with context.source(RAW, stores=at, listen=LISTEN) as source:
        reading = Reading(context, source.address, 0)
        for n in range(5):
            source.send(b"%d" % n)
        source.wait_stable(WITHIN_S)
        assert reading.end() == [0]
    with context.source(RAW, stores=at, listen=LISTEN) as source:
        again = Reading(context, source.address, 5)
        source.send(b"5")
        assert again.end() == [5]
        lost = [(one.first, one.last, one.why) for one in again.heard.of(streams.Loss)]
        assert lost == [(1, 4, "trimmed")]


def test_what_a_quorum_forgot_is_told(stores: Town, context: streams.StreamContext) -> None:
    at = stores.at("abc")
    with context.source(RAW, stores=at) as source:
        for _ in range(4):
            source.send(b"x")
        source.wait_stable(WITHIN_S)
    stores.end("ab")
    for name in "ab":
        stores.cluster.wipe(name)
    stores.start("ab")
    heard = Heard()
    with context.source(RAW, stores=at, on_event=heard, within_s=0.0):
        soon(lambda: bool(heard.of(streams.StoresForgot)))
    (told,) = heard.of(streams.StoresForgot)
    assert told.end == 4
    known = told.accept_loss.replace("4-1000004@", "4-4@")
    with context.source(RAW, stores=at, accept_loss=known) as source:
        assert source.next_number == 4


def test_they_release_by_confirmations_alone(stores: Town, context: streams.StreamContext) -> None:
    heard = Heard()
    with context.source(
        RAW, stores=stores.at("abc"), listen=LISTEN, on_event=heard,
        retention_unique_confirmations=1,
    ) as source:  # fmt: skip
        shows = Shows(0)
        receiver = context.receiver(
            RAW, shows, at=source.address, session_id=READER, allow_confirmed_delivery=True
        )
        shows.receiver = receiver
        source.send(b"0")
        source.wait_stable(WITHIN_S)
        assert heard.of(streams.Reclaimed) == []
        thread = threading.Thread(target=receiver.run)
        thread.start()
        thread.join(WITHIN_S)
        wait_until(lambda: bool(heard.of(streams.Reclaimed)))


def test_one_store_that_keeps_messages_beside_them_is_no_quorum(
    stores: Town, context: streams.StreamContext
) -> None:
    """They count for no stability where messages are kept."""
    with (
        context.source(RAW, stores=stores.at("abd"), within_s=0.3) as source,
        pytest.raises(streams.NotRegistered),
    ):
        source.send(b"0")


def test_a_stream_that_began_without_messages_changes_to_such_lists_only(
    tmp_path: Path, context: streams.StreamContext
) -> None:
    with (
        town(tmp_path, names="abcdef", noting="abcd") as stores,
        context.source(RAW, stores=stores.at("abc")) as source,
    ):
        source.send(b"0")
        source.want(stores.at("aef"))
        source.wait_stable(WITHIN_S)
        assert source.send(b"1") == 1
        assert source.statistics().stores == stores.at("abc")
        source.want(stores.at("abd"))
        soon(lambda: source.statistics().stores == stores.at("abd"))
        assert source.send(b"2") == 2
        source.wait_stable(WITHIN_S)
        assert source.statistics().stores == stores.at("abd")


def test_nothing_is_read_later(stores: Town, context: streams.StreamContext) -> None:
    with context.source(RAW, stores=stores.at("abc")) as source:
        for _ in range(4):
            source.send(b"x")
        source.wait_stable(WITHIN_S)
        heard = Heard()
        shows = Shows()
        shows.receiver = context.receiver(
            RAW, shows, at=stores.at("a"), session_id=READER, on_event=heard
        )
        thread = threading.Thread(target=shows.receiver.run)
        thread.start()
        soon(lambda: bool(heard.of(streams.Loss)))
        shows.receiver.stop()
        thread.join(WITHIN_S)
        assert shows.numbers() == []
        assert [(one.first, one.last) for one in heard.of(streams.Loss)] == [(0, 3)]
