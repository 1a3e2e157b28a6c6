"""The arrivals at a desk: the Ops that wait for a connection, and which go together. Pure."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from onceq.errors import CannotConnect, ConnectionLost, DeadlineExceeded, Outcome
from onceq.model.desk_ops import GROUP_MAX, GROUPINGS, group_key

if TYPE_CHECKING:
    from onceq.errors import OnceqError
    from onceq.model.ops import Op

A = TypeVar("A")

OF_ALL: Final = (CannotConnect, ConnectionLost)
"""Errors of a connection, and not of an Op."""


class Asked(Generic[A]):
    """An Op that waits for its answer.

    answer: where that goes. number: when it came. until: when its own time is over, if it has one.
    tries: how often it met a lock. is_under_way: it was given to a connection. is_dropped: nobody
    waits any more.
    """

    __slots__ = ("answer", "is_dropped", "is_under_way", "key", "number", "op", "tries", "until")

    def __init__(self, op: Op[Any], answer: A, number: int, until: float | None) -> None:
        self.op = op
        self.answer = answer
        self.number = number
        self.until = until
        self.key = group_key(op)
        self.tries = 0
        self.is_under_way = False
        self.is_dropped = False


class Arrivals(Generic[A]):
    """Who waits, in the order of coming; of a kind together.

    later: who met a lock and is to be put back after a while.
    """

    def __init__(self) -> None:
        self.later: list[Asked[A]] = []
        self._numbers = itertools.count()
        self._waiting: dict[tuple[Any, ...] | None, deque[Asked[A]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, op: Op[Any], answer: A, until: float | None = None) -> Asked[A]:
        """Adds an Op at the end."""
        asked = Asked(op, answer, next(self._numbers), until)
        self._waiting.setdefault(asked.key, deque()).append(asked)
        return asked

    def put_back(self, each: list[Asked[A]]) -> None:
        """Puts Ops back, in their old order: each goes alone now."""
        if not each:
            return
        alone = self._waiting.setdefault(None, deque())
        for asked in reversed(each):
            asked.key, asked.is_under_way = None, False
            alone.appendleft(asked)

    def take(self) -> list[Asked[A]]:
        """Takes who came first, and those who may go along. Empty: those were all dropped."""
        key = min(self._waiting, key=lambda one: self._waiting[one][0].number)
        kind = self._waiting[key]
        most = 1 if key is None else GROUP_MAX
        group: list[Asked[A]] = []
        while kind and len(group) < most:
            asked = kind.popleft()
            if not asked.is_dropped:
                asked.is_under_way = True
                group.append(asked)
        if not kind:
            del self._waiting[key]
        return group

    def answered(self, group: list[Asked[A]], answer: Any) -> list[tuple[Asked[A], Any]]:
        """Returns who is told what of a group's answer; whoever fell out is put back."""
        if len(group) == 1:
            return [(group[0], answer)]
        places = list(enumerate(group, 1))
        self.put_back([asked for place, asked in places if place not in answer])
        return [(asked, answer[place]) for place, asked in places if place in answer]

    def failed(
        self, group: list[Asked[A]], error: OnceqError, now: float
    ) -> list[tuple[Asked[A], OnceqError]]:
        """Returns who is told what of an error; the others are put back, or are to come `later`.

        What is unknown, and what is of the connection, is told to each. Else nothing happened, and
        each of a group goes alone.
        """
        if len(group) == 1:
            asked = group[0]
            may_wait = asked.until is None or now < asked.until
            if isinstance(error, DeadlineExceeded) and may_wait:
                asked.is_under_way = False
                self.later.append(asked)
                return []
            return [(asked, error)]
        if error.outcome is Outcome.UNKNOWN or isinstance(error, OF_ALL):
            return [(asked, type(error)(str(error))) for asked in group]
        self.put_back(group)
        return []

    def take_all(self) -> list[Asked[A]]:
        """Takes everybody who waits."""
        found = [asked for kind in self._waiting.values() for asked in kind if not asked.is_dropped]
        self._waiting.clear()
        return found


def joined(group: list[Asked[A]]) -> Op[Any]:
    """Returns the Op of a group."""
    each = [asked.op for asked in group]
    return each[0] if len(each) == 1 else GROUPINGS[type(each[0])].join(each)
