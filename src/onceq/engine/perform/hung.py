"""Executions that outlive their limit, as the database sees them.

Used by the supervisor of `onceq serve`. It does not ask the process itself: a handler that
hangs may hold its whole interpreter. A transaction's age is how long its execution has run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.types.json import Jsonb

from onceq.engine.bind.cursors import OwnCursor
from onceq.engine.sessions.faults import translated
from onceq.model.element import Lane

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

END_MS = 5_000
"""How long a session has to end before the element is aborted, which waits for its locks."""

# Only the oldest transactions are looked at any further: claimed_by has no index.
_FIND = """
with old as materialized (
    select s.process, s.incarnation, s.backend_pid,
           extract(epoch from clock_timestamp() - a.xact_start)::double precision as ran_s,
           pg_sequence_last_value(to_regclass('{schema}.started_' || s.slot)) as marker
    from {schema}.server s join pg_stat_activity a on a.pid = s.backend_pid
    where s.process = any(%(processes)s) and a.xact_start < clock_timestamp()
          - (select min(value::double precision) from jsonb_each_text(%(limits)s)) * interval '1 s'
)
select old.process, old.incarnation, old.backend_pid, old.ran_s, e.seq, old.marker > 0, q.name,
       e.rid, e.eid, e.aborts
from old
cross join lateral (
    select x.seq, x.queue_id, x.rid, x.eid, x.aborts from {schema}.element x where old.marker > 0
        and x.seq = old.marker and x.claimed_by = old.incarnation
    union all
    select x.seq, x.queue_id, x.rid, x.eid, x.aborts from {schema}.element x where old.marker < 0
        and x.claimed_by = old.incarnation and (x.code is null or x.lane = %(suspect)s)
        and exists (select from {schema}.element y
                    where y.seq = -old.marker and y.claimed_by = old.incarnation)
    offset 0
) e
join {schema}.queue q on q.queue_id = e.queue_id
where old.ran_s > (%(limits)s ->> q.name)::double precision
"""


@dataclass(frozen=True, slots=True)
class Hung:
    """An element whose execution has outlived its limit.

    is_named: it was started alone; otherwise one of its batch hangs, and nobody knows which.
    """

    process: UUID
    incarnation: int
    backend_pid: int
    ran_s: float
    seq: int
    is_named: bool
    queue: str
    rid: str
    eid: UUID
    aborts: int


def find(
    connection: psycopg.Connection[Any],
    repository: str,
    processes: Sequence[UUID],
    limits: Mapping[str, float],
) -> list[Hung]:
    """Returns what hangs in these processes. limits: for each queue, in seconds."""
    text = _FIND.replace("{schema}", repository)
    arguments = {
        "processes": list(processes),
        "limits": Jsonb(dict(limits)),
        "suspect": int(Lane.SUSPECT),
    }
    with translated(connection):
        rows = OwnCursor(connection).execute(text.encode(), arguments).fetchall()
    return [Hung(*row) for row in rows]


def end_session(connection: psycopg.Connection[Any], backend_pid: int) -> None:
    """Ends a session of ours, and with it its transaction and its locks."""
    with translated(connection):
        OwnCursor(connection).execute(
            "select pg_terminate_backend(%s::integer, %s::bigint)", [backend_pid, END_MS]
        )
