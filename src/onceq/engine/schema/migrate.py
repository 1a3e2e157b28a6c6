"""Creates, verifies and upgrades the schema of a repository; `upgrading` has the SQL.

What creates or upgrades is called by `onceq init`, and on an embedded database also by
`onceq.open` and by servers; every link verifies. A repository is one PostgreSQL schema; one that
exists already is used if it holds no repository. Never changes a repository of another make, and
never downgrades one.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from onceq import telemetry, version
from onceq.engine.faultpoints import faultpoint
from onceq.engine.perform.driver import connect
from onceq.engine.schema import scripts, upgrading
from onceq.engine.schema.holders import holders
from onceq.engine.sessions.faults import translated
from onceq.engine.sessions.levels import check_level, check_served, stamp_of
from onceq.engine.sessions.session import ENCODING
from onceq.errors import (
    DeadlineExceeded,
    EncodingRefused,
    PostgresTooOld,
    SchemaMismatch,
    SchemaTooNew,
)
from onceq.model.names import check_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onceq.engine.sessions.levels import Stamp

log = logging.getLogger(__name__)

WAIT_S: Final = 60.0
"""How long making or upgrading a repository tries to get its locks."""
PAUSE_S: Final = 1.0
"""Between two tries: what waited behind the former one gets on meanwhile."""
AGAIN: Final = frozenset({"55P03", "40P01", upgrading.CHANGED})
"""After these SQLSTATEs it tries again: no lock, a deadlock, and that another one was faster."""
GIVEN_UP: Final = (
    "repository {!r} was not upgraded, and nothing happened: for {:g} s locks that it needs were "
    "held by {}; end that transaction, or try again when it is over"
)
NOT_OURS: Final = "Repository {} is of a later level, which serves this onceq: nothing to do."

OLDEST_POSTGRES = 15


def check_server(info: psycopg.ConnectionInfo) -> None:
    """Refuses a PostgreSQL that is too old. Raises PostgresTooOld; nothing happened."""
    major = info.server_version // 10000
    if major < OLDEST_POSTGRES:
        raise PostgresTooOld(
            f"this server is PostgreSQL {major}; onceq needs {OLDEST_POSTGRES} or newer: "
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


def stamp(connection: psycopg.Connection[Any], repository: str) -> Stamp | None:
    """Returns what a repository says of itself; None if there is no such repository."""
    found = connection.execute(
        "select to_regclass(%s) is not null", (f"{repository}.repository",)
    ).fetchone()
    if not found or not found[0]:
        return None
    query = sql.SQL("select to_jsonb(r) from {}.repository r").format(sql.Identifier(repository))
    row = connection.execute(query).fetchone()
    return None if row is None else stamp_of(row[0])


def verify(connection: psycopg.Connection[Any], repository: str) -> Stamp:
    """Checks that the repository exists and serves code of this level; returns its stamp.

    Raises what `check` does, EnvironmentFault, or StatementRefused if this role may not look;
    nothing happened.
    """
    check_repository(repository)
    check_server(connection.info)
    with translated(connection):
        found = stamp(connection, repository)
    return check(connection.info, repository, found)


def check(info: psycopg.ConnectionInfo, repository: str, found: Stamp | None) -> Stamp:
    """Checks what a repository says of itself, without asking anything; returns it.

    info: of a session on its database. Raises SchemaMissing, SchemaMismatch, SchemaTooNew,
    PostgresTooOld; nothing happened.
    """
    check_server(info)
    found = check_level(found, repository, info.dbname)
    if found.level > version.LEVEL:
        return found
    _refuse_other(found, repository)
    ours = (scripts.newest(), scripts.functions_sha256())
    if (found.version, found.functions_sha256) != ours:
        raise SchemaMismatch(
            f"repository {repository!r} has the tables or functions of another onceq than this one:"
            f" run `onceq init --repository {repository}` with the same --url to bring it up to"
            " date"
        )
    return found


def _refuse_other(found: Stamp, repository: str) -> None:
    """Refuses a repository of this level, or of a former one, that no release made."""
    if found.version > scripts.newest():
        raise SchemaTooNew(
            f"repository {repository!r} has schema {found.version}, this onceq knows up to "
            f"{scripts.newest()}: upgrade onceq"
        )
    if found.tables_sha256 != scripts.tables_sha256(found.version):
        raise SchemaMismatch(
            f"repository {repository!r} was made by a version before 0.1.0, from which there "
            "is no upgrade: use another repository name, or drop this schema"
        )


def apply(
    connection: psycopg.Connection[Any],
    repository: str,
    *,
    wait_s: float = WAIT_S,
    told: Callable[[telemetry.UpgradeWaits], None] | None = None,
) -> bool:
    """Creates the repository, or brings its tables and functions up to date, in one transaction.

    Idempotent, and safe when several processes do it at once. Returns True if anything was
    changed; a repository of a later level that serves this one is left as it is. wait_s: how long
    it tries to get its locks; told: of each try that failed; None: it is logged.

    Raises SchemaMismatch (also: code that the new level does not serve is at work), SchemaTooNew,
    PostgresTooOld, EncodingRefused, StatementRefused (a right is missing), DeadlineExceeded (it did
    not get its locks; the error says who has them) or EnvironmentFault; nothing happened. But if
    the connection was lost at the commit, which is an EnvironmentFault too, it may have been made.
    """
    check_repository(repository)
    check_server(connection.info)
    end = time.monotonic() + wait_s
    with translated(connection), _hasty(connection):
        while True:
            try:
                return _tried(connection, repository)
            except psycopg.Error as error:
                if error.sqlstate not in AGAIN:
                    raise
                event = _waits(connection, repository, error)
                if time.monotonic() + event.delay_s > end:
                    text = GIVEN_UP.format(repository, wait_s, event.holders)
                    raise DeadlineExceeded(text) from error
            if event.delay_s > 0:
                (told or _log)(event)
                time.sleep(event.delay_s)


def script(connection: psycopg.Connection[Any], repository: str) -> str:
    """Returns the SQL that `apply` would run now, for psql. Raises what it does."""
    check_repository(repository)
    check_server(connection.info)
    with translated(connection):
        found = stamp(connection, repository)
        is_ours = _is_to_be_kept(connection, repository, found)
    return upgrading.script(repository, found) if is_ours else f"-- {NOT_OURS.format(repository)}\n"


@contextlib.contextmanager
def _hasty(connection: psycopg.Connection[Any]) -> Generator[None]:
    """A block in which no statement waits longer for a lock than one of an upgrade may."""
    connection.execute(f"set lock_timeout = {upgrading.LOCK_MS}".encode())
    yield
    connection.execute("reset lock_timeout")


def _tried(connection: psycopg.Connection[Any], repository: str) -> bool:
    found = stamp(connection, repository)
    if not _is_to_be_kept(connection, repository, found):
        return False
    text = upgrading.body(repository, found)
    if text:
        with connection.transaction():
            connection.execute(text.encode())
            faultpoint("migrate.made")
        faultpoint("migrate.committed")
    return _give_to_owner(connection, repository) or bool(text)


def _is_to_be_kept(
    connection: psycopg.Connection[Any], repository: str, found: Stamp | None
) -> bool:
    """Returns whether this onceq is to keep a repository up to date: not if its level is later."""
    if found is None:
        check_encoding(connection)
    elif found.level > version.LEVEL:
        check_served(found, repository)
        return False
    else:
        _refuse_other(found, repository)
    return True


def _waits(
    connection: psycopg.Connection[Any], repository: str, error: psycopg.Error
) -> telemetry.UpgradeWaits:
    """Returns what is to be told of a try that failed, and when the next one follows."""
    delay_s = 0.0 if error.sqlstate == upgrading.CHANGED else PAUSE_S
    who = holders(connection, repository) or "nobody any more"
    return telemetry.UpgradeWaits(repository=repository, holders=who, delay_s=delay_s)


def _log(event: telemetry.UpgradeWaits) -> None:
    telemetry.tell(log, event)


def _give_to_owner(connection: psycopg.Connection[Any], repository: str) -> bool:
    """Gives the owner what another role made; returns whether there was any, given or not."""
    return connection.execute(upgrading.GIVE.format(r=repository).encode()).rowcount > 0


def verify_with(conninfo: str, repository: str) -> None:
    """Checks the repository on a connection of its own; see `verify`. Raises CannotConnect too."""
    with contextlib.closing(connect(conninfo)) as connection:
        verify(connection, repository)


def apply_with(conninfo: str, repository: str) -> bool:
    """Creates or updates it on a connection of its own; see `apply`. Raises CannotConnect too."""
    with contextlib.closing(connect(conninfo)) as connection:
        return apply(connection, repository)
