"""Where numbers are: runs in memory, and marks beside each segment that can be made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceq.streams.model import asks
from onceq.streams.store import records
from onceq.streams.store.catalogue import Step
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log import entries, marks
from onceq.streams.store.log.entries import (
    HEAD_BYTES,
    Entry,
    EntryKind,
    Geometry,
    SegmentHead,
    decode_head,
    encode,
    scan,
    walk,
)
from onceq.streams.store.log.index import Index, Run
from onceq.streams.store.log.marks import MARK_BYTES, Marks
from tests.streams.store.logs import Ailing
from tests.streams.store.test_disk_store import S, again, begin, chance, data_of, send

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MB = 1 << 20
BIG = 20_000
HEAD = SegmentHead(number=3, salt=77, store=b"0123456789abcdef")


def runs_of(index: Index, local: int = 1) -> list[tuple[int, int, EntryKind]]:
    return [(one.begin, one.end, one.kind) for one in index.places()[local].runs]


def filled() -> Index:
    """40 frames of 40,000 bytes, of which 27 fit into the first segment."""
    geometry = Geometry(segment_bytes=MB)
    index = Index(geometry)
    at = geometry.first(0) + 64
    for number in range(40):
        index.add(1, range(number, number + 1), at + number * 40_000, 40_000)
    return index


F, C, R = EntryKind.FRAME, EntryKind.COPY, EntryKind.RELOCATED
LATER = Geometry(segment_bytes=MB).first(2) + 64


def test_an_index_has_a_run_for_each_segment_and_cut() -> None:
    index = filled()
    assert runs_of(index) == [(0, 27, F), (27, 40, F)]
    index.admit(1, 30)
    index.add(1, range(30, 31), LATER, 40_000)
    assert runs_of(index) == [(0, 27, F), (27, 30, F), (30, 31, F)]
    index.trim(1, 29)
    assert runs_of(index) == [(29, 30, F), (30, 31, F)]
    assert index.alive() == {1: 40_000, 2: 40_000}
    assert index.find(1, 20) is None
    assert index.find(1, 31) is None
    assert index.find(2, 0) is None
    again_ = Index(Geometry(segment_bytes=MB), index.places())
    assert again_.find(1, 30) == index.find(1, 30)
    index.trim(1, 31)
    assert index.alive() == {}


def test_copies_are_a_run_from_their_admission_on() -> None:
    index = filled()
    index.copy(1, range(35, 37), LATER, 10)  # of an admission that came to nothing
    for n in range(30, 34):
        index.copy(1, range(n, n + 1), LATER + 100 + 10 * n, 10)
    assert index.alive()[2] == 40
    index.admit(1, 32)
    assert runs_of(index) == [(0, 27, F), (27, 32, F), (32, 34, C)]
    index.add(1, range(34, 35), LATER + 900, 10)
    assert runs_of(index)[-1] == (34, 35, F)


def test_what_is_written_again_is_a_run_of_its_own() -> None:
    index = filled()
    for n in (3, 4, 6):
        index.move(1, range(n, n + 1), LATER + n, 40_000)
    moved = [(0, 3, F), (3, 5, R), (5, 6, F), (6, 7, R), (7, 27, F), (27, 40, F)]
    assert runs_of(index) == moved
    assert index.alive() == {0: 24 * 40_000, 1: 13 * 40_000, 2: 3 * 40_000}
    index.move(1, range(5, 6), LATER + 9, 40_000)
    assert runs_of(index)[1:4] == [(3, 5, R), (5, 6, R), (6, 7, R)], "it is not behind the last"
    index.admit(1, 4)
    index.add(1, range(4, 5), LATER + 50, 10)
    index.move(1, range(4, 5), LATER + 90, 10)
    assert runs_of(index) == [(0, 3, F), (3, 4, R), (4, 5, R)], "nothing goes on over a cut"


def test_an_index_knows_what_is_nowhere() -> None:
    index = filled()
    index.add(2, range(5, 7), LATER, 10)
    index.add(2, range(9, 12), LATER + 20, 10)
    assert index.lacking(2, range(3, 14)) == [range(3, 5), range(7, 9), range(12, 14)]
    assert index.lacking(2, range(10, 12)) == []
    assert index.lacking(1, range(40)) == []
    index.drop(2, index.in_segment(2)[2][:1])
    assert index.lacking(2, range(5, 12)) == [range(5, 9)]


def test_there_is_a_mark_in_64_kib() -> None:
    made = Marks()
    for number in range(40):
        made.note(1, F, number, 1_000 + number * 40_000)
    run = Run(begin=0, end=40, position=1_000, stop=1_000 + MB * 2, size=MB, kind=F)
    assert 40_000 < MARK_BYTES < 80_000
    assert made.before(1, run, 21) == 1_000 + 20 * 40_000
    assert made.before(1, run, 20) == 1_000 + 20 * 40_000
    assert made.before(2, run, 20) == 1_000
    late = Run(begin=30, end=40, position=1_000 + 30 * 40_000, stop=MB * 2, size=MB, kind=F)
    assert made.before(1, late, 33) == 1_000 + 32 * 40_000
    assert made.before(1, late, 30) == 1_000 + 30 * 40_000


def test_marks_are_read_as_they_were_written_and_every_flipped_bit_shows() -> None:
    made = Marks()
    for number in range(3):
        made.note(1, F, number, number * MARK_BYTES)
        made.note(2, R, number, 5 + number * MARK_BYTES)
    data = marks.encode(made, HEAD)
    found = marks.decode(data, HEAD)
    assert found is not None
    assert [(one, kind, list(map(tuple, at))) for one, kind, at in found.listed()] == made.listed()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert marks.decode(bytes(flipped), HEAD) is None
    for length in range(len(data)):
        assert marks.decode(data[:length], HEAD) is None
    for other in (
        SegmentHead(number=4, salt=77, store=HEAD.store),
        SegmentHead(number=3, salt=78, store=HEAD.store),
        SegmentHead(number=3, salt=77, store=b"f" * 16),
    ):
        assert marks.decode(data, other) is None


sizes = st.lists(st.integers(1, 900), min_size=1, max_size=40)


@settings(deadline=None)
@given(
    sizes=sizes, harmed=st.sets(st.integers(0, 12_000), max_size=3), window=st.integers(30, 3_000)
)
def test_walking_through_a_segment_finds_what_scanning_all_of_it_does(
    sizes: list[int], harmed: set[int], window: int
) -> None:
    first = Geometry(segment_bytes=MB).first(7)
    data, position = bytes(HEAD_BYTES), first + HEAD_BYTES
    for size in sizes:
        made = Entry(kind=EntryKind.ACK, stream=1, position=position, synced=0, payload=bytes(size))
        data += encode(made, 5)
        position = made.end
    broken = bytearray(data)
    for at in harmed:
        broken[at % len(broken)] ^= 1
    whole = bytes(broken)
    expected = list(scan(memoryview(whole), HEAD_BYTES, first + HEAD_BYTES, 5))[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "WINDOW_BYTES", window)
        found = list(
            walk(
                lambda at, length: whole[at : at + length],
                range(HEAD_BYTES, len(whole)),
                first,
                5,
            )
        )
    assert found[: len(expected)] == expected
    assert len(found) - len(expected) in {0, 1}, "where nothing more is found"


# beside the segments of a store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    initialize(tmp_path / "store", chance, segment_bytes=MB)
    return tmp_path / "store"


def text(number: int) -> bytes:
    return (b"%04d" % number) * (BIG // 4)


def sent(store: DiskStore, numbers: range) -> None:
    for n in numbers:
        send(store, data_of(1, n, text(n), stable=n))


@pytest.fixture
def store(home: Path) -> Iterator[DiskStore]:
    """A store of which two segments are sealed."""
    made = DiskStore(home, chance)
    begin(made, 1)
    sent(made, range(120))
    assert made.files.numbers() == [0, 1, 2]
    yield made
    made.close()


def indexes(home: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in home.glob("*.idx")}


def expected_of(numbers: range) -> list[bytes]:
    return [data_of(1, n, text(n), stable=n) for n in numbers]


def test_a_sealed_segment_has_its_marks_beside_it(store: DiskStore, home: Path) -> None:
    beside = indexes(home)
    assert sorted(beside) == ["0000000000.idx", "0000000001.idx"]
    head = decode_head(store.files.read_at(0, 0, HEAD_BYTES))
    assert head is not None
    found = marks.decode(beside["0000000000.idx"], head)
    assert found is not None
    ((_, kind, at),) = found.listed()
    assert kind is F
    assert [number for number, _ in at] == list(range(0, 4 * len(at), 4)), "in each 64 KiB"
    assert list(store.read(S, range(33, 35))) == expected_of(range(33, 35))


def test_a_segment_that_was_the_last_gets_its_marks_when_the_store_starts(
    store: DiskStore, home: Path
) -> None:
    store = again(store, home)
    assert sorted(indexes(home)) == [f"000000000{n}.idx" for n in range(3)]
    assert store.marks.made == 0
    store.close()


def harm(home: Path, how: str) -> None:
    """Do something to all files of marks."""
    one, two = sorted(home.glob("*.idx"))
    was = one.read_bytes(), two.read_bytes()
    match how:
        case "missing":
            one.unlink()
            two.unlink()
        case "empty":
            one.write_bytes(b"")
            two.write_bytes(b"")
        case "truncated":
            one.write_bytes(was[0][:-1])
            two.write_bytes(was[1][: len(was[1]) // 2])
        case "flipped":
            for path, data, at in ((one, was[0], 20), (two, was[1], len(was[1]) - 5)):
                path.write_bytes(data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :])
        case "of another segment":
            one.write_bytes(was[1])
            two.write_bytes(was[0])
        case _:
            raise AssertionError(how)


@pytest.mark.parametrize("how", ["missing", "empty", "truncated", "flipped", "of another segment"])
def test_marks_that_are_not_there_are_made_anew(store: DiskStore, home: Path, how: str) -> None:
    before = indexes(home)
    store.close()
    harm(home, how)
    store = DiskStore(home, chance)
    for numbers in (range(10, 14), range(49, 60), range(120), range(77, 78), range(119, 120)):
        assert list(store.read(S, numbers)) == expected_of(numbers)
    assert {name: indexes(home)[name] for name in before} == before
    assert store.marks.made == 2
    assert list(store.read(S, range(120))) == expected_of(range(120))
    assert store.marks.made == 2, "once"
    store.close()


def test_a_full_disk_has_no_marks_and_the_same_answers(home: Path) -> None:
    files = Ailing(home)
    store = DiskStore(home, chance, files=files)
    begin(store, 1)
    files.takes_no_index = True
    sent(store, range(120))
    assert indexes(home) == {}
    assert list(store.read(S, range(60, 64))) == expected_of(range(60, 64))
    store.close()
    store = DiskStore(home, chance, files=files)
    assert list(store.read(S, range(120))) == expected_of(range(120))
    assert indexes(home) == {}
    store.close()


def trim(store: DiskStore, below: int) -> None:
    record = records.Trimmed(stream=S, below=below)
    store.do(Step(records=(record,), answer=asks.Forgot()))
    store.log.commit()


def test_freed_segments_leave_no_marks_behind(store: DiskStore, home: Path) -> None:
    trim(store, 100)
    assert store.reclaim() == [0]
    assert sorted(indexes(home)) == ["0000000001.idx"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 6)),
        st.tuples(st.just("cut"), st.integers(0, 5)),
        st.tuples(st.just("trim"), st.integers(0, 3)),
        st.tuples(st.just("harm"), st.integers(0, 50)),
    ),
    max_size=25,
)


class Walked:
    """A store to which steps are done, and what it must have. Each second frame has a mark."""

    def __init__(self, home: Path) -> None:
        initialize(home, chance, segment_bytes=MB // 2)
        self.home = home
        self.store = DiskStore(home, chance)
        self.epoch = self.end = 0
        self.expected: dict[int, bytes] = {}
        self.cut(0)

    def step(self, what: str, much: int) -> None:
        getattr(self, what)(much)

    def send(self, much: int) -> None:
        for n in range(self.end, self.end + much):
            self.expected[n] = data_of(self.epoch, n, bytes(40_000))
            send(self.store, self.expected[n])
        self.end += much

    def cut(self, much: int) -> None:
        """A recovery chooses a log that is shorter."""
        held = self.store.catalogue.of(S)
        self.end = max(held.begin, self.end - much)
        firsts = () if held.bridge is None else held.bridge.firsts
        self.epoch += 1
        begin(
            self.store,
            self.epoch,
            end=self.end,
            firsts=tuple(one for one in firsts if one[1] <= self.end),
        )
        self.expected = {n: data for n, data in self.expected.items() if n < self.end}

    def trim(self, much: int) -> None:
        below = min(self.store.catalogue.of(S).begin + much, self.end)
        trim(self.store, below)
        self.expected = {n: data for n, data in self.expected.items() if n >= below}

    def harm(self, much: int) -> None:
        """A file of marks is damaged while the store is down."""
        self.store.close()
        paths = sorted(self.home.glob("*.idx"))
        for path in paths[much % 4 : much % 4 + 1]:
            data = bytearray(path.read_bytes())
            data[much % len(data)] ^= 1
            path.write_bytes(data)
        self.store = DiskStore(self.home, chance)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_becomes_of_marks_the_answers_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    walked = Walked(tmp_path_factory.mktemp("home") / "store")
    try:
        for step in steps:
            walked.step(*step)
            assert list(walked.store.read(S, range(200))) == list(walked.expected.values())
            for n in range(0, walked.end, 3):
                found = [walked.expected[n]] if n in walked.expected else []
                assert list(walked.store.read(S, range(n, n + 1))) == found
    finally:
        walked.store.close()
