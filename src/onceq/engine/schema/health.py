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
       coalesce((select extract(epoch from clock_timestamp() - min(xact_start))
                 from pg_stat_activity where pid <> pg_backend_pid()
                 and backend_type = 'client backend'), 0)::double precision as oldest_transaction_s,
       (select count(*) from pg_prepared_xacts) as prepared_transactions,
       current_setting('server_encoding') as encoding,
       clock_timestamp() as clock
"""

# A claim whose holder is neither a native session nor a group of the Spark server.
_ORPHANED = """
select count(*) from {schema}.element e where e.claimed_by is not null and e.role <> 'reply'
    and not exists (select from {schema}.server s where s.incarnation = e.claimed_by)
    and not exists (select from {schema}.spark_group g where g.group_no = e.claimed_by)
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
    oldest_transaction_s: float
    prepared_transactions: int
    encoding: str
    clock: datetime


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


def orphaned_claims(connection: psycopg.Connection[Any], repository: str) -> int:
    """Returns how many elements are claimed by an unknown holder."""
    query = sql.SQL(_ORPHANED).format(schema=sql.Identifier(repository))
    with translated(connection):
        row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])
