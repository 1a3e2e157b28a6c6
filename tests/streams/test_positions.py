"""What may be acknowledged, and where a life of a receiver begins: the examples of UM's guide."""

from __future__ import annotations

import random

import pytest

from onceq.errors import InvalidValue
from onceq.streams.model.contiguous import Ascending, Contiguous
from onceq.streams.model.low import Consensus, RecoveryInfo, acknowledged, agreed, info, low
from onceq.streams.model.window import Flight


def test_um_ack_ordering_0_1_5_2_4_acknowledges_2() -> None:
    """Messages 3 and 6 are still being processed; after a crash 3, 4, 5 and 6 come again."""
    ended = Contiguous()
    for number in (0, 1, 5, 2, 4):
        ended.end(number)
    assert ended.below - 1 == 2
    assert list(range(ended.below, 7)) == [3, 4, 5, 6]
    assert ended.waiting() == 2
    assert ended.end(3)
    assert ended.below - 1 == 5
    assert ended.waiting() == 0


def test_um_explicit_acknowledgements_5_10_15_cover_all_below() -> None:
    explicit = Ascending()
    for number in (5, 10, 15):
        explicit.acknowledge(number)
        assert explicit.below == number + 1
    with pytest.raises(InvalidValue, match="ascending"):
        explicit.acknowledge(9)
    assert explicit.below == 16


def test_what_ended_in_any_order_is_acknowledged_once_all_below_ended() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        begin, count = chance.randrange(5), chance.randrange(1, 30)
        order = chance.sample(range(begin, begin + count), count)
        ended, done = Contiguous(begin), set[int]()
        for number in order:
            before = ended.below
            grew = ended.end(number)
            done.add(number)
            assert set(range(begin, ended.below)) <= done
            assert ended.below not in done
            assert grew is (ended.below > before)
            assert not ended.end(number)  # once more changes nothing
        assert (ended.below, ended.waiting()) == (begin + count, 0)


def test_um_recovery_6_4_1_begins_at_4() -> None:
    """Seven messages, 0 to 6; 0 was acknowledged; at most 2 are requested back."""
    shown = info(acknowledged_below=1, end=7, maximum=2)
    assert shown == RecoveryInfo(high=6, low_rxreq_max=4, low=1)
    assert low(shown) == 4
    assert low(shown, 1) == 4, "the unchanged value does not override the maximum"
    assert low(shown, 0) == 0, "a changed one does: older"
    assert low(shown, 5) == 5, "newer"
    assert low(shown, shown.high + 1) == 7, "none"


def test_without_a_maximum_a_life_begins_after_what_was_acknowledged() -> None:
    assert low(info(acknowledged_below=1, end=7, maximum=None)) == 1
    assert low(info(acknowledged_below=0, end=0, maximum=None)) == 0
    assert low(info(acknowledged_below=7, end=7, maximum=2)) == 7


def test_um_the_last_ten_messages() -> None:
    shown = info(acknowledged_below=3, end=100, maximum=None)
    assert low(shown, shown.high - 9) == 90


@pytest.mark.parametrize("answer", [-1, 8])
def test_a_beginning_that_cannot_be_is_refused(answer: int) -> None:
    with pytest.raises(InvalidValue, match="from 0 to 7"):
        low(info(acknowledged_below=1, end=7, maximum=None), answer)


@pytest.mark.parametrize(
    ("answers", "lowest", "majority", "highest"),
    [
        ([5], 5, 5, 5),
        ([3, 9], 3, 3, 9),
        ([9, 2, 4], 2, 4, 9),
        ([1, 7, 7, 2], 1, 2, 7),
        ([0, 8, 8, 8, 9], 0, 8, 9),
    ],
)
def test_um_consensus(answers: list[int], lowest: int, majority: int, highest: int) -> None:
    assert agreed(answers, Consensus.LOWEST) == lowest
    assert agreed(answers, Consensus.MAJORITY) == majority
    assert agreed(answers, Consensus.HIGHEST) == highest
    assert sum(one >= majority for one in answers) * 2 > len(answers)


@pytest.mark.parametrize(
    ("known", "begins", "rule", "below"),
    [
        ([10, 0, 0], [0, 0, 0], Consensus.MAJORITY, 0),
        ([10, 0, 0], [4, 0, 0], Consensus.MAJORITY, 4),
        ([10, 8, 0], [4, 4, 0], Consensus.MAJORITY, 8),
        ([10, 0, 0], [12, 12, 0], Consensus.MAJORITY, 10),
        ([10, 8, 0], [6, 4], Consensus.LOWEST, 6),
        ([10, 8, 0], [6, 4], Consensus.HIGHEST, 10),
    ],
)
def test_what_stores_gave_up_since_it_was_acknowledged_is_not_begun_with(
    known: list[int], begins: list[int], rule: Consensus, below: int
) -> None:
    assert acknowledged(known, begins, rule) == below


def test_flight_size_1_is_one_unstable_message_at_a_time() -> None:
    flight = Flight(messages_max=1)
    assert flight.send(10) == 0
    assert not flight.has_room(1)
    assert flight.land(1) == 1
    assert flight.has_room(1)
    assert flight.send(10) == 1


def test_a_flight_is_bounded_by_messages_and_by_bytes() -> None:
    flight = Flight(messages_max=3, bytes_max=100, begin=7)
    assert flight.has_room(1_000), "one message may be larger than the limit, alone"
    assert [flight.send(40), flight.send(40)] == [7, 8]
    assert not flight.has_room(21)
    assert flight.has_room(20)
    flight.send(20)
    assert not flight.has_room(0)
    assert flight.land(9) == 2
    assert (len(flight), flight.bytes, flight.landed_below) == (1, 20, 9)
    assert flight.land(5) == 0
    assert flight.land(99) == 1
    assert (len(flight), flight.bytes, flight.landed_below) == (0, 0, 10)


def test_a_flight_without_limits_always_has_room() -> None:
    flight = Flight(messages_max=0)
    for _ in range(1_000):
        assert flight.has_room(1 << 20)
        flight.send(1 << 20)


def test_a_negative_flight_size_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no limit"):
        Flight(messages_max=-1)
