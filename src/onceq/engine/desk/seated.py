"""An Op of a clerk that has no connection of its own, as it goes by a desk. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from onceq.model import ops

T = TypeVar("T")


def seated_op(op: ops.Op[T], bell: str) -> ops.Op[T]:
    """Returns it so: no connection notes that its clerk sleeps, which is rung here, always."""
    other: Any = op
    if isinstance(op, ops.Connect):
        other = msgspec.structs.replace(op, bell=bell)
    elif isinstance(op, ops.Send) and op.sleep:
        other = msgspec.structs.replace(op, sleep=False)
    elif isinstance(op, ops.Receive) and (op.sleep or op.asleep):
        other = msgspec.structs.replace(op, sleep=False, asleep=False)
    return other  # type: ignore[no-any-return] # of the same class
