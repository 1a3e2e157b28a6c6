"""A store on a disk: what it acknowledged it knows when it starts again."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from onceq.streams.errors import StoreFull, StoreRefused
from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import Frame, FrameKind, body_of, decode, encode
from onceq.streams.model.log import chained
from onceq.streams.model.quorum import listed
from onceq.streams.source.telling import empty_frame
from onceq.streams.store import records
from onceq.streams.store.catalogue import Needs, Step
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.entries import EntryKind
from tests.streams.store.logs import Ailing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ABC = listed("a b c")
S = 7
SEGMENT_BYTES = 4_096
_counter = itertools.count(1)


def chance(count: int) -> bytes:
    return next(_counter).to_bytes(count, "little")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    initialize(tmp_path / "store", chance, segment_bytes=SEGMENT_BYTES)
    return tmp_path / "store"


@pytest.fixture
def store(home: Path) -> Iterator[DiskStore]:
    made = DiskStore(home, chance)
    yield made
    made.close()


def data_of(epoch: int, number: int, text: bytes = b"message", stable: int = 0) -> bytes:
    return encode(
        Frame(
            kind=FrameKind.MESSAGES,
            stream=S,
            epoch=epoch,
            number=number,
            stable=stable,
            count=1,
            body=body_of([text]),
        )
    )


def begin(store: DiskStore, epoch: int, life: int = 5, **of_log: Any) -> None:
    """Fence and admit the store, which has all that it needs."""
    fence = asks.Fence(stream=S, epoch=epoch, life=life, own=ABC)
    store.do(store.catalogue.fence(fence))
    answer, _ = store.admit(admission(epoch, life, **of_log))
    assert isinstance(answer, asks.Holding), answer
    store.log.commit()


def admission(
    epoch: int, life: int = 5, *, end: int = 0, firsts: tuple[tuple[int, int], ...] = ()
) -> asks.Admit:
    admitted = firsts[-1][0] if firsts else 0
    log = Log(admitted=admitted, end=end, lists=(ABC,), firsts=firsts, positions={})
    bridge = Bridge(
        epoch=epoch, stage=Stage.SETTLED, lists=(ABC,), firsts=chained(firsts, epoch, end)
    )
    return asks.Admit(stream=S, life=life, log=log, bridge=bridge)


def send(store: DiskStore, data: bytes, life: int = 5) -> asks.Answer:
    answer, position = store.take(decode(data), data, life)
    store.log.commit()
    store.log.prepare()
    assert store.log.synced >= position
    return answer


def send_all(store: DiskStore, numbers: range) -> None:
    for n in numbers:
        send(store, data_of(1, n))


def again(store: DiskStore, home: Path) -> DiskStore:
    store.close()
    return DiskStore(home, chance)


def numbers_of(found: Iterator[bytes]) -> list[int]:
    return [decode(one).number for one in found]


def test_a_store_that_starts_again_knows_what_it_acknowledged(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    sent = [data_of(1, n, stable=n) for n in range(120)]
    for n, data in enumerate(sent):
        assert send(store, data) == asks.Holding(epoch=1, end=n + 1)
    assert len(store.files.numbers()) >= 3
    before = store.catalogue.snapshot()
    store = again(store, home)
    assert not store.forgot
    assert store.catalogue.snapshot() == before
    assert list(store.read(S, range(200))) == sent
    assert numbers_of(store.read(S, range(57, 61))) == [57, 58, 59, 60]
    assert send(store, data_of(1, 120)) == asks.Holding(epoch=1, end=121)
    store.close()


def test_starting_again_and_again_takes_no_more_room(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    send_all(store, range(10))
    sizes: list[int] = []
    for _ in range(5):
        store = again(store, home)
        assert store.catalogue.of(S).end == 10
        sizes.append(sum(one.stat().st_size for one in home.iterdir()))
    assert sizes[0] == sizes[-1]
    store.close()


def test_a_full_disk_does_not_keep_a_store_from_opening(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    send_all(store, range(10))
    store.close()
    files = Ailing(home)
    files.is_full = True
    for spare in files.spares()[1:]:
        spare.unlink()
    store = DiskStore(home, chance, files=files)
    assert store.catalogue.of(S).end == 10
    assert list(store.read(S, range(10))) == [data_of(1, n) for n in range(10)]
    with pytest.raises(StoreFull):
        send_all(store, range(10, 100))
    assert 10 < store.catalogue.of(S).end < 100
    store.close()


def test_what_was_not_committed_was_never_said(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    send(store, data_of(1, 0))
    data = data_of(1, 1)
    _, position = store.take(decode(data), data, 5)
    assert store.log.synced < position
    store = again(store, home)
    assert store.catalogue.of(S).end == 1
    store.close()


def test_a_log_that_was_cut_goes_on_with_the_chosen_one(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    for n in range(6):
        send(store, data_of(1, n))
    begin(store, 2, life=6, end=3, firsts=((1, 0),))
    for n in range(3, 5):
        send(store, data_of(2, n, b"other"), life=6)
    expected = [*(data_of(1, n) for n in range(3)), *(data_of(2, n, b"other") for n in (3, 4))]
    assert list(store.read(S, range(9))) == expected
    store = again(store, home)
    assert list(store.read(S, range(9))) == expected
    assert numbers_of(store.read(S, range(4, 9))) == [4]
    store.close()


def test_copies_count_from_the_admission_on(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    for n in range(3):
        send(store, data_of(1, n))
    fence = asks.Fence(stream=S, epoch=4, life=8, own=ABC)
    store.do(store.catalogue.fence(fence))
    ask = admission(4, 8, end=5, firsts=((1, 0), (3, 2)))
    assert store.admit(ask)[0] == Needs(begin=2, end=5, firsts=((1, 0), (3, 2)))
    stray = [data_of(1, n) for n in range(2, 5)]
    assert isinstance(store.admit(ask, stray)[0], Needs), "of another epoch than the chosen log"
    copies = [data_of(3, n, b"copy") for n in range(2, 5)]
    answer, position = store.admit(ask, copies)
    assert answer == asks.Holding(epoch=4, end=5, regid=1)
    assert store.log.commit() >= position
    expected = [data_of(1, 0), data_of(1, 1), *copies]
    assert list(store.read(S, range(9))) == expected
    store = again(store, home)
    assert list(store.read(S, range(9))) == expected
    store.close()


def test_the_same_again_is_acknowledged_and_another_is_a_conflict(store: DiskStore) -> None:
    begin(store, 1)
    send(store, data_of(1, 0))
    send(store, data_of(1, 1))
    assert send(store, data_of(1, 0)) == asks.Holding(epoch=1, end=2)
    assert send(store, data_of(1, 0, b"another")) == asks.Conflict(number=0)
    assert list(store.read(S, range(9))) == [data_of(1, 0), data_of(1, 1)]


def flip(store: DiskStore, number: int, text: bytes) -> None:
    """Flip a bit of a message in the segment that is written to."""
    path = store.files.path(store.files.numbers()[-1])
    data = bytearray(path.read_bytes())
    at = data.index(data_of(1, number, text)) + 50
    data[at] ^= 1
    path.write_bytes(data)


def test_a_damaged_frame_is_known_and_never_served(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    for n in range(6):
        send(store, data_of(1, n, b"text %d" % n))
    flip(store, 3, b"text 3")
    assert numbers_of(store.read(S, range(9))) == [0, 1, 2]
    assert numbers_of(store.read(S, range(4, 9))) == [4, 5]
    store = again(store, home)
    assert not store.forgot
    assert store.catalogue.of(S).damaged == (3,)
    assert not store.catalogue.found(S).whole
    assert store.catalogue.of(S).end == 6
    assert numbers_of(store.read(S, range(4, 9))) == [4, 5]
    store.close()


def test_what_nobody_can_prove_makes_it_one_that_forgot(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    for n in range(3):
        send(store, data_of(1, n))
    path = store.files.path(store.files.numbers()[-1])
    data = bytearray(path.read_bytes())
    data[data.index(data_of(1, 1)) - 5] ^= 1  # in the header of its entry
    path.write_bytes(data)
    store = again(store, home)
    assert store.forgot
    assert store.catalogue.found(S).bridge is None
    assert store.catalogue.streams == {}
    begin(store, 9)
    assert send(store, data_of(9, 0)) == asks.Holding(epoch=9, end=1)
    store.close()


def test_scrubbing_finds_what_is_harmed_and_repair_heals_it(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    for n in range(60):
        send(store, data_of(1, n, b"text %02d" % n))
    files = store.files
    harmed: dict[int, int] = {}
    for segment in files.numbers():
        data = files.path(segment).read_bytes()
        for n in range(1, 60, 9):
            at = data.find(data_of(1, n, b"text %02d" % n))
            if at >= 0:
                data = data[: at + 46] + bytes([data[at + 46] ^ 4]) + data[at + 47 :]
                harmed[n] = segment
        files.path(segment).write_bytes(data)
    assert sorted(harmed) == list(range(1, 60, 9))
    for segment in files.numbers():
        expected = [range(n, n + 1) for n, at in harmed.items() if at == segment]
        assert store.scrub(segment) == ({S: expected} if expected else {})
    assert store.catalogue.of(S).damaged == tuple(sorted(harmed))
    assert not store.repair(S, data_of(1, 2)), "it is whole"
    assert not store.repair(S, data_of(2, 1)), "of another epoch"
    for n in harmed:
        assert store.repair(S, data_of(1, n, b"text %02d" % n))
    store.log.commit()
    expected_frames = [data_of(1, n, b"text %02d" % n) for n in range(60)]
    assert list(store.read(S, range(60))) == expected_frames
    assert all(store.scrub(segment) == {} for segment in files.numbers())
    store = again(store, home)
    assert store.catalogue.of(S).damaged == ()
    assert list(store.read(S, range(60))) == expected_frames
    store.close()


def test_scrubbing_what_is_not_even_a_header_harms_the_numbers_there(store: DiskStore) -> None:
    begin(store, 1)
    for n in range(60):
        send(store, data_of(1, n, b"text %02d" % n))
    segment = store.files.numbers()[1]
    path = store.files.path(segment)
    data = bytearray(path.read_bytes())
    number = next(n for n in range(60) if data.find(b"text %02d" % n) >= 0) + 3
    at = data.index(data_of(1, number, b"text %02d" % number))
    data[at - 20] ^= 1
    path.write_bytes(data)
    assert store.scrub(segment) == {S: [range(number, number + 1)]}
    assert numbers_of(store.read(S, range(60))) == list(range(number))


def test_a_damaged_record_in_the_open_segment_is_healed_by_a_new_one(
    store: DiskStore, home: Path
) -> None:
    begin(store, 1)
    send(store, data_of(1, 0))
    segment = store.log.segment
    path = store.files.path(segment)
    data = bytearray(path.read_bytes())
    data[64 + 29 + 3] ^= 1  # in the snapshot with which it begins
    path.write_bytes(data)
    assert store.scrub(segment) == {}
    assert store.log.segment == segment + 1
    store.log.commit()
    before = store.catalogue.snapshot()
    store = again(store, home)
    assert not store.forgot
    assert store.catalogue.snapshot() == before
    store.close()


def test_segments_that_nobody_needs_are_freed(store: DiskStore, home: Path) -> None:
    begin(store, 1)
    for n in range(120):
        send(store, data_of(1, n, stable=n))
    before = store.files.numbers()
    assert store.reclaim() == []
    local = store.catalogue.of(S).local
    record = records.Trimmed(stream=S, below=100)
    store.do(Step(records=(record,), answer=asks.Holding(epoch=1, end=120)))
    assert store.reclaim() == [], "what says so is not synced yet"
    store.log.commit()
    freed = store.reclaim()
    assert freed == before[: len(freed)]
    assert freed
    assert store.index.find(local, 100) is not None
    assert numbers_of(store.read(S, range(120))) == list(range(100, 120))
    store = again(store, home)
    assert numbers_of(store.read(S, range(120))) == list(range(100, 120))
    store.close()


@pytest.mark.usefixtures("store")
def test_a_directory_is_one_stores_and_in_use_by_one_process(home: Path) -> None:
    with pytest.raises(StoreRefused, match="in use"):
        DiskStore(home, chance)
    with pytest.raises(StoreRefused, match="not empty"):
        initialize(home, chance, segment_bytes=SEGMENT_BYTES)
    with pytest.raises(StoreRefused, match="no store's"):
        DiskStore(home.parent, chance)
    identity = home / "store.json"
    text = identity.read_text()
    identity.write_text(text.replace('"version":1', '"version":2'))
    with pytest.raises(StoreRefused, match="version 2"):
        DiskStore(home, chance)
    identity.write_text("{")
    with pytest.raises(StoreRefused, match="cannot be read"):
        DiskStore(home, chance)


def test_what_is_stable_is_on_the_disk_though_no_message_follows(
    store: DiskStore, home: Path
) -> None:
    begin(store, 1)
    send_all(store, range(3))
    send(store, empty_frame(S, 1, 3, 3))
    store.tend()
    store.log.commit()
    store.tend()
    assert not store.log.has_pending(), "it is said once"
    for _ in range(2):
        store = again(store, home)
        assert store.catalogue.of(S).stable == 3
    send(store, data_of(1, 3))
    send(store, empty_frame(S, 1, 4, 4))
    store.mark_stable()
    store.mark_stable()
    store = again(store, home)
    assert store.catalogue.of(S).stable == 3, "it was not committed"
    send(store, empty_frame(S, 1, 4, 4))
    store.mark_stable()
    store.log.commit()
    store = again(store, home)
    assert store.catalogue.of(S).stable == 4
    store.close()


def test_no_more_is_stable_than_a_store_has_whatever_its_disk_says(
    store: DiskStore, home: Path
) -> None:
    """Older logs say nothing."""
    begin(store, 1)
    send_all(store, range(3))
    store.log.append(EntryKind.MARK, 0, b"")
    local = store.catalogue.of(S).local
    store.log.append(EntryKind.MARK, 0, records.packed_stable({local: 9, local + 1: 4}))
    store.log.commit()
    store = again(store, home)
    assert not store.forgot
    assert store.catalogue.of(S).stable == 3
    assert len(store.catalogue.streams) == 1
    store.close()
