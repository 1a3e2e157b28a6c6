"""What a store does with what comes: no answer leaves before the disk has what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.streams.errors import WhyRefused
from onceq.streams.model import asks, frames
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import Frame, FrameKind, decode, encode
from onceq.streams.model.ops import FetchRange, WaitUntil
from onceq.streams.net.wire import ask_frame
from onceq.streams.store import acts, serving
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.memory_store import MemoryStore
from tests.streams.store.served import OTHER, SOURCE, Served, fence
from tests.streams.store.test_disk_store import ABC, S, admission, chance, data_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    initialize(tmp_path / "store", chance, segment_bytes=4_096)
    return tmp_path / "store"


@pytest.fixture
def store(home: Path) -> Iterator[DiskStore]:
    made = DiskStore(home, chance)
    yield made
    made.close()


@pytest.fixture
def served(store: DiskStore) -> Served:
    return Served(store)


def test_no_answer_leaves_before_what_it_says_is_synced(served: Served) -> None:
    served.ask(fence(1))
    assert served.heard() == []
    served.commit()
    assert [type(one) for one in served.heard()] == [asks.Found]
    served.ask(admission(1))
    assert served.heard() == []
    served.commit()
    assert served.heard() == [asks.Holding(epoch=1, end=0, regid=1)]
    served.send(*(data_of(1, n) for n in range(3)))
    assert served.heard() == []
    served.commit()
    assert served.heard() == [asks.Holding(epoch=1, end=3)], "one answer for all"
    served.commit()
    assert served.heard() == []


def test_what_is_synced_is_answered_though_more_comes_all_the_time(served: Served) -> None:
    served.begin()
    served.send(data_of(1, 0), data_of(1, 1))
    before = served.store.end
    served.send(data_of(1, 2))
    served.step(acts.Synced(position=before))
    assert served.heard() == [asks.Holding(epoch=1, end=2)]
    served.commit()
    assert served.heard() == [asks.Holding(epoch=1, end=3)]


def test_a_frame_counts_as_of_the_life_that_fenced_on_its_link(served: Served) -> None:
    served.begin()
    served.send(data_of(1, 0), link=OTHER)
    served.commit()
    assert served.heard(OTHER) == [asks.Refused(promised=1)]
    served.step(acts.Gone(link=SOURCE))
    served.step(acts.Opened(link=SOURCE))
    served.send(data_of(1, 0))
    served.commit()
    assert served.heard() == [asks.Refused(promised=1)]
    assert isinstance(served.told(fence(1)), asks.Found), "the same life, again"
    served.send(data_of(1, 0))
    served.commit()
    assert served.heard() == [asks.Holding(epoch=1, end=1)]


def test_a_frame_counts_as_of_the_life_that_was_admitted_on_its_link(served: Served) -> None:
    """A source that connects again asks for no promise: a store that forgot would give it anew."""
    served.begin()
    served.send(data_of(1, 0))
    served.commit()
    assert served.told(admission(1, 4), OTHER) == asks.Refused(promised=1)
    served.send(data_of(1, 1), link=OTHER)
    assert served.heard(OTHER) == [asks.Refused(promised=1)]
    assert served.told(admission(1), OTHER) == asks.Holding(epoch=1, end=1, regid=1)
    served.send(data_of(1, 1), link=OTHER)
    served.commit()
    assert served.heard(OTHER) == [asks.Holding(epoch=1, end=2)]


def test_a_life_that_was_overtaken_hears_so(served: Served) -> None:
    served.begin()
    served.send(data_of(1, 0))
    served.ask(fence(2, life=6), OTHER)
    served.send(data_of(1, 1), data_of(1, 2))
    served.commit()
    assert served.heard() == [asks.Holding(epoch=1, end=1), asks.Refused(promised=2)]
    (found,) = served.heard(OTHER)
    assert (found.promised, found.life, found.has.end) == (2, 6, 1), "with what came before it"


def test_a_gap_and_a_conflict_are_told(served: Served) -> None:
    served.begin()
    served.send(data_of(1, 0))
    served.commit()
    served.heard()
    served.send(data_of(1, 5))
    assert served.heard() == [asks.Holding(epoch=1, end=1)]
    served.send(data_of(1, 0, b"another"))
    assert served.heard() == [asks.Conflict(number=0)]


BAD = data_of(1, 0)
OVERSIZE = frames.HEADER.pack(frames.MAGIC, 1, 1, 0, 0, 1 << 21, 1, 1, 1, 1, 1)
OLD = BAD[:2] + b"\x07" + BAD[3:]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: somewhere.else\r\n\r\n......", WhyRefused.RUBBISH),
        (BAD[:-1] + b"?", WhyRefused.RUBBISH),
        (OVERSIZE, WhyRefused.OVERSIZE),
        (OLD, WhyRefused.OTHER_VERSION),
        (ask_frame(0, 0, asks.Look(topic="t", session=1)), WhyRefused.RUBBISH),
        (
            encode(Frame(kind=FrameKind.ASK, stream=1, epoch=0, number=1, stable=0, body=b"\xc1")),
            WhyRefused.RUBBISH,
        ),
        (
            encode(Frame(kind=FrameKind.ANSWER, stream=1, epoch=0, number=1, stable=0)),
            WhyRefused.RUBBISH,
        ),
    ],
    ids=["http", "crc", "oversize", "version", "no-tag", "no-ask", "answer"],
)
def test_a_link_on_which_something_else_comes_is_closed_and_counted(
    served: Served, data: bytes, why: WhyRefused
) -> None:
    served.begin()
    served.send(data, link=OTHER)
    assert OTHER in served.refused
    assert SOURCE not in served.refused
    assert served.serving.refused == {why: 1}
    served.step(acts.Gone(link=OTHER))
    served.send(data_of(1, 0), link=OTHER)
    served.send(data_of(1, 0))
    served.commit()
    assert served.heard() == [asks.Holding(epoch=1, end=1)]
    assert served.heard(OTHER) == []


def test_who_asks_without_hearing_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "WAITING_MAX", 10)
    for _ in range(10):
        served.ask(fence(1))
    assert served.refused == {}
    served.ask(fence(1))
    assert list(served.refused) == [SOURCE]


ADMIT = asks.Admit(
    stream=S,
    life=5,
    log=Log(admitted=1, end=3, lists=(ABC,), firsts=((1, 0),), positions={}),
    bridge=Bridge(epoch=2, stage=Stage.SETTLED, lists=(ABC,), firsts=((1, 0), (2, 3))),
    donors=("b", "c"),
)


def test_a_store_that_lacks_something_fetches_it_and_then_answers(served: Served) -> None:
    served.told(fence(2))
    tag = served.ask(ADMIT)
    (asked,) = served.asked
    assert isinstance(asked.op, FetchRange)
    assert (asked.op.store, asked.op.ask.begin, asked.op.ask.end) == ("b", 0, 3)
    copies = tuple(data_of(1, n) for n in range(3))
    served.step(acts.Answered(program=asked.program, answer=copies))
    assert served.heard() == []
    served.commit()
    (data,) = served.sent[SOURCE]
    assert decode(data).number == tag
    assert served.heard() == [asks.Holding(epoch=2, end=3, regid=1)]
    served.ask(asks.Fetch(stream=S, begin=0, end=3), OTHER)
    assert served.heard(OTHER)[1:] == [0, 1, 2]


def test_nobody_waits_for_an_admission_whose_link_is_gone(served: Served) -> None:
    served.told(fence(2))
    served.ask(ADMIT)
    (asked,) = served.asked
    served.step(acts.Gone(link=SOURCE))
    assert served.dropped == [asked.program]
    served.step(acts.Answered(program=asked.program, answer=()))
    assert served.store.catalogue.of(S).bridge is None


def test_what_nobody_gives_is_lacking(served: Served) -> None:
    served.told(fence(2))
    served.ask(ADMIT)
    for n in range(10):  # each holder is asked, and some of them again
        if n < len(served.asked):
            served.step(acts.Answered(program=served.asked[n].program, answer=None))
    served.commit()
    assert served.heard() == [asks.Lacking(begin=0, end=3)]


def test_a_store_on_a_disk_is_kept_in_order_and_scrubbed(served: Served) -> None:
    served.begin()
    served.send(*(data_of(1, n, stable=n) for n in range(50)))
    served.commit()
    served.step(acts.Ticked())
    waits = [one for one in served.asked if isinstance(one.op, WaitUntil)]
    assert len(waits) == 1
    for _ in range(8):
        served.step(acts.Answered(program=waits[0].program, answer=None))
    assert served.serving.programs.scrubbing is not None
    assert served.serving.programs.scrubbing.rounds >= 1
    served.commit()
    end = served.store.end
    served.step(acts.Ticked())
    served.commit()
    assert served.store.end in {end, served.store.synced}


def test_a_store_in_memory_answers_at_once() -> None:
    served = Served(MemoryStore())
    served.ask(fence(1))
    assert len(served.heard()) == 1
    served.ask(admission(1))
    served.send(data_of(1, 0))
    assert served.heard() == [asks.Holding(epoch=1, end=0, regid=1), asks.Holding(epoch=1, end=1)]


def test_it_takes_nothing_while_too_much_waits_for_the_disk(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "UNSYNCED_BYTES_MAX", 1_000)
    served.begin()
    pressed = [served.serving.is_pressed]
    served.send(*(data_of(1, n, bytes(100)) for n in range(10)))
    pressed.append(served.serving.is_pressed)
    served.commit()
    assert [*pressed, served.serving.is_pressed] == [False, True, False]
