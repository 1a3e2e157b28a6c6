"""Times the SQL functions of the hot path without a client: loops inside one transaction.

Each loop is plpgsql: it calls the function so many times between two readings of the clock, and is
rolled back. What a client, the wire and the commit cost is not in it. Versions of rows that the
loop itself leaves behind stay until its end, so that loops are short.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

import onceq
from bench.workers.base import BODY

CALLS = 200
TIMES = 7
QUEUE = onceq.Queue("loop", bytes, bytes)


@dataclass(frozen=True, slots=True)
class Loop:
    """What is done once in the transaction, and what many times. declare: variables."""

    body: str
    setup: tuple[str, ...] = ()
    declare: str = ""


_BODY = "convert_to(repeat('x', 200), 'UTF8')"
_CONNECT = "select * into c from onceq.connect('loop', '', null);"
_OPEN = """select * into i from onceq.open_incarnation(gen_random_uuid(), 'loop', 0, null, null);
    select queue_id into q from onceq.queue where name = 'loop';
    perform set_config('onceq_setting.token', 'loop', true);"""
_SERVE = "c record; i record; e onceq.element; q integer;"

LOOPS = {
    "enqueue": Loop(
        f"perform onceq.enqueue('loop', {_BODY}, null, 4::smallint, null, null, null, null, null,"
        " true);"
    ),
    "send": Loop(
        f"perform * from onceq.send(c.registrant_id, c.epoch, 'loop', 'r' || n, {_BODY}, n,"
        " '{{}}'::text[], 4::smallint, null, null, null, null, true, false, 0);",
        (_CONNECT,),
        "c record;",
    ),
    "claim": Loop(
        "select * into e from onceq.claim(i.incarnation, q, 1, n, true);", (_OPEN,), _SERVE
    ),
    "finish": Loop(
        "select * into e from onceq.finish(array[e.seq], i.incarnation, array[null]::bytea[], null,"
        " 'loop', true, q, 1, n, true, null, null, false) f where f.seq is not null;",
        (_OPEN, "select * into e from onceq.claim(i.incarnation, q, 1, 1, true);"),
        _SERVE,
    ),
    "claim-empty": Loop(
        "perform * from onceq.claim(i.incarnation, q, 1, n, true);",
        (_OPEN, "delete from onceq.element;"),
        _SERVE,
    ),
}


def timed(connection: psycopg.Connection[Any], loop: Loop) -> float:
    """Return the microseconds of one call, in one transaction that is rolled back."""
    block = f"""do $loop$
declare started timestamptz; {loop.declare}
begin
    {" ".join(loop.setup)}
    started := clock_timestamp();
    for n in 1 .. {CALLS} loop
        {loop.body}
    end loop;
    perform set_config('bench.us',
        (extract(epoch from clock_timestamp() - started) * 1e6 / {CALLS})::text, true);
end $loop$"""
    with connection.transaction(force_rollback=True):
        connection.execute(block.encode())
        row = connection.execute("select current_setting('bench.us')").fetchone()
    assert row is not None
    return float(row[0])


def report(name: str, conninfo: str, *, as_json: bool) -> int:
    """Time one loop, or all of them, and print the medians."""
    with onceq.open(conninfo) as qm:
        qm.declare(QUEUE)
        qm.enqueue_many(QUEUE, [BODY] * (2 * CALLS))
    made = Table("SQL function", "median us a call", "least", "greatest")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for one in LOOPS if name == "all" else (name,):
            found = [timed(connection, LOOPS[one]) for _ in range(TIMES)]
            median = statistics.median(found)
            if as_json:
                print(json.dumps({"v": 1, "kind": "sql", "loop": one, "us": round(median, 2)}))
            made.add_row(one, f"{median:.1f}", f"{min(found):.1f}", f"{max(found):.1f}")
    if not as_json:
        Console().print(made)
    return 0
