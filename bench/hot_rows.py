"""Batch servers that change the same rows: two processes against one.

`python -m bench.hot_rows [--accounts N ...]` measures, in a PostgreSQL of its own: rounds of one
process and of two, in turn, over the same number of requests, each of which changes one account.
Beside the ratio it says how many deadlocks PostgreSQL counted, which no load on the machine alters.
`python -m bench.hot_rows --serve CONNINFO` is one of the processes: a user's server.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

import onceq
from bench.systems import prepared_ground

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from onceq import Context

ROOT = Path(__file__).resolve().parents[1]
QUEUE = onceq.Queue("hot", bytes, bytes)
ACCOUNTS = (20, 200, 20_000)
REQUESTS = 3_000
BATCH = 100
ROUNDS = 5
LOOK_S = 0.005
LIMIT_S = 300.0
SLOWER_AT_MOST = 0.9
"""The least rate of two processes, relative to that of one."""


def handle(body: bytes, context: Context) -> bytes:
    """Change the account that the request names."""
    context.connection.execute("update account set booked = booked + 1 where n = %s", (int(body),))
    return b""


def prepare(connection: psycopg.Connection[Any], accounts: int) -> None:
    """Make the accounts anew."""
    connection.execute("drop table if exists account")
    connection.execute("create table account (n integer primary key, booked integer not null)")
    connection.execute("insert into account select n, 0 from generate_series(1, %s) n", (accounts,))


@contextlib.contextmanager
def servers(conninfo: str, count: int) -> Generator[None]:
    """Run this many server processes for the time of the block."""
    command = [sys.executable, "-m", "bench.hot_rows", "--serve", conninfo]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(LIMIT_S)


def wait_for(connection: psycopg.Connection[Any], sql: str, *values: int) -> None:
    """Wait until a statement returns true. TimeoutError."""
    end = time.monotonic() + LIMIT_S
    while True:
        row = connection.execute(sql.encode(), values).fetchone()
        if row is not None and row[0]:
            return
        if time.monotonic() > end:
            raise TimeoutError(sql)
        time.sleep(LOOK_S)


def run(qm: onceq.QueueManager, conninfo: str, accounts: int, processes: int) -> float:
    """Return how many requests a second this many processes execute."""
    qm.declare(QUEUE)
    qm.stop(QUEUE.name, enqueue=False)
    bodies = [str(n * 7919 % accounts + 1).encode() for n in range(REQUESTS)]
    qm.enqueue_many(QUEUE, bodies)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        with servers(conninfo, processes):
            wait_for(connection, "select count(*) = %s from onceq.server", processes)
            began = time.monotonic()
            qm.start(QUEUE.name, enqueue=False)
            wait_for(connection, "select not exists (select from onceq.element)")
            took = time.monotonic() - began
        wait_for(connection, "select sum(booked) >= %s from account", REQUESTS)
    return REQUESTS / took


def deadlocks(connection: psycopg.Connection[Any]) -> int:
    """Return how many PostgreSQL has counted; a session reports what it saw when it ends."""
    row = connection.execute(
        "select deadlocks from pg_stat_database where datname = current_database()"
    ).fetchone()
    return 0 if row is None else int(row[0])


def measure(conninfo: str, accounts: int, rounds: int) -> bool:
    """Measure pairs, and print the results; return whether two processes were fast enough."""
    pairs: list[tuple[float, float]] = []
    with (
        psycopg.connect(conninfo, autocommit=True) as connection,
        onceq.open(conninfo) as qm,
    ):
        before = deadlocks(connection)
        for number in range(rounds + 1):  # the first warms up
            rates: dict[int, float] = {}
            for processes in (1, 2) if number % 2 else (2, 1):
                prepare(connection, accounts)
                rates[processes] = run(qm, conninfo, accounts, processes)
            pairs.append((rates[1], rates[2]))
        found = deadlocks(connection) - before
    del pairs[0]
    one, two = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    spread = " ".join(f"{b / a:.2f}" for a, b in pairs)
    sys.stdout.write(
        f"{accounts} accounts: one process {one:.0f}/s, two {two:.0f}/s, ratio {ratio:.2f}"
        f" ({spread}), {found} deadlocks\n"
    )
    sys.stdout.flush()
    return ratio >= SLOWER_AT_MOST


def serve(conninfo: str) -> None:
    """Serve until told to stop."""
    server = onceq.Server([QUEUE.handled_by(handle, batch=BATCH)])
    with server.signals():
        server.run(conninfo)


def main(arguments: Sequence[str]) -> int:
    """Measure or serve; 1 if two processes were too slow for some number of accounts."""
    parser = argparse.ArgumentParser(prog="python -m bench.hot_rows", description=__doc__)
    parser.add_argument("--accounts", type=int, nargs="+", default=ACCOUNTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--serve", metavar="CONNINFO")
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve)
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="onceq-hot-") as directory,
        prepared_ground(Path(directory), 0) as ground,
    ):
        good = [measure(ground.conninfo, n, options.rounds) for n in options.accounts]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
