"""A statement whose answer is read later: it makes one-way sends possible (BHM90 5).

Private to the drivers. psycopg's cursors always wait for the answer; this uses libpq directly, with
psycopg's adapters. While one is under way its connection can do nothing else.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.waiting import Ready, Wait

from onceq.errors import InDoubt

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import psycopg
    from psycopg.pq.abc import PGresult

    from onceq.engine.bind.decoding import Row
    from onceq.engine.bind.statement import Binding
    from onceq.model import ops

MARK = re.compile(rb"%[sb]")


class OneWay:
    """A statement that was sent. row: the binding of its Op."""

    def __init__(
        self, connection: psycopg.BaseConnection[Any], row: Binding, text: bytes, op: ops.Op[Any]
    ) -> None:
        self.row = row
        self._pgconn = connection.pgconn
        self._values = Transformer(connection)
        arguments = row.arguments(op)
        values = self._values.dump_sequence(arguments, [PyFormat.AUTO] * len(arguments))
        numbers = itertools.count(1)
        self._pgconn.send_query_params(
            MARK.sub(lambda _: b"$%d" % next(numbers), text),
            values,
            param_types=self._values.types,
            param_formats=self._values.formats,
            result_format=pq.Format.BINARY,
        )

    def flushed(self) -> Generator[Wait, Ready | int, None]:
        """Waits until the network has taken all of it."""
        while self._pgconn.flush():
            yield Wait.W

    def rows(self, results: Sequence[PGresult]) -> list[Row]:
        """Returns the rows of the answer. Raises psycopg.Error, InDoubt."""
        if not results:
            raise InDoubt("there is no answer to a one-way send: whether it arrived is unknown")
        if results[0].status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(results[0])
        self._values.set_pgresult(results[0], format=pq.Format.BINARY)
        return self._values.load_rows(0, results[0].ntuples, tuple)
