"""Whatever a store answered is so after a crash, in any order of lives, frames and syncs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import decode
from onceq.streams.model.log import chained
from onceq.streams.store import acts, records
from onceq.streams.store.catalogue import Step
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from tests.streams.store.served import OTHER, SOURCE, Served, fence
from tests.streams.store.test_disk_store import ABC, S, chance, data_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LINKS = st.sampled_from((SOURCE, OTHER))
STEPS = st.lists(
    st.one_of(
        *[st.tuples(st.just("send"), LINKS, st.integers(1, 9))] * 4,
        st.tuples(st.just("begin"), LINKS, st.integers(1, 2)),
        *[st.tuples(st.just("live"), LINKS, st.integers(1, 2))] * 2,
        st.tuples(st.just("commit"), LINKS, st.just(0)),
        st.tuples(st.just("tick"), LINKS, st.just(0)),
        st.tuples(st.just("crash"), LINKS, st.just(0)),
        st.tuples(st.just("trim"), LINKS, st.integers(1, 20)),
    ),
    max_size=40,
)


class Lived:
    """A store, two links on which lives of a source come and go, and what they were answered."""

    def __init__(self, home: Path) -> None:
        initialize(home, chance, segment_bytes=4_096)
        self.home = home
        self.served = Served(DiskStore(home, chance))
        self.life = 0
        self.epochs = {SOURCE: 0, OTHER: 0}
        self.admitted = {SOURCE: 0, OTHER: 0}
        self.next = {SOURCE: 0, OTHER: 0}
        self.sent: dict[tuple[int, int], bytes] = {}
        self.promised = 0
        self.held = (0, 0)
        self.given_up = 0

    @property
    def store(self) -> DiskStore:
        assert isinstance(self.served.store, DiskStore)
        return self.served.store

    def hear(self) -> None:
        """Take what was answered: from now on it must be so."""
        for link in (SOURCE, OTHER):
            for answer in self.served.heard(link):
                if isinstance(answer, asks.Found):
                    self.promised = max(self.promised, answer.promised)
                if isinstance(answer, asks.Holding):
                    self.admitted[link] = answer.epoch
                    self.held = max(self.held, (answer.epoch, answer.end))

    def step(self, what: str, link: int, much: int) -> None:
        getattr(self, what)(link, much)
        self.hear()
        self.check()

    def begin(self, link: int, more: int) -> None:
        """A life fences with a greater epoch, and goes on with all that the store has."""
        self.life += 1
        epoch = self.store.catalogue.of(S).promised + more
        self.served.ask(fence(epoch, self.life), link)
        has = self.store.catalogue.found(S)
        firsts = () if has.bridge is None else has.bridge.firsts
        log = Log(admitted=has.admitted, end=has.end, lists=(ABC,), firsts=firsts, positions={})
        bridge = Bridge(
            epoch=epoch,
            stage=Stage.SETTLED,
            lists=(ABC,),
            firsts=chained(firsts, epoch, has.end),
        )
        ask = asks.Admit(stream=S, life=self.life, log=log, bridge=bridge)
        self.served.ask(ask, link)
        self.epochs[link], self.next[link] = epoch, has.end

    def send(self, link: int, count: int) -> None:
        """A life that was admitted sends; it may be overtaken by another, and not know it."""
        epoch = self.epochs[link]
        for _ in range(count if epoch and self.admitted[link] == epoch else 0):
            number = self.next[link]
            data = data_of(epoch, number, b"%d.%d by %d" % (epoch, number, link))
            self.sent.setdefault((epoch, number), data)
            self.served.send(data, link=link)
            self.next[link] += 1

    def live(self, link: int, more: int) -> None:
        """A life begins, and hears that it is admitted."""
        self.begin(link, more)
        self.commit()

    def commit(self, *_: int) -> None:
        self.served.commit()

    def tick(self, *_: int) -> None:
        self.served.step(acts.Ticked())

    def trim(self, _: int, much: int) -> None:
        self.served.commit()
        self.hear()
        held = self.store.catalogue.of(S)
        self.given_up = max(self.given_up, min(held.begin + much, held.end))
        record = records.Trimmed(stream=S, below=self.given_up)
        if held.bridge is not None:
            self.served.store.do(Step(records=(record,), answer=asks.Forgot()))

    def crash(self, *_: int) -> None:
        """What was not synced is gone, and so are the links."""
        self.store.close()
        self.served = Served(DiskStore(self.home, chance))
        self.epochs = {SOURCE: 0, OTHER: 0}

    def check(self) -> None:
        held = self.store.catalogue.of(S)
        assert held.promised >= self.promised
        assert held.damaged == ()
        assert held.begin <= self.given_up
        epoch, end = self.held
        assert held.end >= end or epoch < held.promised
        frames = [decode(one) for one in self.store.read(S, range(10_000))]
        numbers = [one.number for one in frames]
        assert numbers == [*range(held.begin, held.begin + len(numbers))]
        assert held.begin + len(numbers) >= min(end, held.end)
        for one in frames:
            expected = decode(self.sent[one.epoch, one.number])
            assert one.body == expected.body


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_what_was_answered_is_so(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    lived = Lived(tmp_path_factory.mktemp("home") / "store")
    try:
        for step in [("live", SOURCE, 1), *steps, ("commit", SOURCE, 0), ("crash", SOURCE, 0)]:
            lived.step(*step)
    finally:
        lived.store.close()
