"""The messages of torture: each tells which life has sent it, and as which number."""

from __future__ import annotations

import struct
from typing import Final

_HEAD: Final = struct.Struct("<QQ")
PAD: Final = bytes(range(256)) * 2
PAD_BYTES: Final = 16
NOBODY: Final = "nobody"


def message(life: int, number: int) -> bytes:
    """Return the message that a life sends as a number."""
    at = number % 256
    return _HEAD.pack(life, number) + PAD[at : at + PAD_BYTES]


def sender_of(body: bytes, number: int) -> str:
    """Return the life that sends such a message as this number: its content, for a history."""
    life: int = _HEAD.unpack_from(body)[0] if len(body) >= _HEAD.size else 0
    return str(life) if body == message(life, number) else NOBODY
