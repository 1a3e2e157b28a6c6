"""A link: one connection to a repository, made again when it broke, with the driver on it.

Used by clerks, queue managers and servers. A link never retries an operation: it only connects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from onceq.engine import migrate, session
from onceq.engine.driver import PostgresDriver, connect
from onceq.errors import CannotConnect

if TYPE_CHECKING:
    import psycopg

    from onceq.engine.locate import Located
    from onceq.model import ops

T = TypeVar("T")


class Link:
    """A connection to a repository, and its driver. driver_options: of PostgresDriver."""

    def __init__(self, located: Located, repository: str, **driver_options: Any) -> None:
        self._located = located
        self._repository = repository
        self._options = driver_options
        self._driver: PostgresDriver | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection. Raises CannotConnect when there is none."""
        return self._open().connection

    def reconnect(self) -> None:
        """Connects when there is no connection, or it broke. CannotConnect, SchemaMissing, ..."""
        if self._driver is not None and session.is_broken(self._driver.connection):
            self.close()
        if self._driver is None:
            self._located.ensure_running()
            connection = connect(self._located.conninfo)
            try:
                migrate.verify(connection, self._repository)
            except BaseException:
                connection.close()
                raise
            self._driver = PostgresDriver(connection, self._repository, **self._options)

    def run(self, program: ops.Program[T]) -> T:
        """Runs a Program on this link."""
        return self._open().run(program)

    def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op on this link."""
        return self._open().perform(op)

    def _open(self) -> PostgresDriver:
        if self._driver is None:
            raise CannotConnect("this link is closed: connect() first")
        return self._driver

    def close(self) -> None:
        """Closes the connection; idempotent."""
        if self._driver is not None:
            self._driver.connection.close()
            self._driver = None
