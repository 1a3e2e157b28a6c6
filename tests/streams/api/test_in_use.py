"""A registration that a live program uses is refused to others, and is free when that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from tests.streams.api.test_deaths import child, lines_until, tell
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
    from collections.abc import Generator

pytestmark = pytest.mark.timeout(300)


@contextlib.contextmanager
def reading(
    context: streams.StreamContext, at: str, **given: Any
) -> Generator[tuple[Shows, Heard]]:
    """A receiver that runs in a thread while the block does, and has come in."""
    shows, heard, raised = Shows(), Heard(), list[BaseException]()
    receiver = context.receiver(RAW, shows, at=at, session_id=READER, on_event=heard, **given)

    def run() -> None:
        try:
            receiver.run()
        except BaseException as error:  # noqa: BLE001 # the block raises it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        soon(lambda: bool(heard.of(streams.RegistrationComplete)) or bool(raised))
        yield shows, heard
    finally:
        receiver.stop()
        thread.join(WITHIN_S)
    assert raised == []


def test_a_second_receiver_is_refused_and_the_first_goes_on() -> None:
    with town() as stores, streams.open() as context:
        at = stores.at("a")
        sent(context, stores.at(), [b"0", b"1"])
        with reading(context, at) as (shows, _):
            soon(lambda: shows.numbers() == [0, 1])
            second = context.receiver(RAW, Shows(), at=at, session_id=READER)
            with pytest.raises(streams.RegistrationInUse, match=r"'session b5' is in use.*End"):
                second.run()
            sent(context, stores.at(), [b"2"])
            soon(lambda: shows.numbers() == [0, 1, 2])
            key = f"session {READER:x}"
            soon(lambda: sorted(stores.positions(key))[1:] == [3, 3])  # one may lack the message
        sent(context, stores.at(), [b"3"])
        assert read(context, RAW, 3, at=at, session_id=READER).numbers() == [3]


def test_a_second_receiver_for_asyncio_is_refused() -> None:
    def show(message: streams.Message[bytes]) -> None:
        raise AssertionError(message)

    async def second(at: str, session: int) -> None:
        async with streams.open_async(session_id=session) as context:
            await context.receiver(RAW, show, at=at).run()

    with town() as stores, streams.open() as context:
        sent(context, stores.at(), [b"0"])
        with reading(context, stores.at("b")) as (shows, _):
            soon(lambda: shows.numbers() == [0])
            with pytest.raises(streams.RegistrationInUse, match="in use"):
                asyncio.run(second(stores.at("a"), READER))


def test_a_second_source_is_refused_and_the_first_goes_on() -> None:
    heard = Heard()
    with town() as stores, streams.open(session_id=SENDER) as context:
        at = stores.at()
        with context.source(RAW, stores=at) as source:
            source.send(b"0")
            with (
                pytest.raises(streams.RegistrationInUse, match=r"0x7e1, is in use.*End"),
                context.source(RAW, stores=at, on_event=heard, within_s=None),
            ):
                pytest.fail("it came in")
            told = {one.why.partition(" ")[2] for one in heard.of(streams.RegistrationError)}
            assert any("another live user" in why for why in told)
            source.send(b"1")
            source.wait_stable(WITHIN_S)
        with context.source(RAW, stores=at) as source:
            assert source.next_number == 2


def test_a_second_source_for_asyncio_is_refused() -> None:
    async def second(at: str) -> None:
        async with (
            streams.open_async(session_id=SENDER) as context,
            context.source(RAW, stores=at, within_s=None),
        ):
            pytest.fail("it came in")

    with (
        town() as stores,
        streams.open(session_id=SENDER) as context,
        context.source(RAW, stores=stores.at()) as source,
    ):
        source.send(b"0")
        source.wait_stable(WITHIN_S)
        links = stores.links()
        with pytest.raises(streams.RegistrationInUse, match="in use"):
            asyncio.run(second(stores.at()))
        soon(lambda: stores.links() == links)
        source.wait_stable(WITHIN_S)


SOURCE = """
    import sys
    from onceq import streams
    RAW = streams.Topic("raw")
    with streams.open(session_id=0x7E1) as context:
        with context.source(RAW, stores=sys.argv[1], activity_timeout_ms=TIMEOUT) as source:
            source.send(b"0")
            source.wait_stable(60)
            print("stable", flush=True)
            input()
            try:
                source.send(b"of a former life")
                source.wait_stable(60)
            except streams.SourceSucceeded:
                print("succeeded", flush=True)
"""
RECEIVER = """
    import sys
    from onceq import streams
    RAW = streams.Topic("raw")
    def show(message):
        print(message.number, flush=True)
    with streams.open(session_id=0x0B5) as context:
        try:
            context.receiver(RAW, show, at=sys.argv[1], activity_timeout_ms=TIMEOUT).run()
        except streams.RegistrationInUse:
            print("in use", flush=True)
"""
LONG, SHORT = "3_600_000", "300"
"""Milliseconds: no test waits for the one, and each may for the other."""


def test_a_source_that_is_killed_is_followed_at_once() -> None:
    with town() as stores, streams.open(session_id=SENDER) as context:
        with child(SOURCE.replace("TIMEOUT", LONG), stores.at()) as process:
            assert lines_until(process, "stable") == ["stable"]
            with (
                pytest.raises(streams.RegistrationInUse),
                context.source(RAW, stores=stores.at(), within_s=None),
            ):
                pytest.fail("it came in")
            process.kill()
            process.wait(WITHIN_S)
        with context.source(RAW, stores=stores.at(), within_s=WITHIN_S) as source:
            assert source.next_number == 1


def test_a_receiver_that_is_killed_is_followed_at_once() -> None:
    with town() as stores, streams.open() as context:
        sent(context, stores.at(), [b"0"])
        with child(RECEIVER.replace("TIMEOUT", LONG), stores.at("a")) as process:
            lines_until(process, "0")
            second = context.receiver(RAW, Shows(), at=stores.at("b"), session_id=READER)
            with pytest.raises(streams.RegistrationInUse):
                second.run()
            process.kill()
            process.wait(WITHIN_S)
        with reading(context, stores.at("c")):
            sent(context, stores.at(), [b"1"])


def test_a_source_that_is_frozen_is_followed_when_it_is_silent_and_fenced_when_it_thaws() -> None:
    with (
        town() as stores,
        streams.open(session_id=SENDER) as context,
        child(SOURCE.replace("TIMEOUT", SHORT), stores.at()) as process,
    ):
        lines_until(process, "stable")
        process.send_signal(signal.SIGSTOP)
        with context.source(RAW, stores=stores.at(), within_s=WITHIN_S) as source:
            assert source.next_number == 1
            source.send(b"1")
            source.wait_stable(WITHIN_S)
            process.send_signal(signal.SIGCONT)
            tell(process)
            assert lines_until(process, "succeeded") == ["succeeded"]
            source.send(b"2")
            source.wait_stable(WITHIN_S)


def test_a_receiver_that_is_frozen_is_followed_and_is_told_when_it_thaws() -> None:
    with town() as stores, streams.open() as context:
        sent(context, stores.at(), [b"0"])
        with child(RECEIVER.replace("TIMEOUT", SHORT), stores.at("a")) as process:
            lines_until(process, "0")
            process.send_signal(signal.SIGSTOP)
            with reading(context, stores.at("b")) as (shows, _):
                process.send_signal(signal.SIGCONT)
                assert lines_until(process, "in use")[-1:] == ["in use"]
                sent(context, stores.at(), [b"1"])
                soon(lambda: shows.numbers()[-1:] == [1])
