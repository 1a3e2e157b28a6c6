"""The caller's own connection: a psycopg connection, found inside what the caller has.

Used by the managers. SQLAlchemy's Connection, Session and AsyncConnection are recognised by
shape, so that SQLAlchemy is imported by those who use it and by nobody else.
"""

from __future__ import annotations

from typing import Any, TypeGuard, cast

import psycopg

from onceq.engine.async_driver import AsyncPostgresDriver
from onceq.engine.driver import PostgresDriver
from onceq.errors import InvalidValue

_SUPPORTED = "give a psycopg 3 connection, or an SQLAlchemy one over postgresql+psycopg"


def _inner(connection: Any) -> Any:
    """Follows SQLAlchemy's wrappers: Session, Connection, pooled connection, driver's."""
    found = connection
    if isinstance(found, psycopg.BaseConnection):
        return cast("Any", found)
    if callable(getattr(found, "get_bind", None)) and callable(getattr(found, "connection", None)):
        found = found.connection()
    if hasattr(found, "sync_connection"):
        found = found.sync_connection
    if hasattr(found, "dialect"):
        if not found.in_transaction():
            found.begin()  # else its commit does not know of ours
        found = found.connection
    for name in ("driver_connection", "_connection", "_inner"):  # the last: of our handlers'
        found = getattr(found, name, found)
    return found


def _is_sync(found: object) -> TypeGuard[psycopg.Connection[Any]]:
    return isinstance(found, psycopg.Connection)


def _is_async(found: object) -> TypeGuard[psycopg.AsyncConnection[Any]]:
    return isinstance(found, psycopg.AsyncConnection)


def caller_driver(connection: Any, repository: str) -> PostgresDriver:
    """Returns a driver on the caller's connection; what it performs joins the caller's transaction.

    Raises InvalidValue when this is no connection that onceq can use; nothing happened.
    """
    found: Any = _inner(connection)
    if not _is_sync(found):
        raise InvalidValue(f"{type(connection).__name__} is not a connection: {_SUPPORTED}")
    return PostgresDriver(found, repository)


def async_caller_driver(connection: Any, repository: str) -> AsyncPostgresDriver:
    """Returns a driver on the caller's async connection; see `caller_driver`."""
    found: Any = _inner(connection)
    if not _is_async(found):
        raise InvalidValue(f"{type(connection).__name__} is not an async connection: {_SUPPORTED}")
    return AsyncPostgresDriver(found, repository)
