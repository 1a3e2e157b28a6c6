"""More stores lost what they had than a list allows: what is told, how a person goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.errors import InvalidValue
from tests.streams.api.losing import know, texts, told, wipe
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
    from collections.abc import Iterator
    from pathlib import Path

    from tests.streams.api.towns import Town


@pytest.fixture
def context() -> Iterator[streams.StreamContext]:
    with streams.open(session_id=SENDER) as made:
        yield made


def test_two_wiped_stores_of_three_are_told_and_gone_on_without(
    tmp_path: Path, context: streams.StreamContext
) -> None:
    with town(tmp_path) as stores:
        at = stores.at()
        sent(context, at, texts(5))
        assert read(context, RAW, 3, at=stores.at("a"), session_id=READER).numbers() == [0, 1, 2, 3]
        know(stores, "a", 5)
        stores.end("a")
        with context.source(RAW, stores=at) as source:
            for text in texts(4, 5):
                source.send(text)
            source.wait_stable(WITHIN_S)
        seen = read(context, RAW, 8, at=stores.at("b"), session_id=READER).numbers()
        assert seen == [4, 5, 6, 7, 8]
        wipe(stores, "bc")
        stores.start("a")

        one = told(context, at)
        assert set(one.forgot) == set(stores.at("bc").split())
        assert (one.silent, one.end) == ((), 5)
        numbers, *named = one.accept_loss.split()
        assert numbers.startswith("5-1000005@")
        assert named == sorted(stores.at("bc").split())

        heard = Heard()
        known = one.accept_loss.replace("5-1000005@", "5-9@")
        with context.source(RAW, stores=at, on_event=heard, accept_loss=known) as source:
            assert source.next_number == 9, "no number is given twice"
            assert source.send(b"9") == 9
            source.wait_stable(WITHIN_S)
        assert [(e.first, e.last) for e in heard.of(streams.LossAccepted)] == [(5, 8)]
        assert [(e.first, e.last) for e in heard.of(streams.Stable)] == [(9, 9)]
        again = read(context, RAW, 9, at=stores.at("a"), session_id=READER)
        assert again.numbers() == [4, 9], "who is left knows of its first life only"

        lost = Heard()
        other = read(context, RAW, 9, at=stores.at("a"), session_id=7, on_event=lost)
        assert other.numbers() == [0, 1, 2, 3, 4, 9]
        assert [(e.first, e.last, e.why) for e in lost.of(streams.Loss)] == [(5, 8, "lost")]


def test_what_was_accepted_counts_once(tmp_path: Path, context: streams.StreamContext) -> None:
    """The text that is left in a program accepts no later loss."""
    with town(tmp_path) as stores:
        at = stores.at()
        sent(context, at, texts(3))
        know(stores, "a", 3)
        wipe(stores, "bc")
        accepted = told(context, at).accept_loss.replace("3-1000003@", "3-3@")
        sent(context, at, texts(2, 3), accept_loss=accepted)
        sent(context, at, texts(2, 5), accept_loss=accepted)
        know(stores, "a", 7)
        wipe(stores, "bc")
        heard = Heard()
        with context.source(
            RAW, stores=at, on_event=heard, within_s=0.0, accept_loss=accepted
        ) as source:
            soon(lambda: bool(heard.of(streams.StoresForgot)))
            with pytest.raises(streams.NotRegistered, match="7-1000007@"):
                source.send(b"lost")
        loss = told(context, at).accept_loss.replace("7-1000007@", "7-7@")
        sent(context, at, texts(1, 7), accept_loss=loss)
        shows = read(context, RAW, 7, at=stores.at("a"), session_id=READER)
        assert shows.values() == texts(8)


def test_a_receiver_that_lives_is_told_what_it_saw_of_that(
    tmp_path: Path, context: streams.StreamContext
) -> None:
    with town(tmp_path) as stores:
        at = stores.at()
        sent(context, at, texts(3))
        know(stores, "a", 3)
        stores.end("a")
        sent(context, at, texts(3, 3))
        heard, shows = Heard(), Shows(stop_at=8)
        shows.receiver = context.receiver(
            RAW, shows, at=stores.at("b"), session_id=READER, on_event=heard
        )
        running = threading.Thread(target=shows.receiver.run)
        running.start()
        try:
            soon(lambda: shows.numbers() == [0, 1, 2, 3, 4, 5])
            wipe(stores, "bc")
            stores.start("a")
            one = told(context, at)
            accepted = one.accept_loss.replace("3-1000003@", "3-6@")
            sent(context, at, texts(3, 6), accept_loss=accepted)
        finally:
            running.join(WITHIN_S)
        assert shows.numbers() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
        back = [(e.first, e.last) for e in heard.of(streams.RolledBack)]
        lost = [(e.first, e.last, e.why) for e in heard.of(streams.Loss)]
        assert (back, lost) == ([(3, 5)], [(3, 5, "lost")])


def test_a_store_that_comes_back_is_cut_and_filled(
    tmp_path: Path, context: streams.StreamContext
) -> None:
    """It was silent, and given up: what it had was stable, and nobody else has it."""
    with town(tmp_path, names="abcd") as stores:
        at = stores.at("abc")
        sent(context, at, texts(3))
        know(stores, "a", 3)
        stores.end("a")
        sent(context, at, texts(3, 3))
        stores.end("bc")
        stores.start("a")
        one = told(context, at)
        assert (one.forgot, set(one.silent), one.end) == ((), set(stores.at("bc").split()), 3)
        accepted = one.accept_loss.replace("3-1000003@", "3-6@")
        heard = Heard()
        with context.source(
            RAW, stores=stores.at("abd"), accept_loss=accepted, on_event=heard
        ) as source:
            assert source.send(b"6") == 6
            source.wait_stable(WITHIN_S)
            assert source.statistics().stores == stores.at("abd")
            stores.start("b")
            soon(lambda: source.statistics().stable_below == 7 and _has(stores, "b", 7))
        assert read(context, RAW, 6, at=stores.at("b"), session_id=READER).values() == [
            *texts(3),
            b"6",
        ]


def _has(stores: Town, name: str, end: int) -> bool:
    held = list(stores.cluster.stores[name].catalogue.streams.values())
    return [one.end for one in held] == [end]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("127.0.0.1:1", "StoresForgot"),
        ("9-3@1 127.0.0.1:1", "messages go on at 3"),
        ("3-9@1 nowhere", "nowhere"),
        (5, "accept_loss is 5"),
        ("3-9@1 192.0.2.1:7401", "TLS"),
    ],
)
def test_what_is_no_acceptance_is_refused(
    context: streams.StreamContext, text: Any, says: str
) -> None:
    with pytest.raises(InvalidValue, match=says):
        context.source(RAW, stores="127.0.0.1:1", accept_loss=text)
