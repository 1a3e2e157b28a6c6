"""Where a life of a receiver begins, and which of several answers is reported. Pure.

The last number sent is `high`, as UM counts: 6 after 0 to 6. A receiver that acknowledged 0 would
begin at 1. If it asks for at most 2 back (`retransmit_request_maximum`), it begins at 6 - 2 = 4. A
call-back that names another number than the 1 that it was shown has the last word; naming the 1
itself changes nothing: 4. Source: UM, "Recovery Management"; spec M24, M33.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from onceq.errors import InvalidValue


class Consensus(enum.StrEnum):
    """Which of the numbers that stores answered is reported to the application."""

    LOWEST = "lowest"
    MAJORITY = "majority"
    HIGHEST = "highest"


def agreed(answers: Sequence[int], rule: Consensus) -> int:
    """Return the number reported of those that stores answered; at least one did.

    majority: the greatest that more than half of them reach.
    """
    ranked = sorted(answers, reverse=True)
    match rule:
        case Consensus.HIGHEST:
            return ranked[0]
        case Consensus.LOWEST:
            return ranked[-1]
        case Consensus.MAJORITY:
            return ranked[len(ranked) // 2]


def acknowledged(known: Sequence[int], begins: Sequence[int], rule: Consensus) -> int:
    """Return below which number a receiver counts as having acknowledged everything.

    known: its positions, as stores have them, at least one. begins: where their logs begin. Stores
    give up what is below the greatest position that any of them knows, whatever the rule says: what
    is gone of that was acknowledged, and a life that began with it would be told that it is lost.
    """
    return max(agreed(known, rule), min(max(known), max(begins)))


class RecoveryInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the call-back of a receiver is shown before a life begins.

    high: the last number sent; -1 if nothing was. low: what is not yet acknowledged begins here.
    low_rxreq_max: `high` less what is requested back at most; `low` if there is no maximum.
    """

    high: int
    low_rxreq_max: int
    low: int


def info(*, acknowledged_below: int, end: int, maximum: int | None) -> RecoveryInfo:
    """Return what the call-back is shown. maximum: `retransmit_request_maximum`; None: none."""
    high = end - 1
    low = min(acknowledged_below, end)
    return RecoveryInfo(
        high=high,
        low_rxreq_max=low if maximum is None else max(high - maximum, 0),
        low=low,
    )


def next_number(shown: RecoveryInfo) -> int:
    """Return the number of the next message: what was sent before is not asked for."""
    return shown.high + 1


def low(shown: RecoveryInfo, answer: int | None = None) -> int:
    """Return the first number that a life gets. answer: of the call-back; None: it has none.

    Raises InvalidValue if the answer is below 0 or beyond the next message.
    """
    if answer is None or answer == shown.low:
        return max(shown.low, shown.low_rxreq_max)
    if not 0 <= answer <= shown.high + 1:
        raise InvalidValue(
            f"a receiver cannot begin at {answer}: give a number from 0 to {shown.high + 1},"
            " which is the next message"
        )
    return answer
