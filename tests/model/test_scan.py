"""What a scan remembers, and how it divides what it has met."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from onceq.model.element import Lane
from onceq.model.scan import BODY_BYTES, ELEMENTS, Scan, ScanKey, Seen

SEQS = st.integers(min_value=1, max_value=5000) | st.integers(min_value=1, max_value=2**63 - 1)


def key(seq: int, body_bytes: int = 0) -> ScanKey:
    return ScanKey(seq=seq, lane=Lane.USUAL, turn=seq, body_bytes=body_bytes)


@settings(deadline=None)
@given(st.lists(SEQS))
def test_each_seq_is_new_once(seqs: list[int]) -> None:
    seen, known = Seen(), set[int]()
    for seq in seqs:
        assert seen.is_new(seq) is (seq not in known)
        known.add(seq)


def test_a_page_is_read_in_pieces_of_few_elements() -> None:
    scan = Scan(queue="raw", locked=False)
    scan.met([key(seq) for seq in range(1, 2 * ELEMENTS + 2)])
    assert scan.is_over
    assert scan.taken() == [*range(1, ELEMENTS + 1)]
    assert scan.taken() == [*range(ELEMENTS + 1, 2 * ELEMENTS + 1)]
    assert scan.taken() == [2 * ELEMENTS + 1]
    assert scan.taken() == []


def test_large_bodies_are_read_with_few_others() -> None:
    sizes = [BODY_BYTES * 3, 1, BODY_BYTES - 1, 1, BODY_BYTES, 0]
    scan = Scan(queue="raw", locked=False, page=len(sizes))
    scan.met([key(seq, size) for seq, size in enumerate(sizes, 1)])
    assert (scan.is_over, scan.place) == (False, (5, len(sizes)))
    assert [scan.taken() for _ in range(5)] == [[1], [2, 3], [4], [5, 6], []]


def test_what_was_met_is_not_read_again() -> None:
    scan = Scan(queue="raw", locked=False, page=2)
    scan.met([key(1), key(2)])
    assert scan.taken() == [1, 2]
    scan.met([key(2), key(3)])
    assert scan.taken() == [3]
    scan.met([])
    assert (scan.is_over, scan.taken()) == (True, [])
