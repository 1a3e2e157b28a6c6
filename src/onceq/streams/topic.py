"""Topics as values: a name, and the type of what is sent on it. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from onceq.errors import InvalidName
from onceq.model import names
from onceq.model.queue import decode, encode
from onceq.model.value_types import check_value_type

T = TypeVar("T")


@dataclass(frozen=True, init=False)
class Topic(Generic[T]):
    """What is sent under a name: values of a type, or bytes.

    A value: making one does no I/O. name: 1 to 200 bytes of UTF-8 without control characters. Types
    are those of queues: whatever msgspec encodes as JSON; docs/types.md has the table. Raises
    InvalidName or InvalidValue.
    """

    name: str
    value_type: type[T]

    @overload
    def __init__(self: Topic[bytes], name: str) -> None: ...
    @overload
    def __init__(self, name: str, value_type: type[T]) -> None: ...
    def __init__(self, name: str, value_type: type[Any] = bytes) -> None:
        object.__setattr__(self, "name", names.check_id("topic", name))
        check_value_type(f"the values of topic {name!r}", value_type)
        object.__setattr__(self, "value_type", value_type)

    def encode(self, value: T) -> bytes:
        """Returns the bytes of a value. Raises InvalidValue; nothing happened."""
        if self.value_type is bytes and isinstance(value, bytes):
            return value
        return encode(self.value_type, value, f"value for topic {self.name!r}")

    def decode(self, body: bytes) -> T:
        """Returns the value in these bytes. Raises InvalidValue."""
        if self.value_type is bytes:
            return body  # type: ignore[return-value] # T is bytes
        return decode(self.value_type, body, f"value of topic {self.name!r}")  # type: ignore[no-any-return] # typed by value_type


def check_topic(topic: object) -> None:
    """Raises InvalidName for what is no topic."""
    if not isinstance(topic, Topic):
        raise InvalidName(
            f"{names.shown(topic)} is no topic: give streams.Topic(name, type), made once for all"
        )
