"""Who keeps an upgrade from its locks, and which levels the sessions of a database are of.

Used by `migrate` and by the doctor. Reads PostgreSQL's own views, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row

from onceq.engine.sessions.levels import application_level

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

SHOWN: Final = 3
"""Of so many holders an error tells: those whose transactions are oldest."""

# The locks on tables and views of a repository, and that of another who makes or upgrades one. A
# prepared transaction has no session.
_HOLDERS: Final = """
select l.pid, a.usename::text as role, a.application_name as application, a.state,
       host(a.client_addr) as host,
       extract(epoch from clock_timestamp() - a.xact_start)::double precision as open_s
from pg_locks l left join pg_stat_activity a on a.pid = l.pid
where l.granted and l.pid is distinct from pg_backend_pid()
    and l.database = (select oid from pg_database where datname = current_database())
    and (l.relation in (
            select oid from pg_class where relnamespace = to_regnamespace(%(repository)s))
        or l.locktype = 'advisory' and l.objsubid = 1
            and (l.classid::bigint << 32) | l.objid::bigint = hashtext('onceq.migrate'))
group by 1, 2, 3, 4, 5, 6 order by open_s desc nulls first limit %(most)s
"""
_APPLICATIONS: Final = """
select application_name, count(*) from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
group by 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A session that holds a lock. pid: None: a prepared transaction; then the rest is None, too.

    open_s: how long its transaction has been open. What PostgreSQL hides from this role is None.
    """

    pid: int | None
    role: str | None
    application: str | None
    state: str | None
    host: str | None
    open_s: float | None

    def __str__(self) -> str:
        if self.pid is None:
            return "a prepared transaction (pg_prepared_xacts has its name)"
        lasting = None if self.open_s is None else f"for {self.open_s:.0f} s"
        said = " ".join(part for part in (self.state, lasting) if part)
        known = (self.role, self.application, self.host, said)
        return f"pid {self.pid} ({', '.join(part for part in known if part)})"


def holders(connection: psycopg.Connection[Any], repository: str) -> str:
    """Returns who holds locks of a repository now, in words; empty: nobody does any more."""
    with connection.cursor(row_factory=class_row(Holder)) as cursor:
        cursor.execute(_HOLDERS.encode(), {"repository": repository, "most": SHOWN})
        return ", ".join(map(str, cursor))


def connected_levels(connection: psycopg.Connection[Any]) -> Mapping[int, int]:
    """Returns how many sessions of code of which level are connected to this database.

    A session with an `application_name` of its own is not counted.
    """
    found = connection.execute(_APPLICATIONS).fetchall()
    counted = [(application_level(name or ""), count) for name, count in found]
    return dict(sorted((level, count) for level, count in counted if level is not None))
