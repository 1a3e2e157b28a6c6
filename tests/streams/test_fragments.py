"""Messages that take several numbers: how they are split, and joined again."""

from __future__ import annotations

import pytest

from onceq.errors import TooLarge
from onceq.streams.model.fragments import (
    CONTINUED,
    CONTINUES,
    DEEDS,
    MESSAGE_BYTES_MAX,
    Deed,
    Joined,
    Part,
    Parts,
    part_of,
    parts_of,
    split,
)


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (b"", [(b"", 0)]),
        (b"abc", [(b"abc", 0)]),
        (b"abcd", [(b"abc", CONTINUED), (b"d", CONTINUES)]),
        (
            b"abcdefg",
            [(b"abc", CONTINUED), (b"def", CONTINUES | CONTINUED), (b"g", CONTINUES)],
        ),
    ],
)
def test_a_message_is_split_at_the_size_of_a_fragment(
    message: bytes, parts: list[tuple[bytes, int]]
) -> None:
    assert list(split(message, 3)) == parts
    assert parts_of(len(message), 3) == len(parts)


def test_a_message_has_a_size_that_it_may_not_exceed() -> None:
    assert parts_of(MESSAGE_BYTES_MAX, 1 << 20) == 16
    with pytest.raises(TooLarge, match="as one"):
        parts_of(MESSAGE_BYTES_MAX + 1, 1 << 20)


def test_flags_are_those_of_the_ends_of_a_frame() -> None:
    both = CONTINUES | CONTINUED
    assert [part_of(both, index, 3) for index in range(3)] == [Part.LAST, Part.WHOLE, Part.FIRST]
    assert part_of(both, 0, 1) is Part.MIDDLE
    assert part_of(0, 0, 1) is Part.WHOLE


def test_the_table_has_every_part() -> None:
    assert DEEDS.keys() == {(keeps, part) for keeps in (False, True) for part in Part}


def test_parts_are_joined_when_the_last_has_come() -> None:
    parts = Parts()
    assert parts.take(5, b"ab", Part.FIRST, retransmitted=True) is Deed.KEEP
    assert parts.take(6, b"cd", Part.MIDDLE, retransmitted=False) is Deed.KEEP
    whole = parts.take(7, b"e", Part.LAST, retransmitted=False)
    assert whole == Joined(first=5, last=7, body=b"abcde", retransmitted=True)
    assert parts.drop() is None
    again = parts.take(8, b"f", Part.WHOLE, retransmitted=False)
    assert again == Joined(first=8, last=8, body=b"f", retransmitted=False)


def test_what_goes_on_nothing_is_left_out() -> None:
    parts = Parts()
    assert parts.take(6, b"cd", Part.MIDDLE, retransmitted=False) is Deed.LEAVE
    assert parts.take(7, b"e", Part.LAST, retransmitted=False) is Deed.LEAVE
    assert parts.drop() is None


def test_what_is_kept_has_a_first_number_and_can_be_left_out() -> None:
    parts = Parts()
    parts.take(5, b"ab", Part.FIRST, retransmitted=False)
    assert parts.first == 5
    assert parts.drop() == 5
