"""The driver of the Spark server: its Ops on one connection, and the staging of rows by COPY.

Used by `onceq.spark` in the supervising process, in the one that plans, in executors and in the one
that commits; each connects for itself, because Spark pickles what it runs. Also used by what reads
or trims history without Spark. Nothing here holds a password: a connection string names a file
that does (`passfile`), or libpq finds it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceq.engine.bind.binding import BINDINGS
from onceq.engine.bind.spark_binding import ARCHIVE_BINDINGS, SPARK_BINDINGS
from onceq.engine.embedded.locate import EMBEDDED, locate
from onceq.engine.perform.driver import PostgresDriver
from onceq.engine.sessions import opening, session
from onceq.engine.sessions.levels import check_level
from onceq.errors import CannotConnect, EnvironmentFault, InvalidValue
from onceq.model.ops import Commit, Rollback

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from onceq.model.archive_ops import ArchiveRestore
    from onceq.model.spark_ops import SparkAttempt, SparkCommit, SparkCommitted

ALL_BINDINGS: Final = {**BINDINGS, **SPARK_BINDINGS, **ARCHIVE_BINDINGS}
REPLIES: Final = "spark_reply"
ROWS: Final = "spark_row"
NAMED: Final = "spark_named"
_TABLE: Final = b"""
select format('"%%s"."%%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""')),
    array(select attname::text from pg_attribute
        where attrelid = c.oid and attnum > 0 and not attisdropped)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass(%s) and c.relkind in ('r', 'p')
"""
_REPEATABLE: Final = b"set transaction isolation level repeatable read, read only"


class SparkDriver(PostgresDriver):
    """Performs the Ops of the queue manager, of the Spark server and of the archive."""

    def __init__(self, connection: psycopg.Connection[Any], repository: str) -> None:
        super().__init__(connection, repository)
        self._statements = session.Statements(repository, ALL_BINDINGS)

    @contextlib.contextmanager
    def concluding(self, op: SparkCommit) -> Generator[SparkCommitted]:
        """Commits a micro-batch on leaving, after whatever the caller does inside.

        Raises what SparkCommit does, nothing happened; or InDoubt: ask again with the same Op.
        """
        try:
            self._execute(b"begin")
            yield self.perform(op)
            self.perform(Commit())
        except BaseException:
            self.perform(Rollback())
            raise

    @contextlib.contextmanager
    def staging(self, op: SparkAttempt) -> Generator[Stage]:
        """Begins an attempt; what is staged by its end becomes visible all at once, or not at all.

        Raises Fenced, ConnectionLost, EnvironmentFault: nothing is staged that a commit will name.
        """
        try:
            with self.connection.transaction():
                yield Stage(self.connection, self._repository, self.perform(op))
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=False) from error

    def restore(
        self, op: ArchiveRestore, shape: str, wrong: str, rows: Iterable[Sequence[Any]]
    ) -> int:
        """Performs an ArchiveRestore on the rows of its file, in a transaction of its own.

        shape: a query whose columns are those of the rows; wrong: one that counts rows put back
        that are not as they were; both with {schema}. Raises what the Op does and EnvironmentFault
        (some are not as they were), nothing happened; or InDoubt: ask again.
        """
        try:
            self._execute(b"begin")
            self._fill(shape.replace("{schema}", self._repository), rows)
            restored = self.perform(op)
            self._refuse_wrong(op, wrong)
            self.perform(Commit())
        except BaseException:
            self.perform(Rollback())
            raise
        return restored

    def _fill(self, shape: str, rows: Iterable[Sequence[Any]]) -> None:
        """Makes the temporary table of an ArchiveRestore, for this transaction."""
        table = f"create temporary table restoring on commit drop as {shape} limit 0"
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(table.encode())
                with cursor.copy(b"copy pg_temp.restoring from stdin") as copy:
                    for row in rows:
                        copy.write_row(row)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=False) from error

    def _refuse_wrong(self, op: ArchiveRestore, wrong: str) -> None:
        (((count,),),) = self.rows(wrong, [], 1)
        if count:
            raise EnvironmentFault(
                f"{count} rows of {op.path} are not as they were, once they are back: "
                "nothing of it is restored"
            )

    @contextlib.contextmanager
    def snapshot(self) -> Generator[str]:
        """Keeps what is committed now readable by others while the block runs; yields its name.

        What this driver performs inside sees the same. Raises ConnectionLost, EnvironmentFault.
        """
        try:
            with self.connection.transaction():
                self.connection.execute(_REPEATABLE)
                ((name,),) = self.connection.execute(b"select pg_export_snapshot()").fetchall()
                yield name
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=False) from error

    def find_table(self, name: str) -> tuple[str, list[str]]:
        """Returns the name of a table with its schema, both quoted, and its columns.

        name: as in SQL. Raises InvalidValue: there is no such table.
        """
        rows = self.connection.execute(_TABLE, (name,)).fetchall()
        if not rows:
            raise InvalidValue(f"there is no table {name!r}: give its name as in SQL")
        ((quoted, columns),) = rows
        return quoted, columns

    def rows(
        self, query: str, values: Sequence[Any], many: int, *, snapshot: str = ""
    ) -> Generator[Sequence[tuple[Any, ...]]]:
        """Yields the rows of a query, `many` at a time, on one snapshot: a named one or a new one.

        query: with {schema}, and %s for each value. Raises ConnectionLost, EnvironmentFault.
        """
        text = query.replace("{schema}", self._repository)
        with self._seeing(snapshot), self.connection.cursor("rows", binary=True) as cursor:
            cursor.execute(text.encode(), values)
            while found := cursor.fetchmany(many):
                yield found

    def lines(
        self, query: str, values: Sequence[Any], size: int, *, snapshot: str = ""
    ) -> Generator[bytearray]:
        """Yields the rows of a query as lines of CSV: `size` bytes at a time, or one line more.

        Like `rows`, and several times as fast. UTF-8, no header; an unquoted empty field is null.
        """
        text = query.replace("{schema}", self._repository)
        text = f"copy ({text}) to stdout (format csv, encoding 'UTF8')"
        with self._seeing(snapshot), self.connection.cursor() as cursor:
            with cursor.copy(text.encode(), values) as copy:
                some = bytearray()
                for line in copy:  # PostgreSQL sends each row in a message of its own
                    some += line
                    if len(some) >= size:
                        yield some
                        some = bytearray()
            if some:
                yield some

    @contextlib.contextmanager
    def _seeing(self, snapshot: str) -> Generator[None]:
        """Runs the block in a transaction, on the snapshot of this name if there is one."""
        try:
            with self.connection.transaction():
                if snapshot:
                    self.connection.execute(_REPEATABLE)
                    self.connection.execute(sql.SQL("set transaction snapshot {}").format(snapshot))
                yield
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=False) from error


class Stage:
    """The stage of one attempt. rows: how many it has taken."""

    def __init__(self, connection: psycopg.Connection[Any], repository: str, attempt: int) -> None:
        self._connection = connection
        self._repository = repository
        self.attempt = attempt
        self.rows = 0

    def copy(self, table: str, columns: Sequence[str], csv: bytes | memoryview) -> None:
        """Copies lines of CSV into REPLIES, ROWS or NAMED; an unquoted empty field is null."""
        text = sql.SQL("copy {} ({}) from stdin (format csv)").format(
            sql.Identifier(self._repository, table),
            sql.SQL(", ").join(sql.Identifier(name) for name in columns),
        )
        with self._connection.cursor() as cursor:
            with cursor.copy(text) as copy:
                copy.write(csv)
            self.rows += cursor.rowcount


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How a repository is reached, in a form fit for Spark's options: it holds no password.

    url: `embedded:PATH`, to restart that server when it has died; else empty. conninfo: for the
    driver's processes. executors: how executors reach it; empty: as the driver does.
    """

    url: str
    conninfo: str
    repository: str
    executors: str = ""


@contextlib.contextmanager
def spark_driver(route: Route) -> Generator[SparkDriver]:
    """Connects, restarting an embedded server that has died. CannotConnect, SchemaTooNew, ..."""
    with contextlib.ExitStack() as undo:
        try:
            connection = _connected(route.conninfo, route.repository)
        except CannotConnect:
            if not route.url.startswith(EMBEDDED):
                raise
            located = locate(route.url)
            undo.callback(located.close)
            located.ensure_running()
            connection = _connected(located.conninfo, route.repository)
        undo.callback(connection.close)
        yield SparkDriver(connection, route.repository)


def _connected(conninfo: str, repository: str) -> psycopg.Connection[Any]:
    """Returns a session on a repository that serves code of this level; see `check_level`."""
    connection, _, stamp = opening.open_on(repository, conninfo, session.settings())
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        check_level(stamp, repository, connection.info.dbname)
        undo.pop_all()
    return connection


def of_executors(route: Route) -> Route:
    """Returns the route as an executor's task reaches it."""
    return replace(route, conninfo=route.executors or route.conninfo)


def executor_driver(route: Route) -> contextlib.AbstractContextManager[SparkDriver]:
    """Connects from an executor's task. Raises CannotConnect, ..."""
    return spark_driver(of_executors(route))


def without_password(conninfo: str, passfile: Path) -> str:
    """Returns the connection string with its password moved into a file that only we may read.

    The file is written only if there is a password; otherwise the string is returned as it is.
    """
    parts = conninfo_to_dict(conninfo)
    password = parts.pop("password", None)
    if password is None:
        return conninfo
    escaped = str(password).replace("\\", "\\\\").replace(":", "\\:")
    passfile.touch(mode=0o600)
    passfile.write_text(f"*:*:*:*:{escaped}\n", encoding="utf-8")
    return make_conninfo("", **{**parts, "passfile": str(passfile)})


def has_password(conninfo: str) -> bool:
    """Returns whether a text is a connection string that holds a password."""
    try:
        return "password" in conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return False
