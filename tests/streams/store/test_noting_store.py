"""A store that keeps no messages knows the rest, and never counts as one that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.streams.model import asks
from onceq.streams.model.choice import Insufficient, Log, Promised, choose
from onceq.streams.model.frames import decode
from onceq.streams.model.losses import acceptance
from onceq.streams.model.quorum import listed
from onceq.streams.store.directory import initialize
from onceq.streams.store.noting_store import NoCacheStore
from tests.streams.store.test_disk_store import ABC, S, admission, chance, data_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    initialize(tmp_path / "store", chance, segment_bytes=4_096, keeps=False)
    return tmp_path / "store"


@pytest.fixture
def store(home: Path) -> Iterator[NoCacheStore]:
    made = NoCacheStore(home, chance)
    yield made
    made.close()


def fence(store: NoCacheStore, epoch: int, life: int = 5) -> asks.Answer:
    ask = asks.Fence(stream=S, epoch=epoch, life=life, own=ABC, topic="bars", session=9)
    step = store.catalogue.fence(ask)
    store.do(step)
    return step.answer


def begun(store: NoCacheStore, epoch: int = 1) -> None:
    fence(store, epoch)
    assert store.admit(admission(epoch))[0] == asks.Noted(epoch=epoch, regid=1)


def take(store: NoCacheStore, number: int, epoch: int = 1, life: int = 5) -> asks.Answer:
    data = data_of(epoch, number, bytes(500), stable=number)
    answer, position = store.take(decode(data), data, life)
    assert store.log.commit() >= position
    store.log.prepare()
    return answer


def again(store: NoCacheStore, home: Path) -> NoCacheStore:
    store.close()
    return NoCacheStore(home, chance)


def test_messages_pass_and_are_not_kept(store: NoCacheStore, home: Path) -> None:
    begun(store)
    for n in range(200):
        assert take(store, n) == asks.Noted(epoch=1)
    assert list(store.read(S, range(200))) == []
    assert not store.keeps
    assert sum(one.stat().st_size for one in home.glob("*.seg")) < 200 * 500 / 3
    store.reclaim()
    assert len(store.files.numbers()) <= 2
    store = again(store, home)
    assert store.catalogue.of(S).end == 200
    assert store.catalogue.of(S).damaged == ()
    store.close()


def test_what_was_missed_does_not_matter(store: NoCacheStore) -> None:
    begun(store)
    assert take(store, 4) == asks.Noted(epoch=1)
    assert take(store, 2) == asks.Noted(epoch=1)
    assert store.catalogue.of(S).end == 5
    assert take(store, 9) == asks.Noted(epoch=1)
    assert store.catalogue.of(S).end == 10


def test_it_heeds_promises_as_every_store(store: NoCacheStore, home: Path) -> None:
    begun(store)
    fence(store, 2, life=6)
    assert take(store, 0) == asks.Refused(promised=2)
    assert take(store, 0, epoch=2, life=6) == asks.NotAdmitted()
    assert fence(store, 1) == asks.Refused(promised=2)
    store = again(store, home)
    assert take(store, 0) == asks.Refused(promised=2)
    store.close()


def test_it_says_how_far_messages_came_and_holds_nothing(store: NoCacheStore, home: Path) -> None:
    begun(store)
    take(store, 6)
    store = again(store, home)
    answer = fence(store, 2)
    assert isinstance(answer, asks.Found)
    assert answer.has == Promised(hints=(ABC,), passed=7)
    found = choose(listed("a"), {"a": answer.has, "b": Promised(), "c": Promised()})
    assert isinstance(found, Insufficient), "nothing of what it saw is left: a person says so"
    found = choose(listed("a"), {"a": answer.has}, acceptance("0-7@0 a b c"))
    assert isinstance(found, Log)
    assert found.end == 0, "a stream of which nobody has a message is new"
    store.close()


def test_a_longer_epoch_goes_on_where_the_source_says(store: NoCacheStore) -> None:
    begun(store)
    take(store, 6)
    fence(store, 2)
    ask = admission(2, end=30, firsts=((1, 0),))
    assert store.admit(ask)[0] == asks.Noted(epoch=2, regid=1), "it copies nothing"
    assert store.catalogue.of(S).end == 30
    take(store, 30, epoch=2)
    assert store.admit(ask)[0] == asks.Noted(epoch=2, regid=1), "settled"
    assert store.catalogue.of(S).end == 31


def test_it_knows_where_receivers_are(store: NoCacheStore, home: Path) -> None:
    begun(store)
    for n in range(5):
        take(store, n)
    step = store.catalogue.register(asks.Register(stream=S, epoch=1, topic="bars", session=3))
    store.do(step)
    assert step.answer == asks.Registered(epoch=1, regid=2, old=False, below=0)
    done = store.catalogue.acknowledge(asks.Acknowledge(stream=S, regid=2, below=4))
    store.do(done)
    assert done.answer == asks.Holding(epoch=1, end=4)
    store.log.commit()
    store = again(store, home)
    known = store.catalogue.register(asks.Register(stream=S, epoch=1, topic="bars", session=3))
    assert known.answer == asks.Registered(epoch=1, regid=2, old=True, below=4)
    store.close()
