"""A store in this process: run once, stopped in order, and what it tells the log."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from onceq import streams
from onceq.errors import IllegalState, InvalidValue, OnceqError
from onceq.streams import bridging, logged
from onceq.streams.api import async_context, context
from onceq.streams.errors import StoreFailed, StoreRefused
from onceq.streams.model import asks
from onceq.streams.net.alone import Alone
from onceq.streams.store import running
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.reporting import Reporting
from onceq.streams.store.running import RunningStore, StoreKind, StoreSettings, run_store, serve
from tests.events import Events, emits
from tests.streams.net.daemons import WITHIN_S, serving, soon
from tests.streams.net.test_daemon import begun
from tests.streams.store.logs import Ailing
from tests.streams.store.test_disk_store import S, chance, data_of
from tests.streams.store.test_metrics import STREAM

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.streams.store.store import Store

MEMORY = StoreSettings(listen="127.0.0.1:0", kind=StoreKind.MEMORY)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Alone:
    """This process, as if nothing had run in it."""
    one = Alone()
    for module in (running, context, async_context, bridging):
        monkeypatch.setattr(module, "PROCESS", one)
    return one


def settings(home: Path) -> StoreSettings:
    """A new store on a disk, with segments that are made at once."""
    initialize(home / "store", chance, segment_bytes=1 << 20)
    return StoreSettings(listen="127.0.0.1:0", directory=home / "store")


@emits(logged.StoreBegan, logged.StoreStopped)
def test_a_store_runs_in_this_process_once(events: Events, tmp_path: Path) -> None:
    found: list[RunningStore] = []

    def ready(one: RunningStore) -> None:
        found.append(one)
        assert one.statistics().address == one.address
        one.stop()

    run_store(settings(tmp_path), ready=ready)
    (began,) = events.of(logged.StoreBegan)
    assert began == {
        "address": found[0].address,
        "directory": str(tmp_path / "store"),
        "forgot": False,
    }
    assert events.of(logged.StoreStopped) == [{"address": found[0].address}]
    DiskStore(tmp_path / "store", chance).close()
    with pytest.raises(IllegalState, match="does so once"):
        run_store(MEMORY)


def test_a_store_is_stopped_from_another_thread(tmp_path: Path) -> None:
    ready, found = threading.Event(), list[RunningStore]()

    def began(one: RunningStore) -> None:
        found.append(one)
        ready.set()

    given = settings(tmp_path)
    thread = threading.Thread(target=lambda: run_store(given, ready=began))
    thread.start()
    assert ready.wait(WITHIN_S)
    found[0].stop()
    thread.join(WITHIN_S)
    assert not thread.is_alive()
    found[0].stop()
    DiskStore(tmp_path / "store", chance).close()


def test_a_store_and_a_context_are_never_in_one_process(alone: Alone) -> None:
    alone.open_context()
    with pytest.raises(IllegalState, match="a process of its own"):
        run_store(MEMORY)
    alone.close_context()
    run_store(MEMORY, ready=lambda one: one.stop())
    with pytest.raises(IllegalState, match="use another process"):
        alone.open_context()


def bridge() -> streams.Bridge:
    def take(_: list[streams.Message[bytes]], __: streams.IntoContext[object]) -> None:
        """Takes nothing."""

    topic = streams.Topic("raw")
    return streams.into(topic, take, name="a", at="127.0.0.1:1", source_session_id=1)


async def enter() -> None:
    async with streams.open_async(session_id=1):
        run_store(MEMORY)


def test_a_context_that_is_open_refuses_a_store() -> None:
    with (
        streams.open(session_id=1),
        streams.open(session_id=2),
        pytest.raises(IllegalState, match="by StoreProcess"),
    ):
        run_store(MEMORY)
    with pytest.raises(IllegalState, match="by StoreProcess"):
        asyncio.run(enter())
    run_store(MEMORY, ready=lambda one: one.stop())


def test_a_process_that_ran_a_store_has_no_contexts_and_no_bridges() -> None:
    run_store(MEMORY, ready=lambda one: one.stop())
    with pytest.raises(IllegalState, match="use another process"):
        streams.open(session_id=1)
    with pytest.raises(IllegalState, match="use another process"):
        asyncio.run(enter())
    with pytest.raises(IllegalState, match="use another process"):
        bridge().run()


def test_a_bridge_that_cannot_begin_leaves_nothing(alone: Alone) -> None:
    with pytest.raises(OnceqError):
        streams.into(
            streams.Topic("raw"),
            lambda _, __: None,
            name="a",
            at="127.0.0.1:1",
            source_session_id=1,
            url="postgresql://127.0.0.1:1/none",
        ).run()
    assert alone.contexts == 0


def test_what_was_refused_has_not_run(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="no store's"):
        run_store(StoreSettings(listen="127.0.0.1:0", directory=tmp_path))
    (tmp_path / "file").touch()
    beneath = StoreSettings(listen="127.0.0.1:0", directory=tmp_path / "file" / "store", init=True)
    with pytest.raises(StoreFailed, match="cannot be opened"):
        run_store(beneath)
    with pytest.raises(InvalidValue, match="without TLS"):
        run_store(StoreSettings(listen="192.0.2.1:7401", kind=StoreKind.MEMORY))
    run_store(settings(tmp_path), ready=lambda one: one.stop())


@pytest.mark.parametrize("which", ["listen", "metrics"])
def test_where_another_listens_none_can(which: str) -> None:
    async def run() -> None:
        async with serving(MemoryStore()) as (_, taken):
            one = replace(MEMORY, **{which: taken})
            with pytest.raises(StoreRefused, match=f"cannot listen at {taken}"):
                await serve(running.opened_as(one), one, lambda _: None)

    asyncio.run(run())


async def served(store: Store, one: StoreSettings) -> tuple[asyncio.Task[None], RunningStore]:
    ready: asyncio.Future[RunningStore] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve(store, one, ready.set_result))
    async with asyncio.timeout(WITHIN_S):
        return task, await ready


@emits(logged.StoreFailed)
def test_a_failed_sync_ends_it_with_a_clear_word(events: Events, tmp_path: Path) -> None:
    async def run() -> None:
        given = settings(tmp_path)
        files = Ailing(tmp_path / "store")
        store = DiskStore(tmp_path / "store", chance, files=files)
        task, one = await served(store, given)
        source = await begun(one.address)
        files.sync_fails = True
        source.link.send(data_of(1, 0))
        assert await source.heard() is None, "nothing was acknowledged"
        with pytest.raises(StoreFailed, match="What was acknowledged is there"):
            await task
        assert events.of(logged.StoreFailed) == [
            {"address": one.address, "error": f"[Errno 5] {os.strerror(errno.EIO)}"}
        ]
        store.close()

    asyncio.run(run())


def test_a_store_that_serves_looks_at_its_streams_for_the_log(
    events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LOOK_S", 0.01)

    async def run() -> None:
        given = settings(tmp_path)
        store = DiskStore(tmp_path / "store", chance)
        task, one = await served(store, given)
        source = await begun(one.address)
        source.link.send(data_of(1, 0))
        await source.until(asks.Holding(epoch=1, end=1))
        store.catalogue.damage(S, range(1))
        await soon(lambda: bool(events.of(logged.StreamDamaged)))
        monkeypatch.setattr(type(store.log), "is_full", property(lambda _: True))
        await soon(lambda: bool(events.of(logged.StoreFull)))
        monkeypatch.undo()
        await soon(lambda: bool(events.of(logged.StoreHasRoom)))
        source.link.close()
        one.stop()
        await task
        store.close()

    asyncio.run(run())


@emits(logged.StoreFull, logged.StoreHasRoom)
def test_a_full_disk_is_told_once_and_that_it_has_room_again(events: Events) -> None:
    reporting = Reporting("of a store")
    for is_full in (False, True, True, False, False):
        reporting.look([], is_disk_full=is_full)
    assert events.of(logged.StoreFull) == [{"directory": "of a store"}]
    assert events.of(logged.StoreHasRoom) == [{"directory": "of a store"}]


@emits(
    logged.StreamFull,
    logged.StreamHasRoom,
    logged.StreamDamaged,
    logged.StreamOverwritten,
    logged.ReceiversForgotten,
)
def test_what_changed_is_told_once(events: Events) -> None:
    reporting = Reporting()
    topic = {"stream": f"{0xABC:016x}", "topic": STREAM.topic}
    for _ in range(2):
        reporting.look([STREAM])
    assert events.of(logged.StreamFull) == [{**topic, "blocking": 4, "receiver": "session b5"}]
    assert events.of(logged.StreamDamaged) == [{**topic, "count": 1}]
    assert events.of(logged.StreamOverwritten) == [{**topic, "count": 6}]
    assert events.of(logged.ReceiversForgotten) == [{**topic, "count": 2}]
    assert events.of(logged.StreamHasRoom) == []
    healed = replace(STREAM, is_full=False, damaged=0)
    for _ in range(2):
        reporting.look([healed])
    assert events.of(logged.StreamHasRoom) == [topic]
    assert events.of(logged.StreamDamaged) == [{**topic, "count": 1}, {**topic, "count": 0}]
