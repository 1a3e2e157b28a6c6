"""Ops for operators and bulk programs: who serves, and which rids a registrant has used.

Values like those in `ops`; performed by the same drivers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq.model.ops import Op

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A session of a native server. alive: its lock is held. claims: elements that it holds."""

    slot: int
    incarnation: int
    process: UUID
    host: str
    pid: int
    backend_pid: int
    started_at: datetime
    alive: bool
    claims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListServers(Op["list[ServerInfo]"]):
    """Every session of a native server that is known, dead ones not yet taken over too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identify(Op["UUID"]):
    """The id of the repository, which no other has; a copy or a restored backup has it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RidRange(Op["tuple[str, str] | None"]):
    """The least and the greatest rid with a prefix that a registrant ever sent; None: none."""

    registrant_id: int
    prefix: str
