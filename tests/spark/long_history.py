"""A history of two weeks, as servers would have left it, to look at what is made of it.

    python -m tests.spark.long_history URL REPOSITORY ROWS

makes the repository and writes so many rows: days and nights, a weekend, an outage of an afternoon
in which everything waits, a night of faults, names that a page must not take for markup.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Final

from onceq.engine.embedded.locate import locate
from onceq.engine.perform.driver import connect
from onceq.engine.schema.migrate import apply

QUEUES: Final = ("orders", "mail", "billing", "exports", "search", *(f"q{n}" for n in range(9)))
CLIENTS: Final = 40
NAMED: Final = """
insert into {r}.queue (name, kind) select unnest(%s::text[]), 'request' returning queue_id
"""
PEOPLE: Final = """
insert into {r}.registrant (name)
    select case n when 3 then '<img src=x onerror=alert(1)> & co' when 4 then repeat('long-', 60)
        else 'till-' || n end from generate_series(1, %s) n
"""
ENDS: Final = """
with drawn as materialized (
    select n, random() as day, random() as hour, random() as waited, random() as served,
        random() as luck, random() as queue, random() as client
    from generate_series(1, %s) n
), placed as (
    select *, timestamptz '2026-11-02 00:00:00+00'
        + floor(day * 14) * interval '1 day'
        + (12 + 11.99 * sign(hour - 0.5) * (2 * abs(hour - 0.5)) ^ 1.7) * interval '1 hour' as begun
    from drawn where floor(day * 14) not in (5, 6) or hour < 0.45
), timed as (
    select *, greatest(0.002, exp(-4 + 3 * (waited + served + luck - 1.5)))
            + case when begun between '2026-11-11 13:00+00' and '2026-11-11 16:00+00' then
                extract(epoch from timestamptz '2026-11-11 16:00+00' - begun) else 0 end as waiting,
        exp(-3 + 4 * (served - 0.5) + 6 * greatest(0, luck - 0.98) / 0.02) as service,
        1 + floor({queues} * queue ^ 3) as q, 1 + floor({clients} * client ^ 2) as c,
        begun between '2026-11-07 01:00+00' and '2026-11-07 05:00+00' as is_bad
    from placed
), judged as (
    select *, case when luck < 0.01 or is_bad and luck < 0.2 then 'failed' when luck < 0.014
        then 'cancelled' when luck < 0.017 then 'expired' when luck < 0.02 then 'dequeued'
        else 'done' end as outcome from timed
)
insert into {r}.history (finished_at, enqueued_at, started_at, server, queue_id, registrant_id,
        aborts, role, outcome, eid, rid, code, error, sha256)
    select begun + (waiting + service) * interval '1 s', begun,
        case when outcome in ('done', 'dequeued') then begun + waiting * interval '1 s' end,
        case when outcome not in ('cancelled', 'expired')
            then 1 + mod(n, 3) + 4 * floor(day * 14) end,
        (%s::integer[])[q], case when queue < 0.5 then c end,
        case when outcome = 'failed' then 3 when luck > 0.97 or is_bad then 1 else 0 end,
        case when queue < 0.5 then 'request' else 'datagram' end::{r}.role,
        outcome::{r}.outcome, md5('long ' || n)::uuid, 'rid-' || n,
        case outcome when 'failed' then (array['ValueError', 'TimeoutError', 'Reject',
            'server_died', '<b>bold</b>', 'E' || mod(n, 30)])[1 + mod(n, 6)]
            when 'cancelled' then 'killed' when 'expired' then 'expired' end,
        case outcome when 'failed' then 'no <such> item & nothing more: ' || n end, sha256('')
    from judged
"""
ABORTS: Final = """
insert into {r}.attempt (ended_at, server, host, pid, eid, charge, code, error)
    select h.finished_at - a * interval '2 s', h.server, 'host-' || mod(h.server, 3),
        4000 + h.server, h.eid,
        (array['charge', 'charge', 'charge', 'environment', 'suspect', 'reject'])[
            1 + mod(abs(hashtext(h.rid)) + a, 6)],
        coalesce(h.code, (array['ValueError', 'deadlock', 'server_died'])[
            1 + mod(abs(hashtext(h.rid)), 3)]), h.error
    from {r}.history h, generate_series(1, h.aborts) a
"""


def write_history(conninfo: str, repository: str, rows: int) -> None:
    """Makes a repository with a history of about so many rows, the same each time."""
    with contextlib.closing(connect(conninfo)) as connection:
        apply(connection, repository)

        def ask(text: str, *values: Any) -> Any:
            query = text.replace("{queues}", str(len(QUEUES))).replace("{clients}", str(CLIENTS))
            return connection.execute(query.replace("{r}", repository).encode(), values)

        ids = [queue_id for (queue_id,) in ask(NAMED, list(QUEUES)).fetchall()]
        ask("select setseed(0.25)")
        ask(PEOPLE, CLIENTS)
        ask(ENDS, rows, ids)
        ask(ABORTS)


if __name__ == "__main__":
    with contextlib.closing(locate(sys.argv[1])) as located:
        write_history(located.conninfo, sys.argv[2], int(sys.argv[3]))
