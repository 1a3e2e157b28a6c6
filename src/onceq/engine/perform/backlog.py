"""What waits for a service, and which of its processes work, as the database sees them.

Used by the supervisor of `onceq serve`, which decides how many processes it runs. It asks the
database, not the processes: none may run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from onceq.engine.bind.cursors import OwnCursor
from onceq.engine.sessions.faults import translated
from onceq.model.element import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

WAITING_MAX: Final = 10_000
"""More are not counted: a look costs no more however many wait."""

# In strict order one runs at a time: while it does, no process more would have anything to do.
_LOOK = """
with ready as materialized (
    select greatest(e.enqueued_at, e.not_before) as since
    from {schema}.queue q join {schema}.element e on e.queue_id = q.queue_id
    where q.name = any(%(queues)s) and q.destroyed_at is null and q.dequeue_started
      and e.claimed_by is null
      and (e.lane < %(due)s or e.lane = %(suspect)s
           or e.lane = %(due)s and e.not_before <= {schema}.now())
      and not (q.ordered and exists (select from {schema}.element x
                                     where x.queue_id = q.queue_id and x.claimed_by is not null))
    limit %(most)s
)
select {schema}.now(), count(*),
       coalesce(extract(epoch from {schema}.now() - min(since)), 0)::double precision,
       array(select distinct l.process from {schema}.server_load l
             where l.process = any(%(processes)s) and l.state = 'runs')
from ready
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits and could run. now: by the database's clock. waiting: how many, up to 10,000.

    oldest_s: how long the oldest has waited; 0.0: none does. busy: processes that run something.
    """

    now: datetime
    waiting: int = 0
    oldest_s: float = 0.0
    busy: frozenset[UUID] = frozenset()


def look(
    connection: psycopg.Connection[Any],
    repository: str,
    queues: Sequence[str],
    processes: Sequence[UUID],
) -> Backlog:
    """Returns what waits in these queues, and which of these processes run something."""
    text = _LOOK.replace("{schema}", repository)
    arguments = {
        "queues": list(queues),
        "processes": list(processes),
        "due": int(Lane.DUE),
        "suspect": int(Lane.SUSPECT),
        "most": WAITING_MAX,
    }
    with translated(connection):
        rows = OwnCursor(connection).execute(text.encode(), arguments).fetchall()
    ((now, waiting, oldest_s, busy),) = rows
    return Backlog(now, waiting, oldest_s, frozenset(busy))
