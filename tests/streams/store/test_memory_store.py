"""A store in memory does as one on a disk: the same answers, the same frames."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import Frame, FrameKind, body_of, decode, encode
from onceq.streams.model.log import chained
from onceq.streams.model.losses import Lost
from onceq.streams.model.quorum import listed
from onceq.streams.store import records
from onceq.streams.store.catalogue import Needs, Step
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.limits import Limits, WhenFull
from onceq.streams.store.memory_store import MemoryStore
from tests.streams.store.test_disk_store import chance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onceq.streams.store.store import Store

ABC = listed("a b c")
S = 7
LIMITS = (
    None,
    Limits(size_bytes=20 << 10),
    Limits(size_bytes=20 << 10, when_full=WhenFull.OVERWRITE),
)
_names = itertools.count()

small = st.integers(0, 3)
USUAL = (
    *[st.tuples(st.just("take"), st.integers(1, 2), st.just(0))] * 6,
    *[st.tuples(st.just("recover"), small, st.just(1))] * 2,
    *[st.tuples(st.just("acknowledge"), st.just(1), st.integers(0, 9))] * 2,
    st.tuples(st.just("register"), st.just(0), st.just(0)),
)
ODD = (
    st.tuples(st.just("fence"), small, small),
    st.tuples(st.just("admit"), small, small),
    st.tuples(st.just("take"), small, st.integers(-2, 2)),
    st.tuples(st.just("register"), small, small),
    st.tuples(st.just("acknowledge"), small, st.integers(0, 9)),
    st.tuples(st.just("trim"), small, st.integers(0, 9)),
)
STEPS = st.lists(st.one_of(*USUAL, *ODD), min_size=5, max_size=40)


def frame(epoch: int, number: int, count: int, size: int, stable: int) -> bytes:
    return encode(
        Frame(
            kind=FrameKind.MESSAGES,
            stream=S,
            epoch=epoch,
            number=number,
            stable=stable,
            count=count,
            body=body_of([bytes(size)] * count),
        )
    )


class Follower:
    """Does to a store what the steps say; what is asked depends on what it answered before."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.firsts: tuple[tuple[int, int], ...] = ()
        self.epoch = 1

    def step(self, what: str, one: int, two: int) -> Any:
        return getattr(self, what)(one, two)

    def fence(self, one: int, two: int) -> Any:
        self.epoch += one
        ask = asks.Fence(stream=S, epoch=self.epoch, life=two, own=ABC)
        step = self.store.catalogue.fence(ask)
        self.store.do(step)
        return step.answer

    def admit(self, one: int, two: int) -> Any:
        """Admits it, to a log that may be shorter or longer than its own."""
        held = self.store.catalogue.of(S)
        end = max(0, held.end + one - 1)
        firsts = () if held.bridge is None else held.bridge.firsts
        firsts = tuple(pair for pair in firsts if pair[1] <= end)
        log = Log(
            admitted=firsts[-1][0] if firsts else 0,
            end=end,
            lists=(ABC,),
            firsts=firsts,
            positions={},
        )
        bridge = Bridge(
            epoch=self.epoch,
            stage=Stage.SETTLED,
            lists=(ABC,),
            firsts=chained(firsts, self.epoch, end),
            losses=(Lost(epoch=self.epoch, first=end, count=max(0, held.end - end)),),
        )
        ask = asks.Admit(stream=S, life=two, log=log, bridge=bridge)
        answer, _ = self.store.admit(ask)
        if isinstance(answer, Needs) and answer.firsts:
            copies = [
                frame(firsts[-1][0], n, 1, 10, answer.begin)
                for n in range(answer.begin, answer.end)
            ]
            return answer, self.store.admit(ask, copies)[0]
        return answer

    def recover(self, one: int, two: int) -> Any:
        """As a source does that begins an epoch."""
        return self.fence(1, two), self.admit(one, two)

    def take(self, one: int, two: int) -> Any:
        held = self.store.catalogue.of(S)
        number = max(0, held.end + two)
        data = frame(held.promised, number, one, 15_000 + two, held.end)
        return self.store.take(decode(data), data, held.life)[0]

    def register(self, one: int, two: int) -> Any:
        epoch = self.store.catalogue.of(S).promised
        step = self.store.catalogue.register(
            asks.Register(stream=S, epoch=epoch, topic="t", session=one + 1, below=two)
        )
        self.store.do(step)
        return step.answer

    def acknowledge(self, one: int, two: int) -> Any:
        step = self.store.catalogue.acknowledge(asks.Acknowledge(stream=S, regid=one, below=two))
        self.store.do(step)
        return step.answer

    def trim(self, _one: int, two: int) -> Any:
        held = self.store.catalogue.of(S)
        record = records.Trimmed(stream=S, below=min(held.begin + two, held.stable))
        if held.bridge is not None:
            self.store.do(Step(records=(record,), answer=asks.Forgot()))
        return self.store.surplus(S)

    def shown(self) -> Any:
        return self.store.catalogue.snapshot(), list(self.store.read(S, range(1_000)))


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, limits=st.sampled_from(LIMITS))
def test_a_store_in_memory_does_as_one_on_a_disk(
    tmp_path: Path, steps: Sequence[tuple[str, int, int]], limits: Limits | None
) -> None:
    home = tmp_path / str(next(_names))
    initialize(home, chance, segment_bytes=128 << 10)
    disk = DiskStore(home, chance, may_keep=limits, clock=lambda: 0.0)
    both = Follower(disk), Follower(MemoryStore(may_keep=limits, clock=lambda: 0.0))
    try:
        for step in [("fence", 0, 1), ("admit", 1, 1), *steps]:
            here, there = (one.step(*step) for one in both)
            assert here == there, step
            disk.log.commit()
            disk.log.prepare()
            here, there = (one.shown() for one in both)
            assert here == there, step
    finally:
        disk.close()
