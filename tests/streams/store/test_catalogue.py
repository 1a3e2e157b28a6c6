"""The catalogue: what a store knows, decides and answers, and that replaying its log gives it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import Frame, FrameKind, body_of
from onceq.streams.model.log import chained
from onceq.streams.model.losses import Lost
from onceq.streams.model.quorum import listed
from onceq.streams.store import records
from onceq.streams.store.catalogue import Catalogue, Needs, Step, serving
from onceq.streams.store.log.entries import EntryKind

ABC = listed("a b c")
S = 7


def fence(epoch: int, life: int = 5) -> asks.Fence:
    return asks.Fence(stream=S, epoch=epoch, life=life, own=ABC)


def admit(
    epoch: int, life: int = 5, *, end: int = 0, admitted: int = 0, **of_log: Any
) -> asks.Admit:
    firsts = of_log.pop("firsts", ())
    log = Log(admitted=admitted, end=end, lists=(ABC,), firsts=firsts, positions=of_log)
    bridge = Bridge(
        epoch=epoch, stage=Stage.SETTLED, lists=(ABC,), firsts=chained(firsts, epoch, end)
    )
    return asks.Admit(stream=S, life=life, log=log, bridge=bridge)


def frame(epoch: int, number: int, *, stable: int = 0, count: int = 1) -> Frame:
    body = body_of([b"m"] * count)
    return Frame(
        kind=FrameKind.MESSAGES,
        stream=S,
        epoch=epoch,
        number=number,
        stable=stable,
        count=count,
        body=body,
    )


class Store:
    """A catalogue, and the log that it would have: everything is applied when it is appended."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.log: list[records.Record | Frame] = []

    def do(self, step: Step | Needs) -> asks.Answer:
        assert isinstance(step, Step)
        for record in step.records:
            back = records.record_of(records.KINDS[type(record)], records.packed(record))
            assert back == record
            self.log.append(record)
            self.catalogue.apply(record)
        return step.answer

    def take(self, one: Frame, life: int = 5) -> asks.Answer:
        taken = self.catalogue.take(one, life)
        if taken.append:
            self.log.append(one)
        if isinstance(taken.answer, asks.Holding):
            self.catalogue.apply_frame(one)
        return taken.answer

    def fence(self, epoch: int, life: int = 5) -> asks.Answer:
        return self.do(self.catalogue.fence(fence(epoch, life)))

    def admitted(self, epoch: int, life: int = 5) -> Store:
        assert isinstance(self.fence(epoch, life), asks.Found)
        assert isinstance(self.do(self.catalogue.admit(admit(epoch, life))), asks.Holding)
        return self


def test_a_store_that_knows_nothing_promises_and_says_so() -> None:
    store = Store()
    answer = store.fence(3)
    assert isinstance(answer, asks.Found)
    assert answer.has.bridge is None
    assert store.catalogue.found(S).hints == (ABC,)
    assert store.fence(3, life=6) == asks.Refused(promised=3)
    assert store.fence(2) == asks.Refused(promised=3)
    assert isinstance(store.fence(3), asks.Found), "asked again by its own life"
    assert len(store.log) == 1


def test_a_promise_is_answered_with_what_is_had_after_it() -> None:
    store = Store().admitted(1)
    for number in range(4):
        assert store.take(frame(1, number, stable=number)) == asks.Holding(epoch=1, end=number + 1)
    answer = store.fence(2, life=6)
    assert isinstance(answer, asks.Found)
    assert (answer.has.end, answer.has.stable, answer.has.admitted) == (4, 3, 1)
    assert store.take(frame(1, 4)) == asks.Refused(promised=2), "the old life is heeded no more"
    assert serving(store.catalogue.of(S)) == 0


def test_a_frame_is_taken_in_order_and_once() -> None:
    store = Store().admitted(1)
    assert store.take(frame(1, 0, count=3)) == asks.Holding(epoch=1, end=3)
    assert store.take(frame(1, 5)) == asks.Holding(epoch=1, end=3), "a gap"
    again = store.catalogue.take(frame(1, 0, count=3), 5)
    assert again.compare
    assert not again.append
    only_stable = frame(1, 3, stable=2, count=0)
    assert store.take(only_stable) == asks.Holding(epoch=1, end=3)
    assert store.catalogue.of(S).stable == 2
    assert len([one for one in store.log if isinstance(one, Frame)]) == 1


def test_frames_before_an_admission_are_not_taken() -> None:
    store = Store()
    assert store.take(frame(1, 0)) == asks.Forgot()
    store.fence(1)
    assert store.take(frame(1, 0)) == asks.NotAdmitted()
    store.do(store.catalogue.admit(admit(1)))
    assert store.take(frame(2, 0)) == asks.NotAdmitted(), "of a later epoch: admit it late"


def test_a_store_that_forgot_is_admitted_only_by_its_own_promise() -> None:
    store = Store()
    assert store.do(store.catalogue.admit(admit(4))) == asks.Forgot()
    store.fence(4)
    assert store.do(store.catalogue.admit(admit(4, life=6))) == asks.Refused(promised=4)
    assert store.do(store.catalogue.admit(admit(4))) == asks.Holding(epoch=4, end=0, regid=1)


def test_a_store_copies_what_it_lacks_before_it_is_admitted() -> None:
    store = Store().admitted(1)
    for number in range(2):
        store.take(frame(1, number))
    ask = admit(3, life=6, end=5, admitted=2, firsts=((1, 0), (2, 4)))
    needs = store.catalogue.admit(ask)
    assert needs == Needs(begin=2, end=5, firsts=((1, 0), (2, 4)))
    assert isinstance(store.catalogue.admit(ask, range(2, 4)), Needs), "not enough"
    assert store.do(store.catalogue.admit(ask, range(2, 5))) == asks.Holding(
        epoch=3, end=5, regid=1
    )
    held = store.catalogue.of(S)
    assert (held.promised, held.life, held.end, held.begin) == (3, 6, 5, 0)


def test_copies_that_begin_later_say_what_was_trimmed() -> None:
    store = Store()
    store.fence(3)
    ask = admit(3, end=9, admitted=2, firsts=((2, 0),), **{"session 1": 6})
    assert isinstance(store.catalogue.admit(ask), Needs)
    store.do(store.catalogue.admit(ask, range(6, 9)))
    held = store.catalogue.of(S)
    assert (held.begin, held.end) == (6, 9)
    assert held.positions == {"session 1": 6}


def test_what_the_chosen_log_lacks_is_cut_and_stable_is_never() -> None:
    store = Store().admitted(1)
    for number in range(4):
        store.take(frame(1, number, stable=2))
    ask = admit(2, life=6, end=3, admitted=1, firsts=((1, 0),))
    assert store.do(store.catalogue.admit(ask)) == asks.Holding(epoch=2, end=3, regid=1)
    assert store.catalogue.of(S).end == 3
    below = admit(3, life=6, end=1, admitted=1, firsts=((1, 0),))
    assert store.do(store.catalogue.admit(below)) == asks.Lacking(begin=1, end=2)
    lost = (Lost(epoch=3, first=1, count=3),)
    accepted = replace(below, bridge=replace(below.bridge, losses=lost))
    assert store.do(store.catalogue.admit(accepted)) == asks.Holding(epoch=3, end=1, regid=1)
    assert store.catalogue.of(S).stable == 1


def register(epoch: int, session: int = 9, **fields: Any) -> asks.Register:
    return asks.Register(stream=S, epoch=epoch, topic="bars", session=session, **fields)


def test_a_session_keeps_its_regid_and_its_position() -> None:
    store = Store().admitted(1)
    first = store.do(store.catalogue.register(register(1)))
    assert first == asks.Registered(epoch=1, regid=2, old=False, below=0)
    for number in range(5):
        store.take(frame(1, number, stable=number))
    store.do(store.catalogue.acknowledge(asks.Acknowledge(stream=S, regid=2, below=3)))
    again = store.do(store.catalogue.register(register(1)))
    assert again == asks.Registered(epoch=1, regid=2, old=True, below=3)
    other = store.do(store.catalogue.register(register(1, session=10)))
    assert isinstance(other, asks.Registered)
    assert other.regid == 3


def test_receivers_without_a_session_are_not_one() -> None:
    store = Store().admitted(1)
    regids: list[int] = []
    for _ in range(2):
        answer = store.do(store.catalogue.register(register(1, session=0)))
        assert isinstance(answer, asks.Registered)
        assert not answer.old
        regids.append(answer.regid)
    assert regids == [2, 3]
    again = store.do(store.catalogue.register(register(1, session=0, regid=3)))
    assert again == asks.Registered(epoch=1, regid=3, old=True, below=0)


def test_a_chosen_id_replaces_nobody() -> None:
    store = Store().admitted(1)
    first = store.do(store.catalogue.register(register(1, session=21)))
    assert isinstance(first, asks.Registered)
    for session in (0, 22):
        ask = register(1, session=session, regid=first.regid)
        assert store.do(store.catalogue.register(ask)) == asks.Refused(promised=1)
    assert [one.session for one in store.catalogue.of(S).receivers] == [21]
    chosen = register(1, session=22, regid=50)
    assert store.do(store.catalogue.register(chosen)) == asks.Registered(
        epoch=1, regid=50, old=False, below=0
    )
    again = store.do(store.catalogue.register(register(1, session=22, regid=60)))
    assert again == asks.Registered(epoch=1, regid=50, old=True, below=0), "it is one receiver"
    assert len(store.catalogue.of(S).receivers) == 2


def test_no_more_than_what_is_stable_is_acknowledged() -> None:
    store = Store().admitted(1)
    store.do(store.catalogue.register(register(1)))
    store.take(frame(1, 0, count=9))
    store.take(frame(1, 9, stable=4, count=0))
    store.do(store.catalogue.acknowledge(asks.Acknowledge(stream=S, regid=2, below=9)))
    assert store.catalogue.of(S).positions == {"session 9": 4}


def test_nobody_registers_or_acknowledges_between_a_promise_and_an_admission() -> None:
    store = Store().admitted(1)
    store.do(store.catalogue.register(register(1)))
    store.fence(2, life=6)
    acknowledge = asks.Acknowledge(stream=S, regid=2, below=0)
    for epoch in (0, 1, 2):
        assert store.do(store.catalogue.register(register(epoch))) == asks.NotAdmitted()
    assert store.do(store.catalogue.acknowledge(acknowledge)) == asks.NotAdmitted()


def test_a_receiver_that_is_not_known_acknowledges_nothing() -> None:
    store = Store().admitted(1)
    acknowledge = asks.Acknowledge(stream=S, regid=2, below=3)
    assert store.do(store.catalogue.acknowledge(acknowledge)) == asks.NotAdmitted()
    store.do(store.catalogue.register(register(1)))
    store.catalogue.apply(records.Deregistered(stream=S, regid=2))
    assert store.catalogue.of(S).positions == {}
    assert store.do(store.catalogue.acknowledge(acknowledge)) == asks.NotAdmitted()


def test_above_what_is_stable_only_who_saw_the_epoch_reads() -> None:
    store = Store().admitted(2)
    store.take(frame(2, 0, count=5))
    store.take(frame(2, 5, stable=3, count=0))
    ask = asks.Read(stream=S, epoch=0, begin=1, end=99)
    assert store.catalogue.readable(ask) == range(1, 3)
    assert store.catalogue.readable(asks.Read(stream=S, epoch=1, begin=1, end=99)) == range(1, 3)
    assert store.catalogue.readable(asks.Read(stream=S, epoch=2, begin=1, end=99)) == range(1, 5)
    store.catalogue.apply(records.Trimmed(stream=S, below=2))
    assert store.catalogue.readable(ask) == range(2, 3)


def test_damage_above_what_is_stable_silences_a_store_until_it_is_repaired() -> None:
    store = Store().admitted(1)
    store.take(frame(1, 0, count=5))
    store.take(frame(1, 5, stable=3, count=0))
    store.catalogue.damage(S, range(1, 2))
    assert store.catalogue.found(S).whole, "below: others have it"
    store.catalogue.damage(S, range(4, 5))
    assert not store.catalogue.found(S).whole
    assert store.do(store.catalogue.admit(admit(1))) == asks.Forgot(), "it does not have 4"
    store.catalogue.repair(S, range(4, 5))
    assert store.catalogue.found(S).whole
    assert store.do(store.catalogue.admit(admit(1))) == asks.Holding(epoch=1, end=5, regid=1)
    assert store.catalogue.of(S).damaged == (1,)


def test_streams_have_short_numbers_of_their_own() -> None:
    catalogue = Catalogue()
    for stream in (90, 80, 70):
        step = catalogue.fence(asks.Fence(stream=stream, epoch=1, life=1, own=ABC))
        for record in step.records:
            catalogue.apply(record)
    assert [catalogue.of(stream).local for stream in (90, 80, 70)] == [1, 2, 3]
    assert catalogue.of(60).local == 4


def test_every_record_has_an_entry_of_its_own_kind() -> None:
    assert len(set(records.KINDS.values())) == len(records.KINDS)
    assert EntryKind.SNAPSHOT not in records.KINDS.values()


class Driven(Store):
    """A store to which something happens, by chance."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        self.epoch = 0

    @property
    def held(self) -> records.Held:
        return self.catalogue.of(S)

    def promise(self) -> None:
        self.epoch += self.chance.randrange(2)
        self.fence(self.epoch, self.chance.randrange(1, 3))

    def admit(self) -> None:
        held = self.held
        ask = admit(held.promised, held.life, end=held.end, admitted=held.promised)
        step = self.catalogue.admit(ask)
        if isinstance(step, Step):
            self.do(step)

    def register(self) -> None:
        ask = register(self.held.promised, self.chance.randrange(1, 4))
        self.do(self.catalogue.register(ask))

    def acknowledge(self) -> None:
        for receiver in self.held.receivers[:1]:
            ask = asks.Acknowledge(stream=S, regid=receiver.regid, below=self.chance.randrange(9))
            self.do(self.catalogue.acknowledge(ask))

    def send(self) -> None:
        held = self.held
        stable = self.chance.randint(held.stable, held.end)
        self.take(frame(held.promised, held.end, stable=stable), held.life)


@pytest.mark.parametrize("seed", range(10))
def test_replaying_a_log_from_any_snapshot_gives_the_same(seed: int) -> None:
    """A store that starts anew knows what it knew: a snapshot, and the records behind it."""
    store = Driven(seed)
    snapshots = [(0, records.packed(store.catalogue.snapshot()))]
    for _ in range(60):
        doing = (store.promise, store.admit, store.register, store.acknowledge, store.send)
        store.chance.choice(doing)()
        snapshots.append((len(store.log), records.packed(store.catalogue.snapshot())))
    assert store.log
    for at, packed in snapshots:
        again = Catalogue(records.snapshot_of(packed))
        for one in store.log[at:]:
            if isinstance(one, Frame):
                again.apply_frame(one)
            else:
                again.apply(one)
        assert again.snapshot() == store.catalogue.snapshot()


def test_a_stage_that_comes_late_does_not_undo_a_later_one() -> None:
    """The source counts on it that a stable set has noted the later one."""
    store = Store()
    store.fence(1)
    settled = admit(1)
    joint = replace(settled, bridge=replace(settled.bridge, stage=Stage.JOINT))
    for ask in (joint, settled, joint):
        answer = store.do(store.catalogue.admit(ask))
        assert answer == asks.Holding(epoch=1, end=0, regid=1)
    bridge = store.catalogue.of(S).bridge
    assert bridge is not None
    assert bridge.stage is Stage.SETTLED


def test_an_id_that_was_given_to_another_since_acknowledges_nothing() -> None:
    """The store was wiped, and its ids began anew: what it hears is of a receiver of before."""
    store = Store()
    store.fence(1)
    store.do(store.catalogue.admit(admit(1)))
    for number in range(3):
        store.take(frame(1, number, stable=number))
    other = asks.Register(stream=S, epoch=1, topic="t", session=22)
    answer = store.do(store.catalogue.register(other))
    assert isinstance(answer, asks.Registered)
    late = asks.Acknowledge(stream=S, regid=answer.regid, below=2, session=21)
    assert store.do(store.catalogue.acknowledge(late)) == asks.NotAdmitted()
    gone = asks.Deregister(stream=S, regid=answer.regid, session=21)
    store.do(store.catalogue.deregister(gone))
    assert store.catalogue.of(S).positions == {"session 16": 0}
    own = asks.Acknowledge(stream=S, regid=answer.regid, below=2, session=22)
    assert store.do(store.catalogue.acknowledge(own)) == asks.Holding(epoch=1, end=2)
