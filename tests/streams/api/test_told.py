"""What a receiver tells beside messages: where it begins, and every gap."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.errors import InvalidValue
from onceq.streams import logged
from onceq.streams.api.reporting import report
from tests.events import emits
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, Heard, read, sent, soon, town

if TYPE_CHECKING:
    from tests.events import Events


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

                def show(_: streams.Message[bytes]) -> None:
                    receiver.stop()

                receiver = context.receiver(RAW, show, at=at, session_id=number + 1, **given)
                await receiver.run()
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
    given: Any = {"on_event": "me", "session_id": 1}
    with streams.open() as context:
        with pytest.raises(InvalidValue, match="on_event is 'me': give a function"):
            context.source(RAW, stores="127.0.0.1:7401", **given)
        with pytest.raises(InvalidValue, match="on_event is 'me': give a function"):
            context.receiver(RAW, print, at="127.0.0.1:7401", **given)
