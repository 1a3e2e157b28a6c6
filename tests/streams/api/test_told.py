"""What a receiver tells beside messages: where it begins, and every gap."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.errors import InvalidValue
from onceq.streams import logged
from onceq.streams.api.reporting import report
from tests.events import emits
from tests.streams.api.towns import (
    RAW,
    READER,
    SENDER,
    WITHIN_S,
    Heard,
    Shows,
    read,
    sent,
    soon,
    town,
)

if TYPE_CHECKING:
    from tests.events import Events
    from tests.streams.api.towns import Town


def test_stores_say_whether_they_knew_a_receiver_and_where_it_begins() -> None:
    with town() as stores, streams.open(session_id=READER) as context:
        sent(context, stores.at(), [b"%d" % n for n in range(4)])
        lives: list[tuple[set[tuple[bool, int]], int, int]] = []
        for last in (1, 3):
            heard = Heard()
            read(context, RAW, last, at=stores.at("a"), on_event=heard)
            registered = heard.of(streams.StoreRegistered)
            assert {one.store for one in registered} <= set(stores.at().split())
            assert len(registered) >= 2
            assert all(one.regid > 0 for one in registered)
            (complete,) = heard.of(streams.RegistrationComplete)
            known = {(one.old, one.last) for one in registered}
            lives.append((known, complete.next_number, complete.reported))
        assert lives == [({(False, -1)}, 0, 3), ({(True, 1)}, 2, 3)]


@emits(logged.StreamGap)
def test_a_gap_that_nobody_asked_to_hear_of_is_logged(events: Events) -> None:
    with town(names="a") as stores, streams.open(session_id=READER) as context:
        sent(context, stores.at("a"), [b"%d" % n for n in range(4)])
        shows = read(context, RAW, 3, at=stores.at("a"), retransmit_request_maximum=0)
        assert shows.numbers() == [3]
        stream = f"{shows.shown[0].identity.stream:016x}"
    report(streams.RolledBack(stream=5, first=7, last=8))
    report(streams.SourceFenced(stream=5, epoch=1))
    assert events.of(logged.StreamGap) == [
        {"stream": stream, "first": 0, "last": 2, "why": "skipped"},
        {"stream": "0000000000000005", "first": 7, "last": 8, "why": "rolled back"},
    ]


KINDS = {streams.RegistrationComplete, streams.StoreRegistered}


def kinds(heard: Heard) -> set[type[Any]]:
    return {type(one) for one in heard.events}


def test_a_context_hears_of_all_that_have_no_handler_of_their_own() -> None:
    """And an object's own overrides it: the context hears nothing of that."""
    both, own_source, own_receiver = Heard(), Heard(), Heard()
    with town(names="a") as stores:
        at = stores.at("a")
        with streams.open(session_id=SENDER, on_event=both) as context:
            with context.source(RAW, stores=at, on_event=own_source) as source:
                source.send(b"0")
                source.wait_stable(WITHIN_S)
            read(context, RAW, 0, at=at, session_id=READER, on_event=own_receiver)
            assert both.events == []
            assert kinds(own_source) >= KINDS | {streams.SequenceNumbers, streams.Stable}
            assert kinds(own_receiver) == KINDS
            with context.source(RAW, stores=at) as source:
                source.send(b"1")
                source.wait_stable(WITHIN_S)
            soon(lambda: kinds(both) >= KINDS | {streams.SequenceNumbers, streams.Stable})
            both.events.clear()
            later = {"session_id": READER + 1, "retransmit_request_maximum": 0}
            read(context, RAW, 1, at=at, **later)
            assert kinds(both) == KINDS | {streams.Loss}
    assert len(own_source.of(streams.RegistrationComplete)) == 1


def test_a_context_for_asyncio_hears_so_too() -> None:
    both, own = Heard(), Heard()
    mine: dict[str, Any] = {"on_event": own}

    async def run(at: str) -> None:
        async with streams.open_async(session_id=SENDER, on_event=both) as context:
            for given in (mine, {}):
                async with context.source(RAW, stores=at, **given) as source:
                    number = await source.send(b"x")
                    await source.wait_stable(WITHIN_S)

                shows = Shows(number)
                shows.receiver = context.receiver(RAW, shows, at=at, session_id=number + 1, **given)
                await shows.receiver.run()
                if given:
                    assert both.events == []
                    assert own.of(streams.RegistrationComplete) != []
                    own.events.clear()

    with town(names="a") as stores:
        asyncio.run(run(stores.at("a")))
    assert own.events == []
    assert len(both.of(streams.RegistrationComplete)) == 2
    assert both.of(streams.SequenceNumbers) != []


@pytest.mark.parametrize("opens", [streams.open, streams.open_async])
def test_what_cannot_be_called_is_no_handler(opens: Any) -> None:
    with pytest.raises(InvalidValue, match="on_event is 5: give a function"):
        opens(on_event=5)
    with pytest.raises(InvalidValue, match=r"certificates is 'x\.pem': give onceq\.streams\.Cert"):
        opens(certificates="x.pem")
    given: Any = {"on_event": "me", "session_id": 1}
    with streams.open() as context:
        with pytest.raises(InvalidValue, match="on_event is 'me': give a function"):
            context.source(RAW, stores="127.0.0.1:7401", **given)
        with pytest.raises(InvalidValue, match="on_event is 'me': give a function"):
            context.receiver(RAW, print, at="127.0.0.1:7401", **given)


SILENT, BACK = "does not answer", "answers again"


def errors(heard: Heard, stores: Town) -> list[tuple[str, str]]:
    """Which store, by its name, and the reason."""
    names = {stores.at(name): name for name in "abc"}
    found = [(names[one.store], one.why) for one in heard.of(streams.RegistrationError)]
    return [(name, next((r for r in (SILENT, BACK) if r in why), why)) for name, why in found]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_receiver_tells_for_which_stores_it_waits(*, is_async: bool) -> None:
    heard, shows = Heard(), Shows(0)

    async def run(at: str) -> None:
        async with streams.open_async(session_id=READER) as context:
            shows.receiver = context.receiver(RAW, shows, at=at, on_event=heard)
            await shows.receiver.run()

    def in_thread(at: str) -> None:
        with streams.open(session_id=READER) as context:
            shows.receiver = context.receiver(RAW, shows, at=at, on_event=heard)
            shows.receiver.run()

    with town() as stores:
        with streams.open(session_id=SENDER) as context:
            sent(context, stores.at(), [b"0"])
        stores.end("abc")
        given = (lambda at: asyncio.run(run(at))) if is_async else in_thread
        waiting = threading.Thread(target=given, args=(stores.at("a"),), daemon=True)
        waiting.start()
        soon(lambda: errors(heard, stores) == [("a", SILENT)])
        stores.start("a")
        told = [("a", SILENT), ("a", BACK), ("b", SILENT), ("c", SILENT)]
        soon(lambda: sorted(errors(heard, stores)) == sorted(told))
        assert heard.of(streams.StoreRegistered) == []
        stores.start("b")
        waiting.join(WITHIN_S)
        assert sorted(errors(heard, stores)) == sorted([*told, ("b", BACK)])
        registered = {one.store for one in heard.of(streams.StoreRegistered)}
        assert registered == set(stores.at("ab").split())
        assert shows.numbers() == [0]


def test_a_receiver_that_is_before_its_source_tells_that_no_store_knows_the_stream() -> None:
    heard, shows = Heard(), Shows(0)
    with town(names="a") as stores, streams.open(session_id=READER) as context:
        shows.receiver = context.receiver(RAW, shows, at=stores.at("a"), on_event=heard)
        waiting = threading.Thread(target=shows.receiver.run, daemon=True)
        waiting.start()
        soon(lambda: heard.events != [])
        with streams.open(session_id=SENDER) as other:
            sent(other, stores.at("a"), [b"0"])
        waiting.join(WITHIN_S)
    unknown, back = heard.of(streams.RegistrationError)
    assert (unknown.store, unknown.stream) == (stores.at("a"), 0)
    assert "its source has not begun there" in unknown.why
    assert back.stream == shows.shown[0].identity.stream


def test_a_receiver_tells_that_the_source_has_changed_its_stores() -> None:
    heard, shows = Heard(), Shows(1)
    with town(names="abcd") as stores, streams.open(session_id=SENDER) as context:
        before, now = stores.at("abc"), stores.at("abd")
        with context.source(RAW, stores=before, listen="127.0.0.1:0") as source:
            shows.receiver = context.receiver(
                RAW, shows, at=source.address, session_id=READER, on_event=heard
            )
            waiting = threading.Thread(target=shows.receiver.run, daemon=True)
            waiting.start()
            source.send(b"0")
            soon(lambda: shows.numbers() == [0])
            assert heard.of(streams.OptionsChanged) == []
            source.want(now)
            soon(lambda: heard.of(streams.OptionsChanged) != [])
            soon(lambda: source.statistics().stores == now)
            source.send(b"1")
            waiting.join(WITHIN_S)
        (changed,) = heard.of(streams.OptionsChanged)
        assert (changed.option, changed.before, changed.now) == ("stores", before, now)
        assert changed.stream == shows.shown[0].identity.stream
