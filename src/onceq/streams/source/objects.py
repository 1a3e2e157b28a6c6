"""The objects that a sender gave with its messages, and which messages take several numbers. Pure.

Events of these messages are their own: one that tells of a row of numbers is split at their bounds.
Source: spec M11; UM, the object that comes with all events of a message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from onceq.streams.model import events

OfMessages: TypeAlias = events.Stable | events.NotStable | events.Confirmed | events.Reclaimed
_Event = TypeVar("_Event", bound=OfMessages)


class Objects:
    """What is known of the messages that are kept, if it is more than that each has a number."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._messages: list[tuple[int, Any]] = []

    def note(self, first: int, last: int, given: Any) -> None:
        """Note a message, behind those before. given: the sender's object; None: it gave none."""
        if given is not None or first < last:
            self._firsts.append(first)
            self._messages.append((last, given))

    def split(self, event: _Event) -> Iterator[_Event]:
        """Yield an event as one for each message that has an object, and for the rows between.

        A message that takes several numbers is reclaimed number by number.
        """
        at = event.first
        index = max(bisect_right(self._firsts, at) - 1, 0)
        while index < len(self._firsts) and self._firsts[index] <= event.last:
            first, (last, given) = self._firsts[index], self._messages[index]
            index += 1
            if last < at:
                continue
            if at < first:
                yield replace(event, first=at, last=first - 1)
                at = first
            end = min(last, event.last)
            each = isinstance(event, events.Reclaimed)
            for begin in range(at, end + 1) if each else (at,):
                yield replace(event, first=begin, last=begin if each else end, given=given)
            at = end + 1
        if at <= event.last:
            yield replace(event, first=at)

    def forget(self, below: int) -> None:
        """Forget the messages that end before a number."""
        count = bisect_left(self._firsts, below)
        while count and self._messages[count - 1][0] >= below:
            count -= 1
        if count:
            del self._firsts[:count], self._messages[:count]
