"""The arrivals at a desk: the Ops that wait for a connection, and which go together. Pure.

Whoever met a lock, or fell out of a group, comes again: alone, one at a time on the whole desk, and
after a rest if a lock was met. So those who wait for locks take a part of one connection only.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from onceq.errors import CannotConnect, ConnectionLost, DeadlineExceeded, Outcome
from onceq.model.desk_ops import BYTES_MAX, GROUP_MAX, GROUPINGS, group_key, weight

if TYPE_CHECKING:
    from onceq.errors import OnceqError
    from onceq.model.ops import Op

A = TypeVar("A")

OF_ALL: Final = (CannotConnect, ConnectionLost)
"""Errors of a connection, and not of an Op."""
ALONE: Final = ("alone",)
AGAIN: Final = ("again",)
"""Kinds of Ops that go one by one: those that join no group, and those that come again."""
REST_S: Final = 0.06
"""After an Op met a lock, nobody comes again for so long: three times what a try may take."""


class Asked(Generic[A]):
    """An Op that waits for its answer.

    answer: where that goes. number: when it came. until: when its own time is over, if it has one.
    is_waiting: for a connection. is_under_way: it was given to one. is_dropped: nobody waits for
    its answer any more.
    """

    __slots__ = (
        *("answer", "is_dropped", "is_under_way", "is_waiting"),
        *("kind", "number", "op", "until"),
    )

    def __init__(self, op: Op[Any], answer: A, number: int, until: float | None) -> None:
        self.op = op
        self.answer = answer
        self.number = number
        self.until = until
        self.kind = group_key(op) or ALONE
        self.is_waiting = False
        self.is_under_way = False
        self.is_dropped = False


class Arrivals(Generic[A]):
    """Who waits, in the order of coming; of a kind together."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[tuple[Any, ...], deque[Asked[A]]] = {}
        self._rests_until = 0.0
        self._again: Asked[A] | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, op: Op[Any], answer: A, until: float | None = None) -> Asked[A]:
        """Adds an Op at the end."""
        asked = Asked(op, answer, next(self._numbers), until)
        self._put_last(asked, asked.kind)
        return asked

    def drop(self, asked: Asked[A]) -> None:
        """Takes note that nobody waits for an answer any more. What has not begun never will."""
        asked.is_dropped = True
        if asked.is_waiting:
            asked.is_waiting = False
            self._waiting[asked.kind].remove(asked)
            self._forget_empty(asked.kind)

    def take(self, now: float) -> list[Asked[A]]:
        """Takes who came first, and those who may go along. Empty: nobody may go now."""
        kinds = [one for one in self._waiting if one is not AGAIN or self._may_come_again(now)]
        if not kinds:
            return []
        kind = min(kinds, key=lambda one: self._waiting[one][0].number)
        alike = self._waiting[kind]
        group = [alike.popleft()]
        most = 1 if kind in {ALONE, AGAIN} else GROUP_MAX
        room = BYTES_MAX - weight(group[0].op)
        while alike and len(group) < most and weight(alike[0].op) <= room:
            room -= weight(alike[0].op)
            group.append(alike.popleft())
        self._forget_empty(kind)
        for asked in group:
            asked.is_waiting, asked.is_under_way = False, True
        if kind is AGAIN:
            self._again = group[0]
        return group

    def _may_come_again(self, now: float) -> bool:
        is_free = self._again is None or not self._again.is_under_way
        return is_free and now >= self._rests_until

    def _forget_empty(self, kind: tuple[Any, ...]) -> None:
        if not self._waiting[kind]:
            del self._waiting[kind]

    def answered(self, group: list[Asked[A]], answer: Any) -> list[tuple[Asked[A], Any]]:
        """Returns who is told what of a group's answer; whoever fell out comes again."""
        end(group)
        if len(group) == 1:
            return [(group[0], answer)]
        places = list(enumerate(group, 1))
        self._put_first([asked for place, asked in places if place not in answer])
        return [(asked, answer[place]) for place, asked in places if place in answer]

    def failed(
        self, group: list[Asked[A]], error: OnceqError, now: float
    ) -> list[tuple[Asked[A], OnceqError]]:
        """Returns who is told what of an error; the others come again.

        What is unknown, and what is of the connection, is told to each. Else nothing happened, and
        each of a group comes again alone. So does one that met a lock, behind those who wait.
        """
        end(group)
        if len(group) == 1:
            asked = group[0]
            may_wait = asked.until is None or now < asked.until
            if not isinstance(error, DeadlineExceeded) or not may_wait:
                return [(asked, error)]
            self._rests_until = now + REST_S
            asked.number = next(self._numbers)
            self._put_last(asked, AGAIN)
            return []
        if error.outcome is Outcome.UNKNOWN or isinstance(error, OF_ALL):
            return told(group, error)
        self._put_first(group)
        return []

    def _put_first(self, each: list[Asked[A]]) -> None:
        """Puts Ops before all that come again, in their old order."""
        for asked in reversed([one for one in each if not one.is_dropped]):
            asked.kind, asked.is_waiting = AGAIN, True
            self._waiting.setdefault(AGAIN, deque()).appendleft(asked)

    def _put_last(self, asked: Asked[A], kind: tuple[Any, ...]) -> None:
        if not asked.is_dropped:
            asked.kind, asked.is_waiting = kind, True
            self._waiting.setdefault(kind, deque()).append(asked)

    def take_all(self) -> list[Asked[A]]:
        """Takes everybody who waits."""
        found = [asked for alike in self._waiting.values() for asked in alike]
        self._waiting.clear()
        for asked in found:
            asked.is_waiting = False
        return found


def end(group: list[Asked[A]]) -> None:
    """Takes note that a connection is done with these Ops."""
    for asked in group:
        asked.is_under_way = False


def told(group: list[Asked[A]], error: OnceqError) -> list[tuple[Asked[A], OnceqError]]:
    """Returns that each of a group is told of one error, each by one of its own."""
    return [(asked, copy.copy(error)) for asked in group]


def joined(group: list[Asked[A]]) -> Op[Any]:
    """Returns the Op of a group."""
    each = [asked.op for asked in group]
    return each[0] if len(each) == 1 else GROUPINGS[type(each[0])].join(each)
