"""A stream that a person deregisters: with real stores, of which one is away, or is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
from msgspec.structs import replace

from onceq import streams
from onceq.errors import InvalidValue
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.running import StoreSettings
from onceq.streams.store.store_process import StoreProcess
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, Shows, read, sent, soon, town
from tests.streams.store.test_disk_store import chance

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)
OLD = [b"old 0", b"old 1", b"old 2"]


class Processes:
    """Stores in processes of their own, which may be killed, at addresses that they keep."""

    def __init__(self, home: Path) -> None:
        self.settings: dict[str, StoreSettings] = {}
        self.running: dict[str, StoreProcess] = {}
        for name in "abc":
            initialize(home / name, chance, segment_bytes=1 << 20)
            self.settings[name] = StoreSettings(listen="127.0.0.1:0", directory=home / name)

    def start(self, name: str) -> None:
        one = StoreProcess(self.settings[name])
        one.start()
        self.settings[name] = replace(self.settings[name], listen=one.address)
        self.running[name] = one

    def kill(self, name: str) -> None:
        one = self.running.pop(name)
        os.kill(one.pid, signal.SIGKILL)
        soon(lambda: one.code is not None)
        with pytest.raises(streams.StoreFailed, match="ended with -9"):
            one.stop()

    def at(self) -> str:
        return " ".join(one.listen for one in self.settings.values())

    def __enter__(self) -> Self:
        for name in "abc":
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.running.values():
            one.stop()


def test_a_store_that_was_away_and_ones_that_were_killed_begin_anew(tmp_path: Path) -> None:
    """The third comes back with the old stream: its source begins another, and it is dropped."""
    with Processes(tmp_path) as stores, streams.open() as context:
        at = stores.at()
        sent(context, at, OLD)
        assert read(context, RAW, 1, at=at.split()[0], session_id=READER).values() == OLD[:2]
        stores.kill("c")
        left = context.deregister(RAW, stores=at, session_id=SENDER)
        assert left == {stores.settings["c"].listen}
        for name in "ab":
            stores.kill(name)
            stores.start(name)
        stores.start("c")
        sent(context, at, [b"new"], within_s=WITHIN_S)
        shows = read(context, RAW, 0, at=stores.settings["c"].listen, session_id=READER)
        assert (shows.numbers(), shows.values()) == ([0], [b"new"])
    for settings in stores.settings.values():
        assert settings.directory is not None
        store = DiskStore(settings.directory, chance)
        gone = [one.stream for one in store.catalogue.streams.values() if one.is_gone]
        alive = [one for one in store.catalogue.streams.values() if not one.is_gone]
        assert (len(gone), [one.end for one in alive]) == (1, [1])
        assert list(store.read(gone[0], range(9))) == []
        store.close()


def test_a_later_call_finishes_what_was_begun_and_leaves_what_was_sent_since(
    tmp_path: Path,
) -> None:
    with town(tmp_path) as stores, streams.open(session_id=SENDER) as context:
        at = stores.at()
        sent(context, at, OLD)
        stores.end("c")
        assert context.deregister(RAW, stores=at) == {stores.at("c")}
        sent(context, at, [b"new"], create="quorum", within_s=WITHIN_S)
        stores.start("c")
        assert context.deregister(RAW, stores=at) == frozenset()
        old = stores.cluster.stores["c"].catalogue.streams.values()
        assert all(one.is_gone or not one.end for one in old)
        assert read(context, RAW, 0, at=stores.at("a"), session_id=READER).values() == [b"new"]
        assert context.deregister(RAW, stores=at) == frozenset()
        for name in "abc":
            kept = stores.cluster.stores[name].catalogue.streams.values()
            assert all(one.is_gone for one in kept), "this call was for what was sent since"


def test_a_live_source_is_not_deleted_under() -> None:
    with town() as stores, streams.open(session_id=SENDER) as context:
        at = stores.at()
        with context.source(RAW, stores=at) as source:
            source.send(b"0")
            source.wait_stable(WITHIN_S)
            with pytest.raises(streams.RegistrationInUse, match=r"has a live source.*nothing was"):
                context.deregister(RAW, stores=at)
            source.send(b"1")
            source.wait_stable(WITHIN_S)
        assert context.deregister(RAW, stores=at) == frozenset()


def test_one_store_that_answers_is_too_few_and_nothing_happens(tmp_path: Path) -> None:
    with town(tmp_path) as stores, streams.open(session_id=SENDER) as context:
        at = stores.at()
        sent(context, at, OLD)
        stores.end("bc")
        with pytest.raises(streams.NotRegistered, match=r"nothing was done\. Start more"):
            context.deregister(RAW, stores=at, timeout_s=0.5)
        stores.start("bc")
        shows = read(context, RAW, 2, at=stores.at("a"), session_id=READER)
        assert shows.values() == OLD


def test_a_receiver_that_lives_is_told() -> None:
    with town() as stores, streams.open(session_id=SENDER) as context:
        at = stores.at()
        sent(context, at, OLD)
        shows, raised = Shows(), list[BaseException]()
        receiver = context.receiver(
            RAW, shows, at=stores.at("a"), session_id=READER, activity_timeout_ms=2_000
        )

        def run() -> None:
            try:
                receiver.run()
            except streams.StreamReplaced as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        soon(lambda: len(shows.shown) == 3)
        assert context.deregister(RAW, stores=at) == frozenset()
        thread.join(WITHIN_S)
        assert "was deregistered" in str(raised[0])
        sent(context, at, [b"new"])
        assert read(context, RAW, 0, at=stores.at("a"), session_id=READER).values() == [b"new"]


def test_the_twin_for_asyncio_does_the_same() -> None:
    async def run(at: str) -> None:
        async with streams.open_async(session_id=SENDER) as context:
            assert await context.deregister(RAW, stores=at) == frozenset(), "nobody knows it"
            async with context.source(RAW, stores=at) as source:
                await source.send(b"0")
                await source.wait_stable(WITHIN_S)
                with pytest.raises(streams.RegistrationInUse):
                    await context.deregister(RAW, stores=at)
            assert await context.deregister(RAW, stores=at) == frozenset()
            async with context.source(RAW, stores=at) as source:
                assert source.next_number == 0

    with town() as stores:
        asyncio.run(run(stores.at()))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"session_id": None}, "give its session_id"),
        ({"session_id": 0}, "session_id is 0"),
        ({"timeout_s": 0}, "timeout_s is 0: give seconds"),
        ({"stores": "here"}, "'here' is no address"),
        ({"stores": "10.1.2.3:7401"}, "give certificates"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    whole: dict[str, Any] = {"stores": "127.0.0.1:7401", "session_id": 5, **given}
    with streams.open() as context, pytest.raises(InvalidValue, match=says):
        context.deregister(RAW, **whole)
