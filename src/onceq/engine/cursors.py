"""The cursors of the drivers: what is registered on a connection does not reach our own statements.

Private to the engine. A connection may be the caller's, or have been in a handler's hands: Django
has its own loaders of jsonb and of times, others have theirs of uuid, and a cursor takes what its
connection has. These take what psycopg comes with.
"""

from __future__ import annotations

import functools
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.postgres import register_default_adapters
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types import TypesRegistry
from psycopg.types.array import register_all_arrays


@functools.cache
def _as_psycopg_comes() -> AdaptersMap:
    adapters = AdaptersMap(types=TypesRegistry(psycopg.adapters.types))
    register_default_adapters(adapters)
    register_all_arrays(adapters)
    return adapters


class OwnCursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor of a driver: rows as tuples, in binary."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self.format = Format.BINARY

    @property
    def adapters(self) -> AdaptersMap:
        """What psycopg comes with, whatever is registered on the connection."""
        return _as_psycopg_comes()


class AsyncOwnCursor(psycopg.AsyncCursor[tuple[Any, ...]]):
    """`OwnCursor`, of an async connection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self.format = Format.BINARY

    @property
    def adapters(self) -> AdaptersMap:
        """See `OwnCursor.adapters`."""
        return _as_psycopg_comes()
