"""Facts about a database and a repository in it, for `onceq doctor`. Changes nothing.

Used by the command line, which judges them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from onceq.engine.sessions import session
from onceq.engine.sessions.faults import translated

_DATABASE = """
select current_setting('server_version_num')::integer as server_version,
       current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       (select reset_val from pg_settings where name = 'synchronous_commit') as synchronous_commit,
       current_setting('default_transaction_isolation') as isolation,
       current_setting('default_transaction_read_only') = 'on' or pg_is_in_recovery() as read_only,
       current_setting('idle_session_timeout') as idle_session_timeout,
       current_setting('max_connections')::integer as max_connections,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
       current_setting('server_encoding') as encoding,
       clock_timestamp() as clock
"""

# Who holds a claim: a session of a native server, a group of a Spark server, a relay of a stream
# (which keeps it from life to life), or nobody known. A session lives while its lock is held; a
# Spark server likewise, or while it was seen lately: it may be connecting again. The locks name
# the table and a number (takeover.sql, spark.sql).
_STALE = """
with locks as materialized (
    select l.classid, l.objid from pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 2
        and l.database = (select oid from pg_database where datname = current_database())
), claims as (
    select e.claimed_by, count(*) as elements from {schema}.element e
    where e.claimed_by is not null and e.role <> 'reply'
        and not exists (select from {schema}.stream_relay r where r.claim = e.claimed_by) group by 1
), held as (
    select c.elements, s.missed_at,
        case when s.missed_at is not null then 'missing' when s.slot is not null then 'gone'
             when p.server_id is not null then 'spark' else 'unknown' end as holder,
        case when s.slot is not null then not exists (select from locks where objid = s.slot
                 and classid = '{schema}.server'::regclass)
             when p.server_id is not null then p.seen_at < {schema}.now() - interval '60 seconds'
                 and not exists (select from locks where objid = p.server_id
                     and classid = '{schema}.spark_group'::regclass)
             else true end as is_stale
    from claims c
    left join {schema}.server s on s.incarnation = c.claimed_by
    left join {schema}.spark_group g on g.group_no = c.claimed_by
    left join {schema}.spark_server p on p.server_id = g.server_id
)
select coalesce(sum(elements) filter (where holder = 'gone'), 0)::bigint as gone,
    coalesce(sum(elements) filter (where holder = 'missing'), 0)::bigint as missing,
    extract(epoch from {schema}.now() - min(missed_at))::double precision as missing_s,
    coalesce(sum(elements) filter (where holder = 'spark'), 0)::bigint as spark,
    coalesce(sum(elements) filter (where holder = 'unknown'), 0)::bigint as unknown
from held where is_stale
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """A database as a session sees it that is not ours. Settings are as PostgreSQL writes them."""

    server_version: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    isolation: str
    read_only: bool
    idle_session_timeout: str
    max_connections: int
    connections: int
    encoding: str
    clock: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleClaims:
    """Elements whose holder has ended, and which have not come back.

    gone: by sessions of servers that nobody has taken over. missing: that wait for a verdict on
    their process, the longest for missing_s (None: none does). spark: by Spark servers that are
    not connected, and were not seen for a minute. unknown: by nobody who is known.
    """

    gone: int
    missing: int
    missing_s: float | None
    spark: int
    unknown: int


def database_facts(conninfo: str) -> DatabaseFacts:
    """Returns the facts about the database. CannotConnect, EnvironmentFault.

    It makes a session of its own: ours set what is asked here.
    """
    try:
        connection = psycopg.connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        raise session.cannot_connect(error) from error
    rows = class_row(DatabaseFacts)
    with connection, translated(connection), connection.cursor(row_factory=rows) as cursor:
        (found,) = cursor.execute(_DATABASE)
    return found


def foreign_sequences(
    connection: psycopg.Connection[Any], repository: str
) -> list[tuple[str, str]]:
    """Returns what others made and the owner may not read: sequences, and who owns each."""
    query = sql.SQL("select sequence::text, owner::text from {schema}.foreign_sequences()")
    with translated(connection):
        return connection.execute(query.format(schema=sql.Identifier(repository))).fetchall()


def stale_claims(connection: psycopg.Connection[Any], repository: str) -> StaleClaims:
    """Returns how much is claimed by somebody who has ended. It reads all of `element`."""
    query = sql.SQL(_STALE).format(schema=sql.Identifier(repository))
    rows = class_row(StaleClaims)
    with translated(connection), connection.cursor(row_factory=rows) as cursor:
        (found,) = cursor.execute(query)
    return found
