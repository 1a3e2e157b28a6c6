"""What an application has been shown, and what of it may be acknowledged."""

from __future__ import annotations

from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.outstanding import MESSAGE_BYTES, Outstanding


def message(number: int, epoch: int = 1, body: bytes = b"") -> Message:
    return Message(stream=7, epoch=epoch, number=number, body=body)


def loss(first: int, last: int) -> Loss:
    return Loss(stream=7, first=first, last=last, why=WhyLost.TRIMMED)


def back(first: int, last: int) -> RolledBack:
    return RolledBack(stream=7, first=first, last=last)


def ended(one: Outstanding) -> list[int]:
    """What may be acknowledged, as one after the other comes to its end."""
    found = [one.below(99)]
    while one.first is not None:
        one.end(one.show())
        found.append(one.below(99))
    return found


def test_what_has_come_to_its_end_may_be_acknowledged_if_it_is_stable() -> None:
    one = Outstanding(3)
    one.add([message(3), message(4), message(5)])
    assert one.first == message(3)
    assert one.below(9) == 3
    one.end(one.show())
    assert (one.below(9), one.below(3)) == (4, 3)
    assert one.first == message(4)


def test_a_loss_that_was_told_is_over() -> None:
    one = Outstanding(0)
    one.add([message(0), loss(1, 4), message(5)])
    assert ended(one) == [0, 1, 5, 6]


def test_what_was_seen_in_vain_is_not_acknowledged_and_nothing_behind_it() -> None:
    """Three were shown; then an epoch cut two of them, and others came in their place."""
    one = Outstanding(0)
    one.add([message(0), message(1), message(2)])
    for _ in range(3):
        one.end(one.show())
    assert one.below(9) == 3
    one.add([back(1, 2)])
    assert one.below(9) == 1, "before the application knows it"
    one.add([message(1, 2), message(2, 2), message(3, 2)])
    assert ended(one) == [1, 1, 2, 3, 4]


def test_a_cut_of_what_was_still_outstanding_counts_at_once() -> None:
    one = Outstanding(0)
    one.add([message(0), message(1), message(2), back(1, 2), message(1, 2)])
    assert ended(one) == [0, 1, 1, 1, 1, 2]


def test_numbers_that_were_told_as_lost_and_come_after_all_wait_for_their_end() -> None:
    one = Outstanding(0)
    one.add([message(0), loss(1, 4)])
    assert ended(one) == [0, 1, 5]
    one.add([message(1, 2)])
    assert ended(one) == [1, 2]


def test_it_is_full_by_number_or_by_bytes() -> None:
    by_number = Outstanding(0, messages_max=2)
    by_bytes = Outstanding(0, bytes_max=2 * MESSAGE_BYTES + 10)
    shown: list[Shown] = [message(number, body=b"12345") for number in range(2)]
    for one in (by_number, by_bytes):
        one.add(shown[:1])
        assert not is_full(one)
        one.add(shown[1:])
        assert is_full(one)
        one.end(one.show())
        assert not is_full(one)
    assert by_bytes.bytes == MESSAGE_BYTES + 5
    without = Outstanding(0)
    without.add(shown * 500)
    assert (len(without), is_full(without)) == (1_000, False)


def test_what_ends_out_of_order_is_acknowledged_up_to_the_first_gap() -> None:
    """UM's example: of 0, 1, 5, 2, 4 that is 2; behind the gap only numbers are kept."""
    one = Outstanding(0)
    one.add([message(number, body=b"12345") for number in range(7)])
    places = [one.show() for _ in range(7)]
    found: list[int] = []
    for number in (0, 1, 5, 2, 4):
        one.end(places[number])
        one.end(places[number])
        found.append(one.below(99) - 1)
    assert found == [0, 1, 1, 2, 2]
    assert (len(one), one.bytes) == (4, 4 * MESSAGE_BYTES + 2 * 5)
    one.end(places[3])
    assert (one.below(99), len(one)) == (6, 1)
    one.end(places[6])
    assert (one.below(99), len(one), one.bytes) == (7, 0, 0)


def test_one_may_end_with_all_before_it() -> None:
    one = Outstanding(0)
    one.add([message(number) for number in range(16)])
    places = [one.show() for _ in range(16)]
    found: list[int] = []
    for number in (5, 10, 3, 15):
        one.end_through(places[number])
        found.append(one.below(99) - 1)
    assert found == [5, 10, 10, 15]
    assert len(one) == 0


def test_what_was_retained_when_its_number_was_cut_ends_alone() -> None:
    one = Outstanding(0)
    one.add([message(0), message(1)])
    first, cut = one.show(), one.show()
    one.end(first)
    one.add([back(1, 1), message(1, 2)])
    assert one.below(9) == 1
    told, again = one.show(), one.show()
    one.end(told)
    one.end(cut)
    assert one.below(9) == 1, "the second of that number has not ended"
    one.end(again)
    assert one.below(9) == 2


def is_full(one: Outstanding) -> bool:
    return one.is_full
