"""Sizes, times, sessions and topics as a person writes them: 64MiB, 7d, 0x7e1, bars."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from onceq.errors import InvalidValue
from onceq.model.names import check_id

SIZES: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
TIMES: Final = {"": 1, "s": 1, "min": 60, "h": 3_600, "d": 86_400}
_SESSION: Final = re.compile(r"session (?:0[xX])?(?P<hex>[0-9a-fA-F]{1,16})")
_NUMBER: Final = re.compile(r"(?P<number>\d{1,18})(?P<unit>[A-Za-z]*)")


def size_bytes(text: str, option: str) -> int:
    """Returns a size in bytes. InvalidValue for what is none, or 0; option: whose it is."""
    return _counted(text, option, SIZES)


def seconds(text: str, option: str) -> int:
    """Returns a time in seconds. InvalidValue for what is none, or 0; option: whose it is."""
    return _counted(text, option, TIMES)


def session_of(text: str, option: str) -> int:
    """Returns a session: 2017, 0x7e1, or as receivers are shown: session 7e1. InvalidValue."""
    found = _SESSION.fullmatch(text)
    try:
        number = int(text, 0) if found is None else int(found["hex"], 16)
    except ValueError:
        number = 0
    if not 1 <= number < 1 << 64:
        raise InvalidValue(
            f"{option} {text!r}: give a number of 64 bits, from 1, as 2017 or 0x7e1, the same in"
            " each life: by it stores know what was sent or acknowledged before"
        )
    return number


def session_text(session: int) -> str:
    """Returns a session as it is shown, which `session_of` takes."""
    return f"0x{session:x}"


def receiver_of(text: str) -> str:
    """Returns the name of a receiver at stores: a session may be said as one: session 0x7e1."""
    found = _SESSION.fullmatch(text)
    return text if found is None else f"session {int(found['hex'], 16):x}"


def topic_of(text: str) -> str:
    """Returns a topic. InvalidName for what is none, as `streams.Topic` has it."""
    return check_id("topic", text)


def _counted(text: str, option: str, units: Mapping[str, int]) -> int:
    found = _NUMBER.fullmatch(text)
    if found is None or found["unit"] not in units or int(found["number"]) == 0:
        known = ", ".join(name for name in units if name)
        raise InvalidValue(f"{option} {text!r}: give a number of at least 1, alone or with {known}")
    return int(found["number"]) * units[found["unit"]]
