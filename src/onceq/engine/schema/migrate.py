"""Creates, verifies and upgrades the schema of a repository; see `scripts` for its contents.

What creates or upgrades is called by `onceq init`, and on an embedded database also by
`onceq.open` and by servers; every link verifies. A repository is one PostgreSQL schema; one that
exists already is used if it holds no repository. Never changes a repository of another make, and
never downgrades one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from onceq.engine.faultpoints import faultpoint
from onceq.engine.perform.driver import connect
from onceq.engine.schema import scripts
from onceq.engine.sessions import silence
from onceq.engine.sessions.faults import translated
from onceq.engine.sessions.session import ENCODING
from onceq.engine.sessions.silence import Patience
from onceq.errors import (
    EncodingRefused,
    PostgresTooOld,
    SchemaMismatch,
    SchemaMissing,
    SchemaTooNew,
)
from onceq.model.names import check_repository

if TYPE_CHECKING:
    import psycopg

OLDEST_POSTGRES = 15


def check_server(connection: psycopg.Connection[Any]) -> None:
    """Refuses a PostgreSQL that is too old. Raises PostgresTooOld; nothing happened."""
    version = connection.info.server_version // 10000
    if version < OLDEST_POSTGRES:
        raise PostgresTooOld(
            f"this server is PostgreSQL {version}; onceq needs {OLDEST_POSTGRES} or newer: "
            "upgrade it, or use embedded:PATH"
        )


def check_encoding(connection: psycopg.Connection[Any]) -> None:
    """Refuses a database that cannot hold every text. Raises EncodingRefused; nothing happened."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != ENCODING:
        raise EncodingRefused(
            f"database {connection.info.dbname!r} has encoding {encoding}, and onceq needs "
            f"{ENCODING}: make one with `create database NAME encoding 'UTF8' template template0`"
        )


def schema_version(connection: psycopg.Connection[Any], repository: str) -> int | None:
    """Returns the version of a repository's schema; None if there is no such repository."""
    found = connection.execute(
        "select to_regclass(%s) is not null", (f"{repository}.repository",)
    ).fetchone()
    if not found or not found[0]:
        return None
    row = connection.execute(
        sql.SQL("select schema_version from {}.repository").format(sql.Identifier(repository))
    ).fetchone()
    return None if row is None else int(row[0])


def verify(connection: psycopg.Connection[Any], repository: str) -> None:
    """Checks that the repository exists and is of this version.

    Raises SchemaMissing, SchemaMismatch, SchemaTooNew, PostgresTooOld, EnvironmentFault, or
    StatementRefused if this role may not look; nothing happened.
    """
    check_repository(repository)
    check_server(connection)
    with translated(connection):
        _verify(connection, repository)


def _verify(connection: psycopg.Connection[Any], repository: str) -> None:
    version = schema_version(connection, repository)
    if version is None:
        raise SchemaMissing(
            f"database {connection.info.dbname!r} has no repository {repository!r}: "
            f"run `onceq init --repository {repository}` with the same --url, "
            "or ask the owner of the database to run it"
        )
    _refuse_other(connection, version, repository)
    row = connection.execute(
        sql.SQL("select functions_sha256 from {}.repository").format(sql.Identifier(repository))
    ).fetchone()
    if version < scripts.newest() or row is None or row[0] != scripts.functions_sha256():
        raise SchemaMismatch(
            f"repository {repository!r} has the tables or functions of another onceq than this one:"
            f" run `onceq init --repository {repository}` with the same --url to bring it up to"
            " date"
        )


def _refuse_other(connection: psycopg.Connection[Any], version: int, repository: str) -> None:
    if version > scripts.newest():
        raise SchemaTooNew(
            f"repository {repository!r} has schema {version}, this onceq knows up to "
            f"{scripts.newest()}: upgrade onceq"
        )
    columns = "to_jsonb(r) ->> 'tables_sha256'"  # repositories made before 0.1.0 may not have it
    row = connection.execute(
        sql.SQL(f"select {columns} from {{}}.repository r").format(sql.Identifier(repository))
    ).fetchone()
    if row is None or row[0] != scripts.tables_sha256(version):
        raise SchemaMismatch(
            f"repository {repository!r} was made by a version before 0.1.0, from which there "
            "is no upgrade: use another repository name, or drop this schema"
        )


def apply(connection: psycopg.Connection[Any], repository: str) -> bool:
    """Creates the repository, or brings its tables and functions up to date, in one transaction.

    Idempotent, and safe when several processes do it at once. Returns True if anything was
    changed. Raises SchemaMismatch, SchemaTooNew, PostgresTooOld, EncodingRefused, StatementRefused
    (a right is missing) or EnvironmentFault; nothing happened. But if the connection was lost at
    the commit, which is an EnvironmentFault too, it may have been made.
    """
    check_repository(repository)
    check_server(connection)
    with translated(connection), connection.transaction():
        connection.execute("select pg_advisory_xact_lock(hashtext('onceq.migrate'))")
        changed = _make_or_refresh(connection, repository)
        faultpoint("migrate.made")
    faultpoint("migrate.committed")
    return changed


def _make_or_refresh(connection: psycopg.Connection[Any], repository: str) -> bool:
    version = schema_version(connection, repository)
    if version is None:
        check_encoding(connection)
        connection.execute(scripts.render(repository).encode())
        connection.execute(scripts.made(repository).encode())
        return True
    _refuse_other(connection, version, repository)
    changed = _upgrade_tables(connection, repository, version)
    changed = _refresh_functions(connection, repository, scripts.functions_sha256()) or changed
    return _give_to_owner(connection, repository) or changed


def _give_to_owner(connection: psycopg.Connection[Any], repository: str) -> bool:
    """Gives the repository's owner any sequences that another role made, if this role may.

    Returns whether there were any, given or not.
    """
    given = connection.execute(
        sql.SQL("select {schema}.give_to_owner(sequence) from {schema}.foreign_sequences()").format(
            schema=sql.Identifier(repository)
        )
    ).rowcount
    return given > 0


def _upgrade_tables(connection: psycopg.Connection[Any], repository: str, version: int) -> bool:
    newest = scripts.newest()
    if version == newest:
        return False
    upgrade = scripts.in_schema(scripts.tables(version, newest), repository)
    connection.execute(upgrade.encode())
    connection.execute(
        sql.SQL(
            "update {}.repository set schema_version = %s, tables_sha256 = %s,"
            " migrated_at = clock_timestamp()"
        ).format(sql.Identifier(repository)),
        (newest, scripts.tables_sha256(newest)),
    )
    return True


def _refresh_functions(connection: psycopg.Connection[Any], repository: str, sha: str) -> bool:
    name = sql.Identifier(repository)
    changed = connection.execute(
        sql.SQL(
            "update {}.repository set functions_sha256 = %s, migrated_at = clock_timestamp()"
            " where functions_sha256 <> %s"
        ).format(name),
        (sha, sha),
    ).rowcount
    if changed:
        for _, text in scripts.function_sources():
            connection.execute(scripts.in_schema(text, repository).encode())
        _drop_former_functions(connection, repository)
    return bool(changed)


GONE: Final = ["restore_attempts"]
"""Functions of former versions that have no successor."""


def _drop_former_functions(connection: psycopg.Connection[Any], repository: str) -> None:
    """Drops GONE, and former functions with other parameters: beside them, calls are ambiguous.

    The current ones were written by this transaction. A function of any other name is the user's. A
    function that is to return something else needs another name: PostgreSQL does not replace such.
    """
    former = connection.execute(
        "with all_of as (select p.oid, proname, p.xmin = pg_current_xact_id()::xid as is_new"
        " from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = %s)"
        " select oid::regprocedure::text from all_of where not is_new"
        " and (proname in (select proname from all_of where is_new) or proname = any(%s))",
        (repository, GONE),
    ).fetchall()
    for (signature,) in former:
        connection.execute(sql.SQL("drop function {}").format(sql.SQL(signature)))


def verify_with(conninfo: str, repository: str, patience: Patience | None = None) -> None:
    """Checks the repository on a connection of its own; see `verify`. Raises CannotConnect too."""
    connection = connect(conninfo, patience)
    try:
        with silence.bounded(connection, patience):
            verify(connection, repository)
    finally:
        connection.close()


def apply_with(conninfo: str, repository: str) -> bool:
    """Creates or updates it on a connection of its own; see `apply`. Raises CannotConnect too."""
    connection = connect(conninfo)
    try:
        return apply(connection, repository)
    finally:
        connection.close()
