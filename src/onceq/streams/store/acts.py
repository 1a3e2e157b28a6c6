"""What happens to a store that serves, and what it then has done, as values. Pure.

`serving` takes the ones and returns the others; `daemon` brings them over asyncio, or a simulator
does.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from onceq.model.ops.base import Op


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody has connected. link: the driver's number of the connection."""

    link: int


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes came that are as long as a frame."""

    link: int
    data: bytes


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A connection is not there any more."""

    link: int


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """All is on the disk that was appended before a position."""

    position: int


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An Op of a running Program was performed."""

    program: int
    answer: Any


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """A while has passed."""


Given: TypeAlias = Opened | Came | Gone | Synced | Answered | Ticked


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send bytes on a link."""

    link: int
    data: bytes


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Close a link on which something came that may not be; it was counted. why: for people."""

    link: int
    why: str


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Write and sync what was appended: somebody waits for it."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Perform an Op of a running Program, elsewhere."""

    program: int
    op: Op[Any]


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody waits for the Op of a Program any more."""

    program: int


Act: TypeAlias = Send | Refuse | Commit | Ask | Drop
