"""The caller's own connection: a psycopg connection, found inside what the caller has.

Used by the managers and the clerks. SQLAlchemy's and Django's objects are recognised by their
shape, so only those who use these libraries import them. What cannot be used is refused
before anything is done there: nothing happened. (C13)
"""

from __future__ import annotations

import inspect
import weakref
from typing import Any, TypeGuard, cast

import psycopg

from onceq.engine.bind.cursors import AsyncOwnCursor, OwnCursor
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.perform.driver import PostgresDriver
from onceq.engine.sessions import session
from onceq.errors import ConnectionLost, IllegalState, InvalidValue, SchemaMissing

_SUPPORTED = (
    "give a psycopg 3 connection, SQLAlchemy's over postgresql+psycopg, or Django's with psycopg 3"
)
_GONE = "the connection given is closed or lost, and nothing happened: connect again"
_FAILED = "the atomic block of this connection has failed: leave it, so that it is rolled back"
_NO_TRANSACTION = (
    "the connection given is in autocommit, and in no transaction that this could join: begin one "
    "(`with connection.transaction()`, Django's `atomic()`), or turn its autocommit off"
)


def _refuse(given: object, found: object) -> InvalidValue:
    """Returns the error for an object that leads to no psycopg connection, or to the other kind."""
    what = _name(given) if given is found else f"{_name(given)} over {_name(found)}"
    return InvalidValue(f"{what} is not a connection for this: {_advice(found)}")


def _advice(found: object) -> str:
    if isinstance(found, psycopg.Connection):
        return "open_async and enqueue_async take async connections"
    if isinstance(found, psycopg.AsyncConnection) or _is_asynchronous(found):
        return "an async one, of psycopg 3, is for onceq.open_async, or onceq.enqueue_async"
    return _SUPPORTED


def _is_asynchronous(found: object) -> bool:
    """Returns whether this is SQLAlchemy's AsyncConnection, or its AsyncSession."""
    return hasattr(found, "sync_connection") or hasattr(found, "sync_session")


def _name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _of_django(wrapper: Any) -> Any:
    """Returns the driver's connection of a DatabaseWrapper; makes it if there is none yet."""
    if wrapper.vendor == "postgresql":
        if wrapper.closed_in_transaction:
            raise ConnectionLost(_GONE)
        if wrapper.needs_rollback:
            raise IllegalState(_FAILED)
        wrapper.ensure_connection()
    return wrapper.connection


def _of_sqlalchemy(connection: Any) -> Any:
    """Returns the driver's connection of a sync Connection, in a transaction that it knows of."""
    if connection.closed or connection.invalidated:
        raise ConnectionLost(_GONE)
    if not connection.in_transaction():
        connection.begin()  # otherwise its commit does not know of ours
    return connection.connection.driver_connection


def _of_handler(connection: Any) -> Any:
    """Returns the server's connection behind a handler's; HandlerMisuse when that is over."""
    _ = connection.info  # refused when the execution is over
    return connection._inner  # noqa: SLF001 # the guard's own; it is of a higher level


def _is_guarded(found: object) -> bool:
    """Returns whether this is the connection that a handler is given."""
    return "_inner" in getattr(type(found), "__slots__", ())


def _inside(found: Any) -> Any:
    """Follows everything but sessions to the driver's connection, if there is one inside."""
    if isinstance(found, psycopg.BaseConnection):
        return cast("Any", found)
    if _is_guarded(found):
        return _of_handler(found)
    if hasattr(found, "ensure_connection") and hasattr(found, "in_atomic_block"):
        return _of_django(found)
    if _is_asynchronous(found):
        return found
    if hasattr(found, "dialect") and hasattr(found, "in_transaction"):
        return _of_sqlalchemy(found)
    return found


def _is_session(found: object) -> bool:
    """Returns whether this is SQLAlchemy's Session, or its AsyncSession."""
    return callable(getattr(found, "get_bind", None)) and callable(
        getattr(found, "connection", None)
    )


def _is_sync(found: object) -> TypeGuard[psycopg.Connection[Any]]:
    return isinstance(found, psycopg.Connection)


def _is_async(found: object) -> TypeGuard[psycopg.AsyncConnection[Any]]:
    return isinstance(found, psycopg.AsyncConnection)


def _check(connection: psycopg.BaseConnection[Any]) -> None:
    """Raises ConnectionLost, or IllegalState: nothing to join, or unable to carry every text."""
    if session.is_broken(connection):
        raise ConnectionLost(_GONE)
    if session.commits_at_once(connection):
        raise IllegalState(_NO_TRANSACTION)
    if encoding := session.cannot_carry(connection):
        raise IllegalState(
            f"the connection given has client_encoding {encoding}, in which not every text can "
            "travel: set client_encoding to UTF8 there"
        )


def caller_driver(connection: Any, repository: str) -> PostgresDriver:
    """Returns a driver on the caller's connection; its Ops join the caller's transaction.

    Raises InvalidValue if onceq cannot use this connection, ConnectionLost if it is closed,
    IllegalState if it is in autocommit and in no transaction, in a block of Django's that has
    failed, or not in UTF-8; nothing happened.
    """
    found = connection
    if _is_session(found) and not inspect.iscoroutinefunction(found.connection):
        found = found.connection()
    found = _inside(found)
    if not _is_sync(found):
        raise _refuse(connection, found)
    _check(found)
    return PostgresDriver(found, repository)


async def async_caller_driver(connection: Any, repository: str) -> AsyncPostgresDriver:
    """Returns a driver on the caller's async connection; see `caller_driver`."""
    found = connection
    if _is_session(found) and inspect.iscoroutinefunction(found.connection):
        found = await found.connection()
    if hasattr(found, "sync_connection"):
        if found.sync_connection is None:
            raise IllegalState("the connection given was not begun: `async with` it, or await it")
        found = found.sync_connection
    found = _inside(found)
    if not _is_async(found):
        raise _refuse(connection, found)
    _check(found)
    return AsyncPostgresDriver(found, repository)


def no_repository(connection: psycopg.BaseConnection[Any], repository: str) -> SchemaMissing:
    """Returns the error for a caller's connection to a database without this repository."""
    return SchemaMissing(
        f"the connection given leads to database {connection.info.dbname!r}, which has no "
        f"repository {repository!r}: connect to the database that has it, name another with "
        f"repository=, or run `onceq init` there; the transaction has failed: roll it back"
    )


# If two live sessions give the same answer, they are in one database of one running server.
# The start is a number: its text would depend on the session's time zone.
_DATABASE = (
    "select oid::bigint, extract(epoch from pg_postmaster_start_time())::text from pg_database"
    " where datname = current_database()"
)


def _database(connection: psycopg.Connection[Any]) -> object:
    try:
        return OwnCursor(connection).execute(_DATABASE).fetchone()
    except psycopg.Error as error:
        raise session.failure(error, connection, committing=False) from error


async def _async_database(connection: psycopg.AsyncConnection[Any]) -> object:
    try:
        return await (await AsyncOwnCursor(connection).execute(_DATABASE)).fetchone()
    except psycopg.Error as error:
        raise session.failure(error, connection, committing=False) from error


def _elsewhere(
    theirs: psycopg.BaseConnection[Any], ours: psycopg.BaseConnection[Any]
) -> InvalidValue:
    return InvalidValue(
        f"the connection given leads to another database ({_address(theirs)}) than this queue "
        f"manager ({_address(ours)}), so that nothing could join its transaction: nothing happened"
    )


def _address(connection: psycopg.BaseConnection[Any]) -> str:
    return f"{connection.info.dbname!r} at {connection.info.host}:{connection.info.port}"


class Callers:
    """The callers' connections, each compared with ours as to where it leads.

    Each is asked once. Two databases may each have a repository of one name, with the same numbers
    of elements and claims, and a dequeue would take in one what was claimed in the other.
    """

    def __init__(self, repository: str) -> None:
        self._repository = repository
        self._databases: weakref.WeakKeyDictionary[psycopg.Connection[Any], object]
        self._databases = weakref.WeakKeyDictionary()

    def driver(self, connection: Any, ours: psycopg.Connection[Any]) -> PostgresDriver:
        """See `caller_driver`. Raises InvalidValue also if it leads elsewhere than ours.

        What ours has answered counts only while it lives, as the database may have been restarted:
        ConnectionLost is raised also if ours is lost.
        """
        driver = caller_driver(connection, self._repository)
        theirs = self._database(driver.connection)
        if theirs != self._database(ours):
            del self._databases[ours]
            if theirs != self._database(ours):
                raise _elsewhere(driver.connection, ours)
        return driver

    def _database(self, connection: psycopg.Connection[Any]) -> object:
        if connection not in self._databases:
            self._databases[connection] = _database(connection)
        return self._databases[connection]


class AsyncCallers:
    """`Callers` for async connections."""

    def __init__(self, repository: str) -> None:
        self._repository = repository
        self._databases: weakref.WeakKeyDictionary[psycopg.AsyncConnection[Any], object]
        self._databases = weakref.WeakKeyDictionary()

    async def driver(
        self, connection: Any, ours: psycopg.AsyncConnection[Any]
    ) -> AsyncPostgresDriver:
        """See `Callers.driver`."""
        driver = await async_caller_driver(connection, self._repository)
        theirs = await self._database(driver.connection)
        if theirs != await self._database(ours):
            del self._databases[ours]
            if theirs != await self._database(ours):
                raise _elsewhere(driver.connection, ours)
        return driver

    async def _database(self, connection: psycopg.AsyncConnection[Any]) -> object:
        if connection not in self._databases:
            self._databases[connection] = await _async_database(connection)
        return self._databases[connection]
