"""Readings of what work costs: processor time, context switches, commits, WAL. Linux only.

A reading is taken before and after; their difference divided by the operations is the cost.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
SETTLE_S = 1.2
"""A backend reports its counts at the end of a transaction, but not twice within a second."""

DATABASE = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_stat_get_db_xact_commit(oid) \
from pg_database where datname = current_database()"
FLUSHES = "select coalesce(sum(fsyncs), 0) from pg_stat_io where object = 'wal'"
BACKENDS = "select pid from pg_stat_activity where backend_type = 'client backend' \
and datname = current_database() and pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Processor:
    """Processor time of some processes, and how often they were switched."""

    user_s: float
    system_s: float
    switches: int

    def since(self, before: Processor) -> Processor:
        """Return the difference."""
        return Processor(
            self.user_s - before.user_s,
            self.system_s - before.system_s,
            self.switches - before.switches,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one moment."""

    backends: Processor
    clients: Processor
    servers: Processor
    commits: int
    flushes: int
    wal_bytes: int
    moment: float


def processor(pids: Iterable[int]) -> Processor:
    """Return what these processes have used so far, all their threads together."""
    user = system = 0.0
    switches = 0
    for pid in pids:
        said = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user += int(said[11]) * TICK_S
        system += int(said[12]) * TICK_S
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for line in (thread / "status").read_text().splitlines():
                if line.startswith(("voluntary_ctxt", "nonvoluntary_ctxt")):
                    switches += int(line.split()[1])
    return Processor(user, system, switches)


class Meter:
    """Takes readings by a connection of its own. servers: pids of our server processes."""

    def __init__(self, connection: psycopg.Connection[Any], servers: Iterable[int] = ()) -> None:
        self._connection = connection
        self._servers = tuple(servers)

    def read(self) -> Reading:
        """Return all counters now."""
        pids = [int(row[0]) for row in self._connection.execute(BACKENDS)]
        wal, commits = self._row(DATABASE)
        (flushes,) = self._row(FLUSHES)
        return Reading(
            backends=processor(pids),
            clients=processor([os.getpid()]),
            servers=processor(self._servers),
            commits=int(commits),
            flushes=int(flushes),
            wal_bytes=int(wal),
            moment=time.perf_counter(),
        )

    def _row(self, query: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return row


def costs(before: Reading, after: Reading, number: int) -> dict[str, float]:
    """Return the cost of one operation: microseconds, bytes, counts. One pause is in between."""
    seconds = after.moment - before.moment - SETTLE_S
    found: dict[str, float] = {"wall us": seconds / number * 1e6}
    for name in ("backends", "clients", "servers"):
        used: Processor = getattr(after, name).since(getattr(before, name))
        whole = used.user_s + used.system_s
        if whole:
            found |= {
                f"{name} user us": used.user_s / number * 1e6,
                f"{name} kernel us": used.system_s / number * 1e6,
                f"{name} kernel share": used.system_s / whole,
                f"{name} switches": used.switches / number,
            }
    return found | {
        "commits": (after.commits - before.commits) / number,
        "WAL flushes": (after.flushes - before.flushes) / number,
        "WAL bytes": (after.wal_bytes - before.wal_bytes) / number,
    }
