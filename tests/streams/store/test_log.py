"""The log of a store: what was acknowledged is there, whatever becomes of the rest."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from onceq.streams.errors import StoreFull, StoreRefused
from onceq.streams.store.log import opening
from onceq.streams.store.log.committer import Committer, mark
from onceq.streams.store.log.entries import (
    HEAD_BYTES,
    HEADER_BYTES,
    POSITION_BASE,
    Entry,
    EntryKind,
    Geometry,
    SegmentHead,
    Unproven,
    decode,
    decode_head,
    encode,
    encode_head,
    scan,
)
from onceq.streams.store.log.reading import last
from onceq.streams.store.log.segments import Files
from onceq.streams.store.log.writing import RESERVED
from tests.streams.store.logs import SMALL, STORE, Ailing, begun, frame, frames_of, opened

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.streams.store.log.writing import Log


def test_an_entry_is_read_as_it_was_written() -> None:
    made = Entry(kind=EntryKind.PROMISE, stream=7, position=POSITION_BASE, synced=3, payload=b"p")
    data = memoryview(encode(made, 99))
    assert decode(data, 0, POSITION_BASE, 99) == made
    assert decode(data, 0, POSITION_BASE, 98) is None, "of another segment"
    assert decode(data, 0, POSITION_BASE + 1, 99) is None, "at another place"


def test_the_head_of_a_segment_shows_every_flipped_bit() -> None:
    head = SegmentHead(number=5, salt=77, store=STORE)
    data = encode_head(head)
    assert len(data) == HEAD_BYTES
    assert decode_head(data) == head
    for bit in range(44 * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_head(bytes(flipped)) is None


def test_what_was_committed_is_found(tmp_path: Path) -> None:
    log = begun(tmp_path)
    sent = [frame(n) for n in range(5)]
    for one in sent:
        log.append(EntryKind.FRAME, 1, one)
    end = log.append(EntryKind.PROMISE, 1, b"promise")
    assert log.commit() == end == log.synced
    found = opened(tmp_path).read
    assert frames_of(found.entries) == sent
    assert found.entries[0].kind is EntryKind.SNAPSHOT
    assert found.entries[-1].payload == b"promise"
    assert found.end == end
    assert not found.unproven


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    log = begun(tmp_path)
    log.append(EntryKind.FRAME, 1, frame(0))
    log.commit()
    log.append(EntryKind.FRAME, 1, frame(1))
    log.close()
    assert frames_of(opened(tmp_path).read.entries) == [frame(0)]


def test_each_segment_begins_with_a_snapshot_and_the_last_is_enough(tmp_path: Path) -> None:
    log = begun(tmp_path)
    for n in range(100):
        log.append(EntryKind.FRAME, 1, frame(n))
        log.commit()
        log.prepare()
    files = Files(tmp_path)
    numbers = files.numbers()
    assert len(numbers) > 3
    found: list[bytes] = []
    for number in numbers:
        data = files.read(number)
        head = decode_head(data)
        assert head is not None
        assert head.number == number
        read = opening.read(data, head, SMALL.first(number))
        assert read.has_snapshot
        found += frames_of(read.entries)
        if number != numbers[-1]:
            assert len(data) < SMALL.segment_bytes, "its rest was given back"
            assert not opening.damaged_in(data, head, SMALL.first(number), read.end)
    assert found == [frame(n) for n in range(100)]
    assert opened(tmp_path).number == numbers[-1]


def test_a_tail_torn_at_any_byte_is_cut_and_nothing_acknowledged_is(tmp_path: Path) -> None:
    log = begun(tmp_path)
    for n in range(4):
        log.append(EntryKind.FRAME, 1, frame(n))
    acknowledged = log.commit()
    for n in range(4, 9):
        log.append(EntryKind.FRAME, 1, frame(n))
    log.commit()
    path = Files(tmp_path).path(0)
    whole, end = path.read_bytes(), SMALL.offset(log.synced)
    for at in range(SMALL.offset(acknowledged), end + 1):
        path.write_bytes(whole[:at].ljust(len(whole), b"\0"))
        found = opened(tmp_path)
        assert not found.forgot
        read = frames_of(found.read.entries)
        assert read == [frame(n) for n in range(len(read))]
        assert len(read) >= 4
        assert (len(read) == 9) is (at == end)


def test_a_tail_torn_in_the_middle_is_cut_there(tmp_path: Path) -> None:
    """Pages are written in any order: what lies behind a hole was not acknowledged either."""
    log = begun(tmp_path)
    log.append(EntryKind.FRAME, 1, frame(0))
    acknowledged = log.commit()
    for n in range(1, 6):
        log.append(EntryKind.FRAME, 1, frame(n))
    log.commit()
    path = Files(tmp_path).path(0)
    whole = path.read_bytes()
    for at in range(SMALL.offset(acknowledged), SMALL.offset(log.synced), 7):
        path.write_bytes(whole[:at] + bytes(7) + whole[at + 7 :])
        found = opened(tmp_path)
        assert not found.forgot
        read = frames_of(found.read.entries)
        assert read == [frame(n) for n in range(len(read))]
        assert 1 <= len(read) <= 5
        assert found.read.end <= SMALL.first(0) + at


def acknowledged_log(directory: Path) -> tuple[bytes, int]:
    """A segment of which everything before the last entry is known to be synced."""
    log = begun(directory)
    for n in range(4):
        log.append(EntryKind.FRAME, 1, frame(n))
        log.append(EntryKind.ACK, 1, b"acknowledged")
        log.commit()
    synced = log.synced
    assert mark(log, 0) > synced
    log.commit()
    return Files(directory).path(0).read_bytes(), SMALL.offset(synced)


def test_every_flipped_bit_below_what_was_acknowledged_is_seen_and_nothing_is_cut(
    tmp_path: Path,
) -> None:
    whole, synced = acknowledged_log(tmp_path)
    path = Files(tmp_path).path(0)
    sent = [frame(n) for n in range(4)]
    proven = 0
    of_frames = {
        bit for one in sent for bit in range(whole.find(one) * 8, (whole.find(one) + len(one)) * 8)
    }
    tried = range(HEAD_BYTES * 8, synced * 8, 5)
    for bit in tried:
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        found = opened(tmp_path)
        good = [one.payload for one in found.read.entries if one.is_whole]
        assert [one for one in good if one in sent] == frames_of(
            tuple(one for one in found.read.entries if one.is_whole)
        )
        assert found.forgot is (bit not in of_frames), "a bit of a frame is proven its own"
        if found.forgot:
            continue
        (harmed,) = [one for one in found.read.entries if not one.is_whole]
        assert harmed.kind is EntryKind.FRAME
        assert len(good) == 9, "a snapshot, three frames, four acknowledgements and a mark"
        proven += 1
    assert proven == len(of_frames & set(tried)) > 300


def test_a_flipped_bit_above_is_a_torn_tail(tmp_path: Path) -> None:
    whole, synced = acknowledged_log(tmp_path)
    path = Files(tmp_path).path(0)
    for bit in range(synced * 8, (synced + HEADER_BYTES) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        found = opened(tmp_path)
        assert not found.forgot
        assert frames_of(found.read.entries) == [frame(n) for n in range(4)]


def test_a_flipped_bit_in_a_segments_head_makes_the_store_one_that_forgot(tmp_path: Path) -> None:
    whole, _ = acknowledged_log(tmp_path)
    flipped = bytearray(whole)
    flipped[9] ^= 1
    Files(tmp_path).path(0).write_bytes(flipped)
    assert opened(tmp_path).forgot


def test_entries_behind_damage_are_found_in_any_16_mib() -> None:
    """The next entry is looked for by the upper bytes of its position, which change there."""
    for begin in (POSITION_BASE, POSITION_BASE + (1 << 24) - 200, POSITION_BASE + (1 << 24) - 3):
        position, data, ends = begin, b"", list[int]()
        for n in range(6):
            made = Entry(
                kind=EntryKind.ACK, stream=1, position=position, synced=0, payload=b"%d" % n * 9
            )
            data += encode(made, 5)
            position = made.end
            ends.append(position)
        for harmed in range(5):
            first = begin if harmed == 0 else ends[harmed - 1]
            broken = bytearray(data)
            broken[first - begin + 2] ^= 1
            found = list(scan(memoryview(bytes(broken)), 0, begin, 5))
            assert [one.position for one in found if isinstance(one, Unproven)] == [first, position]
            assert sum(isinstance(one, Entry) for one in found) == 5


def test_a_payload_that_is_an_old_entry_is_not_taken_for_one(tmp_path: Path) -> None:
    log = begun(tmp_path)
    old = Entry(
        kind=EntryKind.PROMISE,
        stream=1,
        position=SMALL.first(0) + 300,
        synced=SMALL.first(9),
        payload=b"x",
    )
    for salt in range(50, 60):
        log.append(EntryKind.ACK, 1, encode(old, salt))
    log.commit()
    kinds = {one.kind for one in opened(tmp_path).read.entries}
    assert kinds == {EntryKind.SNAPSHOT, EntryKind.ACK}


def test_a_segment_that_was_begun_and_holds_nothing_goes(tmp_path: Path) -> None:
    log = begun(tmp_path)
    log.append(EntryKind.FRAME, 1, frame(0))
    log.commit()
    files = Files(tmp_path)
    files.close(files.begin(SegmentHead(number=1, salt=9, store=STORE)))
    assert files.numbers() == [0, 1]
    found = opened(tmp_path)
    assert (found.number, found.forgot) == (0, False)
    assert files.numbers() == [0]


def test_another_stores_segment_is_refused(tmp_path: Path) -> None:
    log = begun(tmp_path)
    log.append(EntryKind.FRAME, 1, frame(0))
    log.commit()
    with pytest.raises(StoreRefused, match="another store"):
        last(Files(tmp_path), SMALL, b"f" * 16)
    Files(tmp_path).path(0).rename(Files(tmp_path).path(4))
    with pytest.raises(StoreRefused, match="segment 4"):
        opened(tmp_path)


def test_an_empty_directory_has_no_segment(tmp_path: Path) -> None:
    assert last(Files(tmp_path), SMALL, STORE) is None


def test_after_a_failed_sync_nothing_is_acknowledged_nor_written(tmp_path: Path) -> None:
    files = Ailing(tmp_path)
    log = begun(tmp_path, files=files)
    log.append(EntryKind.FRAME, 1, frame(0))
    synced = log.commit()
    files.sync_fails = True
    log.append(EntryKind.FRAME, 1, frame(1))
    with pytest.raises(OSError, match="error"):
        log.commit()
    files.sync_fails = False
    log.append(EntryKind.FRAME, 1, frame(2))
    with pytest.raises(OSError, match="error"):
        log.commit()
    assert log.synced == synced
    found = opened(tmp_path).read
    unsynced = frames_of(found.unsynced)
    assert frame(2) not in frames_of(found.entries)
    assert frame(1) in unsynced, "the page cache shows it, but it must be written again"


def filled(log: Log, kind: EntryKind, payload: bytes) -> int:
    """Append until there is no room; return how many there were."""
    count = 0
    while log.has_room(len(payload), kind):
        log.append(kind, 1, payload)
        log.commit()
        count += 1
    with pytest.raises(StoreFull, match="no room"):
        log.append(kind, 1, payload)
    return count


def test_a_full_disk_refuses_frames_and_keeps_room_for_the_rest(tmp_path: Path) -> None:
    files = Ailing(tmp_path)
    log = begun(tmp_path, files=files)
    files.is_full = True
    sent = filled(log, EntryKind.FRAME, frame(0))
    assert log.is_full
    assert not log.prepare()
    assert sent > 10
    promises = filled(log, EntryKind.PROMISE, b"promise")
    assert len(files.numbers()) == 1 + RESERVED
    assert promises * (HEADER_BYTES + len(b"promise")) > RESERVED * (SMALL.segment_bytes - 256)
    files.is_full = False
    assert log.prepare()
    log.append(EntryKind.FRAME, 1, frame(sent))
    log.commit()
    assert frames_of(opened(tmp_path).read.entries) == [frame(sent)]


def test_an_entry_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = begun(tmp_path)
    with pytest.raises(StoreFull, match="does not fit"):
        log.append(EntryKind.ACK, 1, bytes(SMALL.segment_bytes))


def test_a_spare_that_was_cut_short_is_none(tmp_path: Path) -> None:
    files = Ailing(tmp_path)
    files.is_full = True
    assert not files.make_spare(4_096)
    assert list(tmp_path.iterdir()) == []


def test_one_sync_commits_all_that_came_meanwhile(tmp_path: Path) -> None:
    """The thread is held in its first sync while a thousand frames come."""
    entered, go = threading.Event(), threading.Event()

    class Held(Ailing):
        def sync(self, handle: int) -> None:
            entered.set()
            assert go.wait(60)
            super().sync(handle)

    files = Held(tmp_path)
    log = begun(tmp_path, files=files, geometry=Geometry(segment_bytes=1 << 20))
    told: list[int] = []
    all_told = threading.Event()

    def tell(synced: int) -> None:
        told.append(synced)
        if synced >= log.end:
            all_told.set()

    committer = Committer(log, told=tell, failed=lambda _: None)
    committer.start()
    first = log.append(EntryKind.FRAME, 1, frame(0))
    committer.wake()
    assert entered.wait(60)
    for n in range(1, 1_001):
        log.append(EntryKind.FRAME, 1, frame(n))
        committer.wake()
    go.set()
    assert all_told.wait(60)
    committer.stop()
    assert told[0] == first
    assert told == sorted(told)
    assert committer.latencies.count <= 3
    found = opened(tmp_path, Geometry(segment_bytes=1 << 20))
    assert len(frames_of(found.read.entries)) == 1_001


def test_a_committer_whose_disk_fails_says_so_and_ends(tmp_path: Path) -> None:
    files = Ailing(tmp_path)
    log = begun(tmp_path, files=files)
    failed: list[Exception] = []
    told: list[int] = []
    committer = Committer(log, told=told.append, failed=failed.append)
    files.sync_fails = True
    committer.start()
    log.append(EntryKind.FRAME, 1, frame(0))
    committer.stop()
    assert len(failed) == 1
    assert told == []


def test_an_idle_log_says_once_how_far_it_is_synced(tmp_path: Path) -> None:
    log = begun(tmp_path)
    log.append(EntryKind.FRAME, 1, frame(0))
    log.commit()
    marked = mark(log, 0)
    log.commit()
    assert mark(log, marked) == marked
    assert not log.has_pending()
    read = opened(tmp_path).read
    assert read.synced == read.entries[-1].position
    assert read.unsynced == read.entries[-1:]
