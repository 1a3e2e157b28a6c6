"""What a store that serves gives to receivers, and what it does for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.streams.model import asks, frames, quorum
from onceq.streams.model.choice import Stage
from onceq.streams.model.ops import AskStores
from onceq.streams.store import acts, catalogue, ranging, serving
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.limits import Limits
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.noting_store import NoCacheStore
from tests.streams.store.logs import Ailing
from tests.streams.store.served import OTHER, Served, fence
from tests.streams.store.test_disk_store import ABC, S, admission, chance, data_of
from tests.streams.store.test_serving import home, served, store

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["home", "served", "store"]  # fixtures


def test_receivers_read_what_is_stable_and_all_of_an_epoch_that_they_saw(served: Served) -> None:
    served.begin()
    served.send(*(data_of(1, n, stable=max(0, n - 1)) for n in range(6)))
    served.commit()
    served.heard()
    served.ask(asks.Read(stream=S, epoch=0, begin=1, end=9), OTHER)
    assert served.heard(OTHER) == [asks.Range(begin=1, end=4, frames=3), 1, 2, 3]
    served.ask(asks.Read(stream=S, epoch=1, begin=3, end=9), OTHER)
    assert served.heard(OTHER) == [asks.Range(begin=3, end=6, frames=3), 3, 4, 5]
    served.ask(asks.Fetch(stream=S, begin=4, end=6), OTHER)
    assert served.heard(OTHER) == [asks.Range(begin=4, end=6, frames=2), 4, 5]
    served.ask(asks.Read(stream=99, epoch=0, begin=1, end=9), OTHER)
    assert served.heard(OTHER) == [asks.Forgot()]


def test_what_is_not_synced_is_not_read(served: Served) -> None:
    served.begin()
    served.send(data_of(1, 0))
    served.ask(asks.Read(stream=S, epoch=1, begin=0, end=9), OTHER)
    assert served.heard(OTHER) == [asks.Range(begin=0, end=0)]


def test_one_answer_has_about_a_mebibyte(served: Served) -> None:
    assert served.serving.range_bytes == ranging.RANGE_BYTES
    served.serving.range_bytes = 3 * len(data_of(1, 0))
    served.begin()
    served.send(*(data_of(1, n) for n in range(9)))
    served.commit()
    served.ask(asks.Fetch(stream=S, begin=2, end=9), OTHER)
    assert served.heard(OTHER) == [asks.Range(begin=2, end=5, frames=3), 2, 3, 4]
    assert ranging.RANGE_BYTES < frames.FRAME_BYTES_MAX * 2


def test_damage_is_said_and_not_served(served: Served) -> None:
    served.begin()
    served.send(*(data_of(1, n) for n in range(6)))
    served.commit()
    served.heard()
    served.store.catalogue.damage(S, range(3, 4))
    path = served.disk.files.path(0)
    data = bytearray(path.read_bytes())
    data[data.index(data_of(1, 3)) + 50] ^= 1
    path.write_bytes(data)
    served.ask(asks.Fetch(stream=S, begin=1, end=6), OTHER)
    assert served.heard(OTHER) == [asks.Range(begin=1, end=3, frames=2, missing=True), 1, 2]


def test_a_full_store_says_so_and_serves_reads(home: Path) -> None:
    files = Ailing(home)
    served = Served(DiskStore(home, chance, files=files))
    served.begin()
    step = asks.Register(stream=S, epoch=1, topic="bars", session=3)
    registered = served.told(step)
    files.is_full = True
    full: list[asks.Full] = []
    for n in range(300):
        served.send(data_of(1, n, stable=n))
        served.commit()
        full += [one for one in served.heard() if isinstance(one, asks.Full)]
        if full:
            break
    end = full[0].end
    assert full == [asks.Full(end=end, blocking=registered.regid)]
    assert end > 50
    served.ask(asks.Read(stream=S, epoch=1, begin=end - 2, end=end), OTHER)
    assert served.heard(OTHER)[1:] == [end - 2, end - 1]
    done = served.told(asks.Acknowledge(stream=S, regid=registered.regid, below=end - 1))
    assert done == asks.Holding(epoch=1, end=end - 1), "it acknowledges and fences"
    assert isinstance(served.told(fence(2)), asks.Found)
    served.disk.close()


def test_receivers_register_acknowledge_and_are_forgotten(served: Served) -> None:
    served.begin()
    served.send(*(data_of(1, n, stable=n) for n in range(5)))
    served.commit()
    served.heard()
    register = asks.Register(stream=S, epoch=1, topic="bars", session=3)
    known = served.told(register, OTHER)
    assert known == asks.Registered(epoch=1, regid=2, old=False, below=0)
    assert served.told(asks.Acknowledge(stream=S, regid=2, below=9), OTHER).end == 4, "stable"
    assert served.told(register, OTHER) == asks.Registered(epoch=1, regid=2, old=True, below=4)
    positions = served.told(asks.Positions(stream=S, epoch=1), OTHER)
    assert positions == asks.Known(epoch=1, positions={"session 3": 4})
    for _ in range(2):
        gone = served.told(asks.Deregister(stream=S, regid=2), OTHER)
        assert gone == asks.Holding(epoch=1, end=5)
    assert served.store.catalogue.of(S).positions == {}
    assert served.told(asks.Deregister(stream=9, regid=2), OTHER) == asks.NotAdmitted()


def test_the_greatest_id_that_may_be_chosen_leaves_ids_for_others(served: Served) -> None:
    served.begin()
    chosen = asks.Register(stream=S, epoch=1, topic="bars", session=0, regid=(1 << 63) - 1)
    assert isinstance(served.told(chosen, OTHER), asks.Registered)
    made = served.told(asks.Register(stream=S, epoch=1, topic="bars", session=3), OTHER)
    assert made == asks.Registered(epoch=1, regid=1 << 63, old=False, below=0)


def test_a_stream_is_found_by_its_topic_and_session(served: Served, home: Path) -> None:
    look, learn = asks.Look(topic="bars", session=9), asks.Learn(topic="bars", session=9)
    assert served.told(look) == asks.Found()
    assert served.told(learn) == asks.Forgot()
    served.told(fence(1))
    assert served.told(learn) == asks.Forgot()
    ask = admission(1)
    served.told(
        asks.Admit(stream=S, life=5, log=ask.log, bridge=ask.bridge, address="127.0.0.1:7500")
    )
    found = served.told(look, OTHER)
    assert (found.stream, found.promised, found.has.bridge) == (S, 1, ask.bridge)
    told = asks.Information(
        stream=S,
        epoch=1,
        stage=Stage.SETTLED,
        firsts=((1, 0),),
        lists=(ABC,),
        address="127.0.0.1:7500",
        stable=0,
        session=9,
    )
    assert served.told(learn, OTHER) == told
    assert served.told(asks.Learn(topic="bars", session=8), OTHER) == asks.Forgot()
    served.disk.close()
    again = Served(DiskStore(home, chance))
    assert again.told(learn, OTHER) == told
    again.disk.close()


def test_a_store_tells_how_far_a_change_of_lists_has_come(served: Served) -> None:
    """Else a receiver could not know that the new list alone counts, in the same epoch."""
    new = quorum.listed("a d")
    ask, learn = admission(1), asks.Learn(topic="bars", session=9)
    served.told(fence(1))
    for stage, lists, governs in (
        (Stage.JOINT, (ABC, new), (ABC,)),
        (Stage.SETTLING, (ABC, new), (ABC, new)),
        (Stage.SETTLED, (new,), (new,)),
    ):
        bridge = replace(ask.bridge, stage=stage, lists=lists)
        served.told(asks.Admit(stream=S, life=5, log=ask.log, bridge=bridge))
        told = served.told(learn, OTHER)
        assert isinstance(told, asks.Information)
        assert (told.epoch, told.stage, told.governs) == (1, stage, governs)


def test_a_store_over_its_limit_asks_what_it_may_give_up() -> None:
    served = Served(MemoryStore(may_keep=Limits(size_bytes=100_000), clock=lambda: 0.0))
    served.begin()
    for n in range(10):
        served.send(data_of(1, n, bytes(50_000), stable=n))
    for _ in range(serving.TRIM_TICKS):
        served.step(acts.Ticked())
    (asked,) = [one for one in served.asked if isinstance(one.op, AskStores)]
    for _ in range(serving.TRIM_TICKS):
        served.step(acts.Ticked())
    assert len([one for one in served.asked if isinstance(one.op, AskStores)]) == 1, "one at once"
    known = asks.Known(epoch=1, positions={"session 3": 1})
    served.step(acts.Answered(program=asked.program, answer={"b": known, "c": known}))
    assert served.store.catalogue.of(S).begin == 1


def test_a_store_that_keeps_nothing_says_so_to_who_reads(tmp_path: Path) -> None:
    home = tmp_path / "keeps nothing"
    initialize(home, chance, segment_bytes=4_096, keeps=False)
    served = Served(NoCacheStore(home, chance))
    served.begin()
    served.send(data_of(1, 0))
    served.commit()
    assert served.heard() == [asks.Noted(epoch=1)]
    assert served.told(asks.Read(stream=S, epoch=1, begin=0, end=9)) == asks.Noted(epoch=1)
    served.disk.close()


def test_streams_and_receivers_are_no_more_than_it_can_tell(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "STREAMS_MAX", 1)
    monkeypatch.setattr(catalogue, "RECEIVERS_MAX", 1)
    served.begin()
    another = asks.Fence(stream=S + 1, epoch=1, life=5, own=ABC)
    assert served.told(another) == asks.Full(end=0)
    assert isinstance(served.told(fence(2, life=6)), asks.Found), "one that is known"
    assert isinstance(served.told(admission(2, 6, firsts=((1, 0),))), asks.Holding)
    first = asks.Register(stream=S, epoch=2, topic="bars", session=3)
    second = asks.Register(stream=S, epoch=2, topic="bars", session=4)
    assert isinstance(served.told(first), asks.Registered)
    assert served.told(second) == asks.Full(end=0, blocking=0)
    assert isinstance(served.told(first), asks.Registered)
