"""How long something is waited for, and what numbers may be: checked where they are given."""

from __future__ import annotations

import math
from typing import Final

from onceq.errors import InvalidValue
from onceq.model.names import TIMEOUT_S_MAX, shown

NUMBER_MAX: Final = 2**63 - 1


def check_wait(name: str, value: object) -> float | None:
    """Return how many seconds to wait; None: for ever. Raises InvalidValue."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise InvalidValue(f"{name} is {shown(value)}: give seconds, or None: as long as it takes")
    return min(value, TIMEOUT_S_MAX)


def check_number(number: object) -> int:
    """Return the number of a message. Raises InvalidValue."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= NUMBER_MAX:
        raise InvalidValue(f"number is {shown(number)}: give that of a message, as `send` returned")
    return number
