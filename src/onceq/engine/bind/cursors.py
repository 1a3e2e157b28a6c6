"""The cursors of the drivers: adapters registered on a connection do not affect our statements.

Private to the engine. A connection may be the caller's, or a handler may have used it. Django
has its own loaders for jsonb and times, others have theirs for uuid, and a cursor takes its
connection's. These cursors take the ones that psycopg comes with.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Transformer
from psycopg.postgres import register_default_adapters
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types import TypesRegistry
from psycopg.types.array import register_all_arrays
from psycopg.types.datetime import TimestamptzBinaryLoader
from psycopg.types.json import JsonbBinaryLoader

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult


@functools.cache
def _as_psycopg_comes() -> AdaptersMap:
    adapters = AdaptersMap(types=TypesRegistry(psycopg.adapters.types))
    register_default_adapters(adapters)
    register_all_arrays(adapters)
    return adapters


UNREADABLE: Final = (psycopg.DataError, ValueError, RecursionError)
"""What a loader raises for a value that Python cannot hold."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Takes the place of a value that Python cannot hold, and says why."""

    why: str


_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


class _Moment(TimestamptzBinaryLoader):
    """Turns infinity, and times beyond the years of Python, into the last or the first moment."""

    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            is_past = int.from_bytes(data, "big", signed=True) < 0
            return _FIRST if is_past else _LAST


class _Json(JsonbBinaryLoader):
    def load(self, data: Buffer) -> Any:
        try:
            return super().load(data)
        except (ValueError, RecursionError) as error:
            return Unreadable(str(error))


@dataclass(frozen=True, slots=True)
class _Lenient:
    """What a Transformer needs: psycopg's AdaptContext."""

    adapters: AdaptersMap
    connection: psycopg.BaseConnection[Any]


@functools.cache
def _lenient() -> AdaptersMap:
    adapters = AdaptersMap(_as_psycopg_comes())
    adapters.register_loader("timestamptz", _Moment)
    adapters.register_loader("jsonb", _Json)
    return adapters


def leniently(
    result: PGresult | None, connection: psycopg.BaseConnection[Any]
) -> list[tuple[Any, ...]]:
    """Returns the rows of a result that raised one of UNREADABLE, with stand-ins."""
    if result is None:
        return []
    values = Transformer(_Lenient(_lenient(), connection))
    values.set_pgresult(result, format=Format.BINARY)
    return values.load_rows(0, result.ntuples, tuple)


class _Adapted:
    """A cursor with the adapters that psycopg comes with, whatever its connection has."""

    @property
    def adapters(self) -> AdaptersMap:
        """Those adapters."""
        return _as_psycopg_comes()


class OwnCursor(_Adapted, psycopg.Cursor[tuple[Any, ...]]):
    """A cursor of a driver: rows as tuples, in binary."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self.format = Format.BINARY


class AsyncOwnCursor(_Adapted, psycopg.AsyncCursor[tuple[Any, ...]]):
    """`OwnCursor` for an async connection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self.format = Format.BINARY
