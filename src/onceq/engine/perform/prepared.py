"""Statements of the hot path, by libpq itself: prepared once, their parameters packed here.

Private to the drivers, on connections of our own. A cursor of psycopg takes longer over such a
statement than PostgreSQL does. A COMMIT can be sent with one, so that both are one round trip.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from psycopg import generators, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from onceq.engine.bind.cursors import UNREADABLE, leniently
from onceq.engine.perform.one_way import MARK
from onceq.engine.sessions.silence import AsyncOwnConnection, OwnConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGresult

    from onceq.engine.bind.cursors import AsyncOwnCursor, OwnCursor
    from onceq.engine.bind.decoding import Row
    from onceq.engine.bind.statement import Binding

FORGOTTEN: Final = "26000"
"""The SQLSTATE when a prepared statement is not there any more."""
IDLE: Final = pq.TransactionStatus.IDLE
_LENGTH: Final = struct.Struct("!i").pack
_ARRAY: Final = struct.Struct("!iiIii").pack
_OIDS: Final = {"integer": 23, "bigint": 20, "text": 25, "bytea": 17}
_COMMIT: Final = b"commit"


def _text(value: str) -> bytes:
    if "\0" in value:
        raise TypeError("PostgreSQL has no text with a NUL")
    return value.encode()


_PACKERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "text": _text,
    "bytea": lambda value: memoryview(value).tobytes(),
    "boolean": struct.Struct("!?").pack,
    "smallint": struct.Struct("!h").pack,
    "integer": struct.Struct("!i").pack,
    "bigint": struct.Struct("!q").pack,
}


def _array_packer(kind: str) -> Callable[[Sequence[Any]], bytes]:
    pack, oid = _PACKERS[kind], _OIDS[kind]

    def packed(values: Sequence[Any]) -> bytes:
        if not values:
            return struct.pack("!iiI", 0, 0, oid)
        parts = [_ARRAY(1, 0, oid, len(values), 1)]
        for value in map(pack, values):
            parts += (_LENGTH(len(value)), value)
        return b"".join(parts)

    return packed


PACKERS: Final = {**_PACKERS, **{f"{kind}[]": _array_packer(kind) for kind in _OIDS}}
"""By SQL type: how a value, if it is not None, travels in binary."""
UNPACKED: Final = (struct.error, TypeError)
"""What a packer raises for a value that does not fit: psycopg knows what to say of it."""
Values: TypeAlias = list[bytes | None]


class Prepared:
    """The statements that are prepared on one connection, and their answers.

    lacks_seed: psycopg has prepared nothing there, so that it does not see what deallocates all.
    """

    __slots__ = ("_connection", "_names", "_numbers", "_pgconn", "_values", "lacks_seed")

    def __init__(self, cursor: OwnCursor | AsyncOwnCursor) -> None:
        self._connection = cursor.connection
        self._pgconn = cursor.connection.pgconn
        self._values = Transformer(cursor)
        self._names: dict[bytes, bytes] = {}
        self._numbers = itertools.count()
        self.lacks_seed = True

    def ask(self, text: bytes, values: Values) -> PQGen[list[Row]]:
        """Executes a statement; returns its rows. psycopg.Error."""
        yield from self._prepare(text)
        self._send(text, values)
        results = yield from generators.execute(self._pgconn)
        if self._is_forgotten(results) and self._pgconn.transaction_status == IDLE:
            return (yield from self.ask(text, values))
        return self._rows(results)

    def ask_and_commit(self, text: bytes, values: Values) -> PQGen[list[Row]]:
        """The same, and sends COMMIT with it: `committed` must follow, unless this raises."""
        yield from self._prepare(_COMMIT)
        yield from self._prepare(text)
        self._pgconn.enter_pipeline_mode()
        self._send(text, values)
        self._send(_COMMIT, [])
        self._pgconn.pipeline_sync()
        yield from generators.send(self._pgconn)
        results = yield from generators.fetch_many(self._pgconn)
        if _has_failed(results):
            yield from self._end(results, self.committed())  # it was skipped
        self._is_forgotten(results)
        return self._rows(results)

    def forget(self) -> None:
        """Notes that all that was prepared was deallocated."""
        self._names.clear()
        self.lacks_seed = True

    def committed(self) -> PQGen[list[PGresult]]:
        """Returns the results of the COMMIT that was sent with the statement before."""
        results = yield from generators.fetch_many(self._pgconn)
        yield from self._end(results, generators.fetch_many(self._pgconn))
        self._pgconn.exit_pipeline_mode()
        return list(results)

    def _end(self, results: Sequence[PGresult], rest: PQGen[object]) -> PQGen[None]:
        """Reads the rest of a pipeline. If the session is over, a result that failed says why."""
        try:
            yield from rest
        except psycopg.OperationalError as error:
            if _has_failed(results):
                raise error_from_result(results[0]) from error
            raise

    def _prepare(self, text: bytes) -> PQGen[None]:
        if text in self._names:
            return
        name, marks = b"onceq_%d" % next(self._numbers), itertools.count(1)
        self._pgconn.send_prepare(name, MARK.sub(lambda _: b"$%d" % next(marks), text))
        results = yield from generators.execute(self._pgconn)
        if _has_failed(results):
            raise error_from_result(results[0])
        self._names[text] = name

    def _send(self, text: bytes, values: Values) -> None:
        formats = [pq.Format.BINARY] * len(values)
        self._pgconn.send_query_prepared(
            self._names[text], values, param_formats=formats, result_format=pq.Format.BINARY
        )

    def _is_forgotten(self, results: Sequence[PGresult]) -> bool:
        """Returns whether somebody has deallocated what was prepared; it is prepared anew then."""
        if not _has_failed(results) or error_from_result(results[0]).sqlstate != FORGOTTEN:
            return False
        self._names.clear()
        return True

    def _rows(self, results: Sequence[PGresult]) -> list[Row]:
        if not results:
            raise psycopg.OperationalError("the connection was lost before the answer")
        if _has_failed(results):
            raise error_from_result(results[0])
        self._values.set_pgresult(results[0], format=pq.Format.BINARY)
        try:
            return self._values.load_rows(0, results[0].ntuples, tuple)
        except UNREADABLE:  # it was claimed: it must not be lost
            return leniently(results[0], self._connection)


def prepared_on(cursor: OwnCursor | AsyncOwnCursor) -> Prepared | None:
    """Returns what is prepared on a connection, for all who ask there; None: it is a caller's.

    A handler that passes on its own connection asks there beside the server.
    """
    own = cursor.connection
    if not isinstance(own, OwnConnection | AsyncOwnConnection):
        return None
    if own.prepared is None:
        own.prepared = Prepared(cursor)
    found: Prepared = own.prepared
    return found


def _has_failed(results: Sequence[PGresult]) -> bool:
    return bool(results) and results[0].status == pq.ExecStatus.FATAL_ERROR


def packed(row: Binding, arguments: Sequence[Any]) -> Values | None:
    """Returns parameters as they travel; None: psycopg is to pack them, or to refuse them."""
    found: Values = []
    for (_, kind), value in zip(row.parameters, arguments, strict=True):
        if value is None:
            found.append(None)
            continue
        pack = PACKERS.get(kind)
        if pack is None:
            return None
        try:
            found.append(pack(value))
        except UNPACKED:
            return None
    return found
