"""Sizes, times and sessions as a person writes them: 64MiB, 7d, 0x7e1."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from onceq.errors import InvalidValue

SIZES: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
TIMES: Final = {"": 1, "s": 1, "min": 60, "h": 3_600, "d": 86_400}
_NUMBER: Final = re.compile(r"(?P<number>\d{1,18})(?P<unit>[A-Za-z]*)")


def size_bytes(text: str, option: str) -> int:
    """Returns a size in bytes. InvalidValue for what is none, or 0; option: whose it is."""
    return _counted(text, option, SIZES)


def seconds(text: str, option: str) -> int:
    """Returns a time in seconds. InvalidValue for what is none, or 0; option: whose it is."""
    return _counted(text, option, TIMES)


def session_of(text: str, option: str) -> int:
    """Returns a session: a number of 64 bits, as 2017 or 0x7e1. InvalidValue for another text."""
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise InvalidValue(f"{option} {text!r}: give a number of 64 bits, as 2017 or 0x7e1")
    return number


def _counted(text: str, option: str, units: Mapping[str, int]) -> int:
    found = _NUMBER.fullmatch(text)
    if found is None or found["unit"] not in units or int(found["number"]) == 0:
        known = ", ".join(name for name in units if name)
        raise InvalidValue(f"{option} {text!r}: give a number of at least 1, alone or with {known}")
    return int(found["number"]) * units[found["unit"]]
