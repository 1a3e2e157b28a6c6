"""Which repositories a database has, and what each of them holds. Changes nothing.

Used by the command line, and by `destroying`. A repository is known by its table `repository`,
whose columns no other table has. One that this onceq may not work with is told of without figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from onceq.engine.schema import migrate, upgrading
from onceq.engine.schema.holders import holders
from onceq.engine.sessions.faults import MISSING_RIGHT, translated
from onceq.engine.sessions.levels import stamp_of
from onceq.errors import OnceqError, SchemaMismatch, SchemaMissing, SchemaTooNew
from onceq.model.names import check_repository

if TYPE_CHECKING:
    from onceq.engine.sessions.levels import Stamp

OK: Final = "ok"
GOING: Final = "being destroyed"
NO_RIGHT: Final = "no right"
LOCKED: Final = "locked"
STATES: Final[tuple[tuple[type[OnceqError], str], ...]] = (
    (SchemaTooNew, "newer than this onceq"),
    (SchemaMismatch, "to be upgraded"),
)
"""What a repository is that code of this level may not work with."""
UNREAD: Final = {MISSING_RIGHT: NO_RIGHT, "55P03": LOCKED}
"""Why a repository cannot be looked into now, by SQLSTATE. locked: somebody changes its tables."""

# Any other table of this name lacks these columns.
_MARKED: Final = """
select n.nspname::text as name, pg_get_userbyid(n.nspowner)::text as owner
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'repository' and c.relkind = 'r' and n.nspname !~ '^pg_'
    and (%(name)s::text is null or n.nspname = %(name)s)
    and 3 = (select count(*) from pg_attribute a where a.attrelid = c.oid and not a.attisdropped
        and (a.attname::text, a.atttypid::regtype::text) in
            (('only_row', 'boolean'), ('name', 'text'), ('schema_version', 'integer')))
order by 1
"""
# Who serves, or waits, holds a lock that names a table of the repository; who has a transaction
# open on it, a lock of a table.
_SESSIONS: Final = """
select count(distinct l.pid) from pg_locks l where l.granted and l.pid <> pg_backend_pid()
    and l.database = (select oid from pg_database where datname = current_database())
    and (select c.relnamespace from pg_class c where c.oid = case
            when l.locktype = 'advisory' and l.objsubid = 2 then l.classid else l.relation end)
        = to_regnamespace(%s)
"""
_BYTES: Final = """
select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
where relnamespace = to_regnamespace(%s) and relkind in ('r', 'm', 'S')
"""
_FIGURES: Final = """
select e.*, q.*, c.*, s.*, (select root from {r}.archive) as archive
from (select count(*) filter (where lane <> 13 /* kept */ or claimed_by is not null) as depth,
        count(*) filter (where role = 'request') as requests,
        count(*) filter (where role = 'datagram') as datagrams,
        count(*) filter (where role = 'reply' and lane <> 13 /* kept */) as replies,
        count(*) filter (where role = 'failed') as failed from {r}.element) e,
    (select count(*) as queues, count(*) filter (where kind = 'request') as request_queues,
        count(*) filter (where kind = 'reply') as reply_queues,
        count(*) filter (where kind = 'error') as error_queues
        from {r}.queue where destroyed_at is null) q,
    (select count(*) as clients, count(*) filter (where state = 'connected') as connected
        from {r}.registrant) c,
    (select count(distinct process) as servers from {r}.servers where alive) s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a repository holds.

    depth: elements, but for replies that were acknowledged and are kept. requests: not ended.
    replies: not acknowledged. failed: held in error queues. clients: all that were ever here;
    connected: those that have not said disconnect(). servers: processes at work. archive: the
    directory of its archive.
    """

    depth: int
    requests: int
    datagrams: int
    replies: int
    failed: int
    queues: int
    request_queues: int
    reply_queues: int
    error_queues: int
    clients: int
    connected: int
    servers: int
    archive: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryInfo:
    """A repository of a database.

    state: OK, GOING, one of STATES or of UNREAD. owner: the role that has its schema. stamp: None:
    this role may not read it. bytes: None: a table is locked, or may not be read. sessions: those
    that serve, wait, or have a transaction open on it. holders: who has locks of its tables, in
    words. figures: None unless the state is OK.
    """

    name: str
    owner: str
    state: str
    stamp: Stamp | None
    bytes: int | None
    sessions: int
    holders: str
    figures: Figures | None


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    owner: str


def listed(connection: psycopg.Connection[Any]) -> list[RepositoryInfo]:
    """Returns every repository of the database, by name.

    Raises PostgresTooOld, EnvironmentFault; nothing happened.
    """
    migrate.check_server(connection.info)
    return _looked_at(connection, None)


def shown(connection: psycopg.Connection[Any], name: str) -> RepositoryInfo:
    """Returns one repository. Raises InvalidName, SchemaMissing, and what `listed` does."""
    check_repository(name)
    migrate.check_server(connection.info)
    for found in _looked_at(connection, name):
        return found
    with translated(connection):
        is_there = _one(connection, "select to_regnamespace(%s) is not null", name)
    what = "schema {!r} is there, and is not one" if is_there else "it has no schema {!r}"
    raise SchemaMissing(
        f"database {connection.info.dbname!r} has no repository {name!r}: {what.format(name)}; "
        "`onceq repository list` shows those that it has"
    )


def _looked_at(connection: psycopg.Connection[Any], name: str | None) -> list[RepositoryInfo]:
    seen: list[RepositoryInfo] = []
    with translated(connection), connection.cursor(row_factory=class_row(_Found)) as cursor:
        marked = cursor.execute(_MARKED.encode(), {"name": name}).fetchall()
        connection.execute(f"set lock_timeout = {upgrading.LOCK_MS}".encode())
        for one in marked:
            try:
                seen.append(_info(connection, one))
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                continue  # it was destroyed meanwhile
        connection.execute("reset lock_timeout")
    return seen


def _info(connection: psycopg.Connection[Any], found: _Found) -> RepositoryInfo:
    state, stamp, figures, size = OK, None, None, None
    try:
        stamp = _stamp(connection, found.name)
        state = _state(connection, found.name, stamp)
        size = _one(connection, _BYTES, found.name)
        figures = _figures(connection, found.name) if state == OK else None
    except psycopg.Error as error:
        if error.sqlstate not in UNREAD:
            raise
        state = UNREAD[error.sqlstate] if state == OK else state
    return RepositoryInfo(
        name=found.name,
        owner=found.owner,
        state=state,
        stamp=stamp,
        bytes=size,
        sessions=_one(connection, _SESSIONS, found.name),
        holders=holders(connection, quoted(found.name)),
        figures=figures,
    )


def _stamp(connection: psycopg.Connection[Any], name: str) -> Stamp:
    query = sql.SQL("select to_jsonb(r) from {}.repository r").format(sql.Identifier(name))
    row = connection.execute(query).fetchone()
    return stamp_of({} if row is None else row[0])


def _state(connection: psycopg.Connection[Any], name: str, stamp: Stamp) -> str:
    if stamp.is_going:
        return GOING
    try:
        migrate.check(connection.info, name, stamp)
    except OnceqError as error:
        known = (state for kind, state in STATES if isinstance(error, kind))
        return next(known, type(error).__name__)
    return OK


def _figures(connection: psycopg.Connection[Any], name: str) -> Figures:
    query = sql.SQL(_FIGURES).format(r=sql.Identifier(name))
    with connection.cursor(row_factory=class_row(Figures)) as cursor:
        (found,) = cursor.execute(query)
    return found


def _one(connection: psycopg.Connection[Any], query: str, name: str) -> Any:
    ((value,),) = connection.execute(query.encode(), (quoted(name),)).fetchall()
    return value


def quoted(name: str) -> str:
    """Returns the name of a schema as PostgreSQL reads it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
