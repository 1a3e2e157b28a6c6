"""A connection whose server went down with a crash is lost, whatever libpq calls it.

The server's last word is a warning, and then it closes: the next statement cannot be written, which
libpq reports as a result without an SQLSTATE, of a connection that is not bad.
"""

from __future__ import annotations

import contextlib
import select
from typing import TYPE_CHECKING

import psycopg
import pytest

from onceq import errors
from onceq.engine.perform.driver import PostgresDriver, connect
from onceq.engine.sessions import session
from onceq.model import ops
from tests.engine.crashes import kill_a_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.engine.embedded import EmbeddedServer
    from onceq.errors import OnceqError


@pytest.fixture
def lost(cluster: EmbeddedServer) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection whose server has gone, which it does not know yet: its end is closed."""
    with contextlib.closing(connect(cluster.conninfo)) as made:
        kill_a_backend(cluster)
        closed = select.poll()
        closed.register(made.fileno(), select.POLLHUP)
        assert closed.poll(60_000), "the server's end is not closed"
        yield made


def test_a_short_statement_finds_the_connection_lost(
    lost: psycopg.Connection[tuple[object, ...]],
) -> None:
    with pytest.raises(errors.ConnectionLost):
        PostgresDriver(lost, "onceq").perform(ops.BeginWork())


def test_a_commit_is_in_doubt(lost: psycopg.Connection[tuple[object, ...]]) -> None:
    with pytest.raises(errors.InDoubt):
        PostgresDriver(lost, "onceq").perform(ops.Commit())


def test_what_a_handler_meets_is_no_fault_of_its_own(
    lost: psycopg.Connection[tuple[object, ...]],
) -> None:
    def meet() -> OnceqError:
        result = lost.pgconn.exec_(b"select 1")
        assert not session.is_broken(lost)  # or this test shows nothing
        return session.handler_failure(psycopg.errors.error_from_result(result), lost)

    assert isinstance(meet(), errors.ConnectionLost)
