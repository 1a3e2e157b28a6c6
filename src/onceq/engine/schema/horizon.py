"""What keeps dead rows in the tables of a repository, and how many there are, for `onceq doctor`.

The horizon is the oldest transaction that may still see a dead row: VACUUM removes none that died
later. Used by the command line, which judges it. Reads PostgreSQL's own views, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row

from onceq.engine.sessions.faults import translated

if TYPE_CHECKING:
    import psycopg

SHOWN: Final = 3
"""So many of those that hold the horizon are told of, the one that holds it most first."""

# Sessions of other databases see no row of this one, except those that send the WAL to a standby
# (they have no database). Workers of autovacuum, which no role owns, hold nothing. What this role
# may not see of others' sessions is null: their age, their state; but not their xmin.
_HOLDERS: Final = """
select kind, pid, name, login, application, state, age_s, behind from (
    select 'session' as kind, a.pid, null::text as name, a.usename::text as login,
        a.application_name as application, a.state,
        extract(epoch from clock_timestamp() - a.xact_start)::double precision as age_s,
        greatest(age(a.backend_xmin), age(a.backend_xid)) as behind
    from pg_stat_activity a
    where coalesce(a.backend_xmin, a.backend_xid) is not null and a.usesysid is not null
        and a.pid <> pg_backend_pid() and (a.datname = current_database() or a.datname is null)
  union all
    select 'prepared transaction', null, p.gid, p.owner::text, null, null,
        extract(epoch from clock_timestamp() - p.prepared)::double precision, age(p.transaction)
    from pg_prepared_xacts p where p.database = current_database()
  union all
    select 'replication slot', s.active_pid, s.slot_name::text, null, null,
        case when s.active then 'active' else 'inactive' end, null, age(s.xmin)
    from pg_replication_slots s where s.xmin is not null
) held order by behind desc, age_s desc nulls last limit %(most)s
"""
_ROWS: Final = """
select s.relname::text as name, s.n_live_tup as live, s.n_dead_tup as dead,
    s.last_autovacuum as autovacuumed_at,
    extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))
        ::double precision as vacuumed_s,
    not coalesce((select option_value::boolean from pg_options_to_table(c.reloptions)
        where option_name = 'autovacuum_enabled'), true) as is_off
from pg_stat_user_tables s join pg_class c on c.oid = s.relid
where s.schemaname = %(repository)s order by s.n_dead_tup desc, s.relname
"""
_AUTOVACUUM: Final = """
select current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonHolder:
    """What holds the horizon back. kind: a session, a prepared transaction, a replication slot.

    pid: of the session, or of the one that uses the slot. name: of the other two. age_s: how long
    the transaction is open, None for a slot, or if this role may not see it. behind: how many
    transactions have begun since the one that it holds the horizon at.
    """

    kind: str
    pid: int | None
    name: str | None
    login: str | None
    application: str | None
    state: str | None
    age_s: float | None
    behind: int

    def __str__(self) -> str:
        what = f"pid {self.pid}" if self.kind == "session" else f"{self.kind} {self.name!r}"
        age = "age not shown to this role" if self.age_s is None else f"for {self.age_s:.0f} s"
        known = [part for part in (self.login, self.application, self.state) if part]
        known += [] if self.kind == "replication slot" else [age]
        return f"{what} ({', '.join([*known, f'{self.behind} transaction(s)'])})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """The rows of a table, by PostgreSQL's statistics. vacuumed_s: since its last VACUUM.

    None: it had none since they were reset. is_off: autovacuum was turned off for this table.
    """

    name: str
    live: int
    dead: int
    autovacuumed_at: Any
    vacuumed_s: float | None
    is_off: bool

    def __str__(self) -> str:
        when = self.autovacuumed_at
        last = "never" if when is None else f"{when.astimezone():%Y-%m-%d %H:%M:%S}"
        return f"{self.name}: {self.dead} dead, {self.live} live, last autovacuum {last}"


def horizon_holders(connection: psycopg.Connection[Any]) -> list[HorizonHolder]:
    """Returns what holds the horizon of this database back, the oldest first; three at most."""
    rows = class_row(HorizonHolder)
    with translated(connection), connection.cursor(row_factory=rows) as cursor:
        cursor.execute(_HOLDERS.encode(), {"most": SHOWN})
        return cursor.fetchall()


def table_rows(connection: psycopg.Connection[Any], repository: str) -> list[TableRows]:
    """Returns the rows of each table of a repository, the one with most dead ones first."""
    rows = class_row(TableRows)
    with translated(connection), connection.cursor(row_factory=rows) as cursor:
        cursor.execute(_ROWS.encode(), {"repository": repository})
        return cursor.fetchall()


def autovacuum_is_on(connection: psycopg.Connection[Any]) -> bool:
    """Whether the database vacuums by itself: it needs to count what tables lose."""
    with translated(connection):
        row = connection.execute(_AUTOVACUUM.encode()).fetchone()
    return row is not None and bool(row[0])
