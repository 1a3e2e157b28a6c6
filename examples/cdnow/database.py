"""The run's embedded PostgreSQL, and the runner's own session with it.

Used by the runner only. It sees the shop's tables and the public view of requests, nothing
private; when the server has died under it, whoever notices first starts it again.
"""

from __future__ import annotations

import os
import signal
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

import psycopg

import onceq
from examples.cdnow.checks import Evidence, Place, Total
from examples.cdnow.data import Order
from examples.cdnow.shop import ORDERS, REPOSITORY, TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.cdnow.shop import Recorded

PAUSE_SHARE = 30
LATENCY_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
LATENCY = f"""
select percentile_disc(%s) within group (order by extract(epoch from finished_at - enqueued_at))
from {REPOSITORY}.requests where state = 'finished'
"""  # noqa: S608 - our own name


class Database:
    """Opens the database of a run; makes the repository, its queue and the shop's tables."""

    def __init__(self, url: str) -> None:
        self._qm = onceq.open(url, repository=REPOSITORY)
        self._connection: psycopg.Connection[Any] | None = None
        self._count: int | None = None
        self._next_count = 0.0
        self._qm.declare(ORDERS)
        self._open().execute(TABLES)

    def booked(self) -> int | None:
        """How many orders are booked now; None if the database was down, and is back.

        Counts anew only after a pause in proportion to what the count cost.
        """
        began = time.monotonic()
        if began < self._next_count:
            return self._count
        try:
            row = self._open().execute("select count(*) from booked").fetchone()
        except psycopg.OperationalError:
            self._forget()
            self._qm.located.ensure_running()
            return None
        now = time.monotonic()
        self._next_count = now + PAUSE_SHARE * (now - began)
        self._count = None if row is None else int(row[0])
        return self._count

    def kill_postmaster(self) -> int:
        """Kills PostgreSQL's first process with SIGKILL; its pid. Raises EmbeddedError."""
        assert self._qm.located.embedded is not None
        pid = self._qm.located.embedded.postmaster_pid()
        os.kill(pid, signal.SIGKILL)
        self._forget()  # a session that has not yet noticed would count once more
        return pid

    def latencies_s(self) -> dict[str, float]:
        """Percentiles of finished_at - enqueued_at over the history."""
        row = self._open().execute(LATENCY, [list(LATENCY_SHARES.values())]).fetchone()
        found = [] if row is None or row[0] is None else row[0]
        return {name: round(float(s), 4) for name, s in zip(LATENCY_SHARES, found, strict=False)}

    def evidence(self, orders: Sequence[Order], receipts: Sequence[Recorded]) -> Evidence:
        """Reads what the database has, for comparison with the orders and the receipts."""
        places = f"select rid, state, outcome from {REPOSITORY}.requests"  # noqa: S608 - our own name
        return Evidence(
            orders=orders,
            booked=[
                Order(order_id=r[0], customer_id=r[1], date=r[2], quantity=r[3], amount=r[4])
                for r in self._rows(
                    "select order_id, customer_id, date, quantity, amount from booked"
                )
            ],
            totals=[
                Total(row[0], int(row[1]), Decimal(row[2]))
                for row in self._rows("select customer_id, orders, amount from totals")
            ],
            places=[Place(*row) for row in self._rows(places)],
            receipts=receipts,
        )

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._open().execute(query.encode()).fetchall()

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            conninfo = self._qm.located.conninfo
            self._connection = psycopg.connect(conninfo, autocommit=True)
        return self._connection

    def _forget(self) -> None:
        self._next_count = 0.0
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Ends the session; the last user's close stops PostgreSQL."""
        self._forget()
        self._qm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
