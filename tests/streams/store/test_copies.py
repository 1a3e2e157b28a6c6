"""Copies of an admission that came to nothing are no part of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.streams.model import asks
from onceq.streams.model.frames import decode
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.memory_store import MemoryStore
from tests.streams.store.served import fence
from tests.streams.store.test_disk_store import S, admission, chance, data_of, home

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.streams.store.store import Store

__all__ = ["home"]  # a fixture


@pytest.mark.parametrize("is_disk", [True, False])
def test_copies_of_an_admission_that_came_to_nothing_are_forgotten(
    home: Path, *, is_disk: bool
) -> None:
    store: Store = DiskStore(home, chance) if is_disk else MemoryStore()
    store.do(store.catalogue.fence(fence(1)))
    store.admitted(admission(1))
    for number in range(2):
        data = data_of(1, number)
        store.take(decode(data), data, 5)
    store.do(store.catalogue.fence(fence(2)))
    store.keep_copies(S, [data_of(1, 2), data_of(1, 3)])
    answer, _ = store.admitted(admission(2, end=2, firsts=((1, 0),)))
    assert answer == asks.Holding(epoch=2, end=2)
    data = data_of(2, 2)
    store.take(decode(data), data, 5)
    if isinstance(store, DiskStore):
        store.log.commit()
        store.log.prepare()
    found = [decode(one) for one in store.read(S, range(9))]
    assert [(one.epoch, one.number) for one in found] == [(1, 0), (1, 1), (2, 2)]
    if isinstance(store, DiskStore):
        store.close()
