"""What a store gives up of a stream, for whom it waits, and what it must know for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Stage
from onceq.streams.model.frames import Frame, FrameKind, body_of, decode, encode
from onceq.streams.model.ops import AskStores
from onceq.streams.model.quorum import listed
from onceq.streams.store.catalogue import Step
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.limits import (
    Limits,
    WhenFull,
    is_full,
    overwritten,
    slowest,
    trimmed,
    wanted,
)
from onceq.streams.store.records import Held, Receiver, Trimmed
from onceq.streams.store.statistics import of_streams
from onceq.streams.store.trimming import trim
from onceq.streams.store.weights import MARKS_MAX, STEP_BYTES, Weight, Weights
from tests.streams.store.test_disk_store import S, again, begin, chance

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ABC = listed("a b c")
KB = 1 << 10
ANN = Receiver(regid=3, topic="t", session=9)
BOB = Receiver(regid=4, topic="t", session=10)


def held(*, stable: int = 90, positions: Mapping[str, int] | None = None, **fields: Any) -> Held:
    bridge = Bridge(epoch=2, stage=Stage.SETTLED, lists=(ABC,), firsts=((2, 0),))
    return Held(
        stream=S,
        local=1,
        promised=2,
        bridge=bridge,
        end=fields.pop("end", 100),
        stable=stable,
        positions=positions or {},
        **fields,
    )


def weight(frames: int, size: int, since_s: float = 1.0) -> Weight:
    """So many frames of one number each; each comes a while after the one before."""
    made = Weight()
    for n in range(frames):
        made.add(range(n, n + 1), size, n * since_s)
    return made


sizes = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40 * KB)), min_size=1, max_size=60)


@settings(deadline=None)
@given(sizes=sizes, size=st.integers(0, 2_000 * KB), kept=st.integers(0, 60))
def test_a_weight_is_right_but_for_a_step(
    sizes: list[tuple[int, int]], size: int, kept: int
) -> None:
    made, true = Weight(), list[tuple[range, int]]()
    number = 0
    for count, one in sizes:
        made.add(range(number, number + count), one, 0.0)
        true.append((range(number, number + count), one))
        number += count
    if kept < len(true):  # a cut is between two frames
        made.cut(true[kept][0].start)
        true = true[:kept]
        for _ in range(2):
            numbers = range(made.end, made.end + 1)
            made.add(numbers, 1, 0.0)
            true.append((numbers, 1))
    exact = sum(one for _, one in true)
    assert abs(made.kept - exact) <= STEP_BYTES + 40 * KB
    first = made.first_within(size)
    assert (
        sum(one for numbers, one in true if numbers.start >= first) <= size + STEP_BYTES + 40 * KB
    )
    made.trim(first)
    left = sum(one for numbers, one in true if numbers.stop > first)
    assert left <= made.kept + STEP_BYTES + 40 * KB


def test_a_weight_takes_the_same_memory_however_long_a_stream_is() -> None:
    made = weight(20_000, STEP_BYTES)
    known = made.weighed()
    assert len(known.marks) <= MARKS_MAX
    half = made.kept // 2
    assert made.first_within(half) == pytest.approx(10_000, abs=10_000 / MARKS_MAX * 40)
    assert Weight(known).weighed() == known
    assert Weight(known, 5.0).first_since(5.0) == 0, "what was there before a restart is new"


def test_copies_count_when_their_admission_does() -> None:
    weights = Weights()
    weights.of(1).add(range(10), 5 * KB, 0.0)
    weights.copy(1, range(10, 11), 7 * KB)
    weights.copy(1, range(10, 12), 8 * KB)  # the first admission came to nothing
    assert weights.of(1).kept == 5 * KB
    weights.admit(1, 10, 0.0)
    assert (weights.of(1).kept, weights.of(1).end) == (13 * KB, 12)
    assert Weights(weights.weighed()).of(1).kept == 13 * KB


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        (Limits(), 0),
        (Limits(size_bytes=4 * STEP_BYTES), 90),  # it would be 96, but that is not stable yet
        (Limits(size_bytes=40 * STEP_BYTES), 66),  # with 40 steps it would be full
        (Limits(size_bytes=400 * STEP_BYTES), 0),
        (Limits(age_s=30.0), 70),
        (Limits(age_s=30.0, size_bytes=20 * STEP_BYTES), 83),
    ],
)
def test_what_is_over_a_limit(limits: Limits, want: int) -> None:
    assert wanted(held(), weight(100, STEP_BYTES), limits, 100.0) == want


def test_who_has_as_much_as_its_limit_gives_up_enough_to_take_more() -> None:
    limits, full = Limits(size_bytes=40 * STEP_BYTES), weight(40, STEP_BYTES)
    assert is_full(full, limits)
    for is_forced, room in ((True, 1), (False, 6)):
        full.trim(wanted(held(), full, limits, 0.0, is_forced=is_forced))
        taken = 0
        while not is_full(full, limits):
            full.add(range(full.end, full.end + 1), STEP_BYTES, 0.0)
            taken += 1
        assert taken == room


def test_a_stream_at_its_limit_goes_on_as_fast_as_its_receivers() -> None:
    """Between two looks an eighth of the limit has room; once, it was a thousandth."""
    limits = Limits(size_bytes=MARKS_MAX * 40 * STEP_BYTES)
    size, looks = limits.size_bytes or 0, 20
    full, taken = weight(MARKS_MAX * 40, STEP_BYTES), 0
    for _ in range(looks):
        full.trim(wanted(held(end=full.end, stable=full.end), full, limits, 0.0))
        while not is_full(full, limits):
            full.add(range(full.end, full.end + 1), STEP_BYTES, 0.0)
            taken += STEP_BYTES
    assert taken >= looks * size / 9


def test_a_log_that_begins_behind_what_was_kept_has_the_weight_of_its_copies() -> None:
    weights = Weights()
    weights.of(1).add(range(10), 5 * KB, 0.0)
    weights.copy(1, range(20, 21), 7 * KB)
    weights.admit(1, 10, 0.0, 21, begin=20)
    assert (weights.of(1).kept, weights.of(1).end) == (7 * KB, 21)
    assert weights.of(1).first_within(KB) == 21


def test_what_a_receiver_has_not_got_is_given_up_only_if_that_is_allowed() -> None:
    assert trimmed(held(), 60, 40) == Trimmed(stream=S, below=40)
    assert trimmed(held(), 60, 80) == Trimmed(stream=S, below=60)
    assert trimmed(held(begin=40), 60, 40) is None
    anns = held(positions={ANN.key: 40}, receivers=(ANN,))
    assert overwritten(anns, 60) == Trimmed(stream=S, below=60, forced=True)
    assert overwritten(anns, 30) == Trimmed(stream=S, below=30, forced=False)
    assert overwritten(held(begin=60), 60) is None


def test_who_is_waited_for_is_named() -> None:
    both = held(positions={ANN.key: 50, BOB.key: 40}, receivers=(ANN, BOB))
    assert slowest(both) == (40, BOB.regid)
    assert slowest(held()) == (90, 0), "nobody: what is there is not stable yet"
    assert slowest(held(positions={ANN.key: 90}, receivers=(ANN,))) == (90, 0)


def asked(
    answers: Mapping[str, asks.Answer], *, want: int = 60, **fields: Any
) -> tuple[Trimmed | None, Any]:
    """Run the Program of a store `a`; what it may give up, and what it asked."""
    program = trim(held(**fields), "a", want)
    op: Any = None
    try:
        op = next(program)
        program.send(answers)
    except StopIteration as stop:
        return stop.value, op
    raise AssertionError("it asks once")


def known(below: int, epoch: int = 2, who: Receiver = ANN) -> asks.Known:
    return asks.Known(epoch=epoch, positions={who.key: below})


def test_what_is_freed_is_what_a_recover_set_knows_to_be_acknowledged() -> None:
    found, op = asked({"b": known(30), "c": asks.Refused(promised=3)}, positions={ANN.key: 50})
    assert found == Trimmed(stream=S, below=50), "the greatest that any of them knows"
    assert isinstance(op, AskStores)
    assert op.asked == dict.fromkeys("bc", asks.Positions(stream=S, epoch=2))
    assert op.enough({"b": known(0), "c": known(0)})
    assert not op.enough({"b": known(0)}), "one that is behind might keep others from being heard"
    found, _ = asked({"b": known(30, who=BOB), "c": known(20)}, positions={ANN.key: 50})
    assert found == Trimmed(stream=S, below=30), "of one who is registered elsewhere only"
    assert asked({"b": known(80)})[0] == Trimmed(stream=S, below=60), "no more than is wanted"


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"b": asks.NotAdmitted(), "c": asks.NotAdmitted()},
        {"b": known(80, epoch=1), "c": known(80, epoch=3)},
        {"b": known(0)},
    ],
    ids=["silence", "not-admitted", "other-epochs", "nothing-acknowledged"],
)
def test_nothing_is_freed_that_somebody_may_need(answers: Mapping[str, asks.Answer]) -> None:
    assert asked(answers, positions={ANN.key: 50} if answers != {"b": known(0)} else {})[0] is None


def test_nothing_is_asked_where_nothing_can_be_freed() -> None:
    promised_more = replace(held(), promised=3)
    for one in (held(begin=60), promised_more):
        with pytest.raises(StopIteration) as stop:
            next(trim(one, "a", 60))
        assert stop.value.value is None


# a store on a disk

BIG = 40 * KB


@pytest.fixture
def home(tmp_path: Path) -> Path:
    initialize(tmp_path / "store", chance, segment_bytes=256 * KB)
    return tmp_path / "store"


def send(store: DiskStore, number: int, stable: int) -> asks.Answer:
    data = encode(
        Frame(
            kind=FrameKind.MESSAGES,
            stream=S,
            epoch=1,
            number=number,
            stable=stable,
            count=1,
            body=body_of([bytes(BIG)]),
        )
    )
    answer, _ = store.take(decode(data), data, 5)
    store.log.commit()
    store.log.prepare()
    return answer


def fill(store: DiskStore) -> asks.Full:
    """Sends until the store is full; all of it is stable."""
    for number in range(100):
        answer = send(store, number, number)
        if isinstance(answer, asks.Full):
            assert answer.end == number
            return answer
    raise AssertionError("it is never full")


def test_a_full_store_waits_for_the_receiver_that_it_names(home: Path) -> None:
    limits = Limits(size_bytes=400 * KB)
    store = DiskStore(home, chance, may_keep=limits)
    begin(store, 1)
    store.do(store.catalogue.register(asks.Register(stream=S, epoch=1, topic="t", session=9)))
    full = fill(store)
    assert full.blocking == store.catalogue.of(S).receivers[0].regid
    assert 8 <= full.end <= 13
    (seen,) = of_streams(store)
    assert (seen.is_full, seen.blocking, seen.forced) == (True, full.blocking, 0)
    assert (seen.end, seen.size_bytes) == (full.end, store.weights.of(1).kept)
    store.log.commit()
    store.close()
    store = DiskStore(home, chance, may_keep=limits)
    assert send(store, full.end, full.end) == full, "also after a restart"
    done = asks.Acknowledge(stream=S, regid=full.blocking, below=full.end)
    store.do(store.catalogue.acknowledge(done))
    waits = send(store, full.end, full.end)
    assert waits == asks.Full(end=full.end, blocking=0), "until other stores say so too"
    record = trimmed(store.catalogue.of(S), store.surplus(S), full.end)
    assert record is not None
    store.do(Step(records=(record,), answer=waits))
    assert send(store, full.end, full.end) == asks.Holding(epoch=1, end=full.end + 1)
    store.close()


def test_a_store_that_may_overwrite_takes_all_and_says_what_it_gave_up(home: Path) -> None:
    limits = Limits(size_bytes=400 * KB, when_full=WhenFull.OVERWRITE)
    store = DiskStore(home, chance, may_keep=limits)
    begin(store, 1)
    store.do(store.catalogue.register(asks.Register(stream=S, epoch=1, topic="t", session=9)))
    for number in range(60):
        assert send(store, number, number) == asks.Holding(epoch=1, end=number + 1)
    held_now = store.catalogue.of(S)
    kept = held_now.end - held_now.begin
    assert 5 <= kept <= 14
    (seen,) = of_streams(store)
    assert (seen.is_full, seen.blocking, seen.forced) == (False, 0, 60 - kept)
    assert [decode(one).number for one in store.read(S, range(60))] == [*range(60 - kept, 60)]
    assert store.reclaim()
    store = again(store, home)
    assert store.catalogue.of(S).begin == 60 - kept
    store.close()


def test_what_is_old_is_surplus(home: Path) -> None:
    now = 100.0
    store = DiskStore(home, chance, may_keep=Limits(age_s=60.0), clock=lambda: now)
    begin(store, 1)
    for number in range(10):
        now += 10.0
        send(store, number, number)
    assert store.surplus(S) in {2, 4, 6}
    now += 1_000.0
    assert store.surplus(S) == store.catalogue.of(S).stable
    store.close()
