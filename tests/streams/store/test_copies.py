"""Copies of an admission that came to nothing are no part of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.streams.model import asks
from onceq.streams.model.frames import decode
from onceq.streams.store.catalogue import Needs
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
    store.keep_copies(admission(2, end=4, firsts=((1, 0),)), [data_of(1, 2), data_of(1, 3)])
    answer, _ = store.admitted(admission(2, end=2, firsts=((1, 0),)))
    assert answer == asks.Holding(epoch=2, end=2, regid=1)
    data = data_of(2, 2)
    store.take(decode(data), data, 5)
    if isinstance(store, DiskStore):
        store.log.commit()
        store.log.prepare()
    found = [decode(one) for one in store.read(S, range(9))]
    assert [(one.epoch, one.number) for one in found] == [(1, 0), (1, 1), (2, 2)]
    if isinstance(store, DiskStore):
        store.close()


def made(home: Path, *, is_disk: bool, count: int) -> Store:
    """A store that holds so many numbers of epoch 1, and has promised epoch 3."""
    store: Store = DiskStore(home, chance) if is_disk else MemoryStore()
    store.do(store.catalogue.fence(fence(1)))
    store.admitted(admission(1))
    for number in range(count):
        data = data_of(1, number)
        store.take(decode(data), data, 5)
    store.do(store.catalogue.fence(fence(3)))
    return store


def log_of(store: Store) -> list[tuple[int, int]]:
    if isinstance(store, DiskStore):
        store.log.commit()
        store.log.prepare()
    return [(one.epoch, one.number) for one in map(decode, store.read(S, range(99)))]


@pytest.mark.parametrize("is_disk", [True, False])
def test_copies_of_another_admission_are_no_part_of_one(home: Path, *, is_disk: bool) -> None:
    """Two lives copy at once, other content: what is between the one's is not taken for its own."""
    store = made(home, is_disk=is_disk, count=1)
    ask = admission(3, end=4, firsts=((1, 0),))
    zombie = admission(2, end=4, firsts=((1, 0), (2, 1)))
    store.keep_copies(ask, [data_of(1, 1)])
    store.keep_copies(zombie, [data_of(2, 1), data_of(2, 2)])
    store.keep_copies(ask, [data_of(1, 2), data_of(1, 3)])
    needs, _ = store.admitted(ask, range(1, 4))
    assert needs == Needs(begin=1, end=4, firsts=((1, 0),))
    assert store.catalogue.of(S).end == 1
    store.keep_copies(ask, [data_of(1, number) for number in range(1, 4)])
    assert store.admitted(ask, range(1, 4))[0] == asks.Holding(epoch=3, end=4, regid=1)
    assert log_of(store) == [(1, number) for number in range(4)]
    if isinstance(store, DiskStore):
        store.close()
        store = DiskStore(home, chance)
        assert log_of(store) == [(1, number) for number in range(4)]
        store.close()


@pytest.mark.parametrize("is_disk", [True, False])
def test_a_log_that_ends_within_copies_that_came_to_nothing(home: Path, *, is_disk: bool) -> None:
    store = made(home, is_disk=is_disk, count=3)
    zombie = admission(2, end=5, firsts=((1, 0), (2, 1)))
    store.keep_copies(zombie, [data_of(2, number) for number in range(1, 5)])
    answer, _ = store.admitted(admission(3, end=2, firsts=((1, 0),)))
    assert answer == asks.Holding(epoch=3, end=2, regid=1)
    for number in range(2, 4):
        data = data_of(3, number)
        store.take(decode(data), data, 5)
    store.do(store.catalogue.fence(fence(4)))
    store.admitted(admission(4, end=3, firsts=((1, 0), (3, 2))))
    assert log_of(store) == [(1, 0), (1, 1), (3, 2)]
    if isinstance(store, DiskStore):
        assert [(one.begin, one.end) for one in store.index.places()[1].runs] == [(0, 2), (2, 3)]
        store.close()
