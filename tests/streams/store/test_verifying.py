"""What can be seen of a store's directory, also while it runs, without a change to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from onceq.streams.errors import StoreRefused
from onceq.streams.model.ops import FetchRange
from onceq.streams.net.asker import Asker
from onceq.streams.store.directory import initialize
from onceq.streams.store.noting_store import NoCacheStore, opened
from onceq.streams.store.verifying import known, scrub_once, verify
from tests.streams.store.test_disk_store import S, begin, chance, data_of, home, send, store
from tests.streams.store.test_scrubbing import COUNT, filled, flip, text

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from onceq.streams.store.disk_store import DiskStore

__all__ = ["home", "store"]  # fixtures


def test_what_a_store_knows_is_seen_while_it_runs(store: DiskStore, home: Path) -> None:
    filled(store)
    before = {one.name: one.stat().st_mtime_ns for one in home.iterdir()}
    _, seen = known(home)
    assert seen.snapshot() == store.catalogue.snapshot()
    seen_of = verify(home)
    assert [one.segment for one in seen_of] == store.files.numbers()
    assert sum(one.frames for one in seen_of) == COUNT
    assert sum(one.damaged for one in seen_of) == 0
    assert {one.name: one.stat().st_mtime_ns for one in home.iterdir()} == before


def test_a_store_of_which_nothing_is_there_knows_nothing(home: Path) -> None:
    assert known(home)[1].streams == {}
    assert verify(home) == []
    with pytest.raises(StoreRefused, match="no store's"):
        known(home.parent)
    with pytest.raises(StoreRefused, match="no store's"):
        verify(home.parent)


def test_damage_is_seen_in_every_segment(store: DiskStore, home: Path) -> None:
    filled(store)
    for n in (0, 60, COUNT - 1):
        flip(store, n)
    send(store, data_of(1, COUNT))
    store.log.commit()
    assert sum(one.damaged for one in verify(home)) == 3
    path = store.files.path(1)
    path.write_bytes(b"\1" * 64 + path.read_bytes()[64:])
    damaged = {one.segment: one.damaged for one in verify(home)}
    assert damaged[1] == 1


def test_a_log_is_scrubbed_once_and_what_is_left_is_said(store: DiskStore) -> None:
    filled(store)
    flip(store, 3)
    flip(store, COUNT - 1)

    class Others(Asker):
        async def perform(self, op: Any) -> Any:
            if isinstance(op, FetchRange):
                return (data_of(1, 3, text(3)),) if op.ask.begin == 3 else None
            return None

    done = asyncio.run(scrub_once(store, "a", Others()))
    assert (done.healed, done.left) == (1, {S: [COUNT - 1]})
    assert done.size > COUNT * len(data_of(1, 3, text(3)))
    assert list(store.read(S, range(3, 4))) == [data_of(1, 3, text(3))]


def test_a_directory_is_opened_as_what_it_is(home: Path, tmp_path: Path) -> None:
    made = opened(home, chance)
    assert made.keeps
    begin(made, 1)
    made.close()
    initialize(tmp_path / "noting", chance, segment_bytes=4_096, keeps=False)
    noting = opened(tmp_path / "noting", chance)
    assert isinstance(noting, NoCacheStore)
    noting.close()
    with pytest.raises(StoreRefused, match="another kind"):
        NoCacheStore(home, chance)
