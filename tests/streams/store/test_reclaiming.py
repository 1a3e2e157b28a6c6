"""Segments are freed, also those in which little is left; whenever a process dies, all is there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from onceq.streams.errors import StoreFull
from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import Frame, FrameKind, body_of, decode, encode
from onceq.streams.model.quorum import listed
from onceq.streams.store import reclaiming, records
from onceq.streams.store.catalogue import Step
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.entries import EntryKind
from tests.streams.store.logs import Ailing, Killed, Mortal
from tests.streams.store.test_disk_store import chance

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.streams.store.log.segments import Files

ABC = listed("a b c")
QUICK, SLOW = 7, 8


def data_of(stream: int, number: int) -> bytes:
    return encode(
        Frame(
            kind=FrameKind.MESSAGES,
            stream=stream,
            epoch=1,
            number=number,
            stable=number,
            count=1,
            body=body_of([b"%d of %d" % (number, stream)]),
        )
    )


def begin(store: DiskStore, stream: int) -> None:
    store.do(store.catalogue.fence(asks.Fence(stream=stream, epoch=1, life=5, own=ABC)))
    log = Log(admitted=0, end=0, lists=(ABC,), firsts=(), positions={})
    bridge = Bridge(epoch=1, stage=Stage.SETTLED, lists=(ABC,), firsts=((1, 0),))
    store.admit(asks.Admit(stream=stream, life=5, log=log, bridge=bridge))


def send(store: DiskStore, stream: int, number: int) -> None:
    data = data_of(stream, number)
    assert isinstance(store.take(decode(data), data, 5)[0], asks.Holding)
    store.log.commit()
    store.log.prepare()


def send_all(store: DiskStore, numbers: range) -> None:
    for n in numbers:
        send(store, QUICK, n)


def trim(store: DiskStore, stream: int, below: int) -> None:
    record = records.Trimmed(stream=stream, below=below)
    store.do(Step(records=(record,), answer=asks.Forgot()))
    store.log.commit()


def filled(home: Path, files: Files | None = None) -> DiskStore:
    """Of each segment only the frames of a slow stream are still needed, every fifth."""
    initialize(home, chance, segment_bytes=4_096)
    store = DiskStore(home, chance, files=files)
    begin(store, QUICK)
    begin(store, SLOW)
    for n in range(200):
        send(store, QUICK, n)
        if n % 5 == 0:
            send(store, SLOW, n // 5)
    trim(store, QUICK, 190)
    return store


def check(store: DiskStore) -> None:
    """All is there, once, and nothing is damaged."""
    assert not store.forgot
    assert list(store.read(QUICK, range(900))) == [data_of(QUICK, n) for n in range(190, 200)]
    assert list(store.read(SLOW, range(900))) == [data_of(SLOW, n) for n in range(40)]
    assert all(held.damaged == () for held in store.catalogue.streams.values())
    for segment in store.files.numbers():
        assert store.scrub(segment) == {}


def reclaim(store: DiskStore) -> None:
    while store.reclaiming.step():
        store.reclaim()  # nothing of that step: it is not synced
        store.log.commit()
        store.log.prepare()
        store.reclaim()
    store.log.commit()
    store.reclaim()


def test_what_is_left_of_a_sparse_segment_is_copied_forward(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    before = store.files.numbers()
    assert len(before) >= 6
    assert store.reclaim() == [], "there is something in each"
    reclaim(store)
    assert len(store.files.numbers()) <= 4
    assert store.reclaiming.copied > 20 * len(data_of(SLOW, 0))
    check(store)
    send(store, SLOW, 40)
    send(store, QUICK, 200)
    store.close()
    store = DiskStore(tmp_path / "store", chance)
    assert [decode(one).number for one in store.read(SLOW, range(900))] == [*range(41)]
    store.close()


def test_nothing_is_freed_before_its_copies_are_synced(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    first = store.files.numbers()[0]
    while first in store.index.alive():
        assert store.reclaiming.step()
    assert store.reclaim() == []
    store.log.append(EntryKind.MARK, 0, b"")
    assert store.reclaim() == []
    store.log.commit()
    store.log.append(EntryKind.MARK, 0, b"")
    assert first in store.reclaim(), "what comes later need not be synced"
    store.log.commit()
    check(store)
    store.close()


def test_a_step_copies_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaiming, "STEP_BYTES", 100)
    store = filled(tmp_path / "store")
    assert 100 <= store.reclaiming.step() < 200
    reclaim(store)
    check(store)
    store.close()


def test_what_is_damaged_stays_until_it_is_repaired(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    first = store.files.numbers()[0]
    path = store.files.path(first)
    data = bytearray(path.read_bytes())
    data[data.index(b"2 of 8")] ^= 1
    path.write_bytes(data)
    for _ in range(3):
        reclaim(store)
    assert store.files.numbers()[0] == first
    assert store.catalogue.of(SLOW).damaged == (2,)
    assert [decode(one).number for one in store.read(SLOW, range(3, 900))] == [*range(3, 40)]
    assert store.reclaiming.step() == 0, "nor is it tried for ever"
    assert store.repair(SLOW, data_of(SLOW, 2))
    store.log.commit()
    reclaim(store)
    assert store.files.numbers()[0] > first
    check(store)
    store.close()


def test_a_full_disk_is_freed_with_the_room_that_is_reserved(tmp_path: Path) -> None:
    files = Ailing(tmp_path / "store")
    store = filled(tmp_path / "store", files)
    files.is_full = True
    with pytest.raises(StoreFull):
        send_all(store, range(200, 400))
    end = store.catalogue.of(QUICK).end
    segments = store.files.numbers()
    assert store.reclaiming.step()
    store.log.commit()
    assert len(store.reclaim()) >= 1
    assert len(store.files.numbers()) <= len(segments)
    files.is_full = False
    store.log.prepare()
    send(store, QUICK, end)
    store.close()


@pytest.mark.parametrize("takes_unsynced", [False, True], ids=["killed", "power-cut"])
def test_a_process_may_die_at_each_operation(tmp_path: Path, *, takes_unsynced: bool) -> None:
    filled(tmp_path / "base").close()
    deaths = 0
    for dies_at in range(1_000):
        home = tmp_path / f"dying {dies_at}"
        shutil.copytree(tmp_path / "base", home)
        try:
            files = Mortal(home, dies_at, takes_unsynced=takes_unsynced)
            store = DiskStore(home, chance, files=files)
            reclaim(store)
            store.close()
            break
        except Killed:
            deaths += 1
        after = tmp_path / f"after {dies_at}"
        home.rename(after)
        shutil.copytree(after, home)  # whose lock nobody has
        store = DiskStore(home, chance)
        check(store)
        reclaim(store)
        check(store)
        assert len(store.files.numbers()) <= 5
        store.close()
        store = DiskStore(home, chance)
        check(store)
        store.close()
        shutil.rmtree(after)
        shutil.rmtree(home)
    assert deaths > 40
