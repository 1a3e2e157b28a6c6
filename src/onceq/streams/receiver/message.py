"""A message as its handler is shown it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from onceq.streams.receiver import ops
from onceq.streams.receiver.tokens import Token
from onceq.streams.topic import Topic

T = TypeVar("T")
_UNREAD: Any = object()


class Identity(NamedTuple):
    """What names a message for ever: no other one has the same three."""

    stream: int
    epoch: int
    number: int


class Message(Generic[T]):
    """A message of a stream. keep: called by `retain`, with what was shown."""

    __slots__ = ("_keep", "_one", "_topic", "_value")

    def __init__(
        self, topic: Topic[T], one: ops.Message, keep: Callable[[ops.Message], Token]
    ) -> None:
        self._topic, self._one, self._keep = topic, one, keep
        self._value: T = _UNREAD

    @property
    def number(self) -> int:
        """Its number in the stream, from 0; of one that takes several, the last."""
        return self._one.number

    @property
    def first(self) -> int:
        """The first of its numbers."""
        return self._one.first

    @property
    def value(self) -> T:
        """What was sent. Raises InvalidValue if it is not of the topic's type: see `body` then."""
        if self._value is _UNREAD:
            self._value = self._topic.decode(self._one.body)
        return self._value

    @property
    def body(self) -> bytes:
        """Its bytes, as they were sent."""
        return self._one.body

    @property
    def retransmitted(self) -> bool:
        """Whether it came from a store: then an earlier life may have seen it."""
        return self._one.retransmitted

    @property
    def identity(self) -> Identity:
        """The stream, the epoch and the number."""
        return Identity(self._one.stream, self._one.epoch, self._one.number)

    def retain(self) -> Token:
        """Have the handler's return not acknowledge it: the token does, later, from any thread.

        Raises IllegalState when the handler has returned.
        """
        return self._keep(self._one)

    def __repr__(self) -> str:
        again = ", retransmitted" if self.retransmitted else ""
        return f"<Message {self.number} of {self._topic.name!r}, {len(self.body)} bytes{again}>"
