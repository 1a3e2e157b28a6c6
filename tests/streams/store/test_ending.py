"""What a store does with a stream that a person deregisters, and with what comes of it then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks, uses
from onceq.streams.model.ending import EndStream, Gone
from onceq.streams.store import acts, ending
from onceq.streams.store.catalogue import Catalogue
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.memory_store import MemoryStore
from tests.streams.store.served import OTHER, SOURCE, Served, fence
from tests.streams.store.test_disk_store import S, admission, chance, data_of

if TYPE_CHECKING:
    from pathlib import Path

END = EndStream(stream=S, topic="bars", session=9)


def holding() -> Served:
    """A store that has three messages of a source which is on a link."""
    served = Served(MemoryStore())
    served.ask(fence(1))
    served.ask(replace(admission(1), activity_ms=60_000))
    served.send(*(data_of(1, number, stable=3) for number in range(3)))
    served.commit()
    served.heard()
    return served


def test_a_stream_is_not_ended_while_its_source_is_on_a_link() -> None:
    served = holding()
    assert isinstance(served.told(END, OTHER), uses.InUse)
    assert served.store.catalogue.of(S).end == 3
    served.step(acts.Gone(link=SOURCE))
    assert served.told(END, OTHER) == Gone(stream=S)
    assert served.told(END, OTHER) == Gone(stream=S), "asked again, it is as it was"
    assert len(served.store.catalogue.streams) == 1


@pytest.mark.parametrize(
    "ask",
    [
        fence(9, 8),
        admission(9, 8),
        asks.Register(stream=S, epoch=1, topic="bars", session=5),
        asks.Acknowledge(stream=S, regid=1, below=1),
        asks.Deregister(stream=S, regid=1),
        asks.Positions(stream=S, epoch=1),
        asks.Read(stream=S, epoch=1, begin=0, end=3),
        asks.Fetch(stream=S, begin=0, end=3),
        uses.Leave(stream=S, key="session 5", life=9),
    ],
    ids=lambda one: type(one).__name__,
)
def test_whatever_is_asked_of_it_then_has_one_answer(ask: asks.Ask) -> None:
    served = holding()
    served.step(acts.Gone(link=SOURCE))
    served.ask(END, OTHER)
    served.heard(OTHER)
    assert served.told(ask, OTHER) == Gone(stream=S)


def test_nothing_is_told_of_it_but_that_it_is_gone() -> None:
    served = holding()
    served.step(acts.Gone(link=SOURCE))
    served.ask(END, OTHER)
    served.heard(OTHER)
    looked = served.told(asks.Look(topic="bars", session=9, regid=1), OTHER)
    assert looked == asks.Found(gone=(S,))
    assert served.told(asks.Learn(topic="bars", session=0), OTHER) == asks.Forgot()
    assert served.told(asks.Streams(), OTHER).streams == ()


def test_frames_of_a_source_that_thaws_are_refused() -> None:
    served = Served(MemoryStore())
    served.begin()
    served.ask(END, OTHER)
    served.send(data_of(1, 0))
    assert served.heard() == [asks.Refused(promised=asks.EPOCH_MAX)]


def test_a_disk_keeps_the_tombstone_and_frees_the_rest(tmp_path: Path) -> None:
    initialize(tmp_path / "store", chance, segment_bytes=4_096)
    served = Served(DiskStore(tmp_path / "store", chance))
    served.begin()
    for number in range(20):
        served.send(data_of(1, number, b"x" * 500))
        served.commit()
    assert len(served.disk.files.numbers()) > 2
    served.ask(END, OTHER)
    served.commit()
    served.disk.close()
    for _ in range(2):
        store = DiskStore(tmp_path / "store", chance)
        held = store.catalogue.of(S)
        assert (held.is_gone, held.end, held.topic, held.session) == (True, 0, "bars", 9)
        assert store.weights.of(held.local).kept == 0
        assert store.index.alive() == {}
        store.log.commit()
        store.reclaim()
        assert len(store.files.numbers()) <= 2
        store.close()


def test_without_room_for_another_stream_nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "STREAMS_MAX", 0)
    step = ending.deregister(Catalogue(), END)
    assert (step.answer, step.records) == (asks.Full(end=0), ())
