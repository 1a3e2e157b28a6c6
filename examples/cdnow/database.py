"""What the runner reads in the run's database, to compare it with the orders and the receipts.

It sees the shop's tables and the public view of requests, nothing private.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from examples.cdnow.checks import Evidence, Place, Total
from examples.cdnow.data import Order
from examples.cdnow.shop import ORDERS, REPOSITORY, TABLES
from examples.running.database import RunDatabase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.cdnow.shop import Recorded

LATENCY_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
LATENCY = f"""
select percentile_disc(%s) within group (order by extract(epoch from finished_at - enqueued_at))
from {REPOSITORY}.requests where state = 'finished'
"""  # noqa: S608 - our own name


class Database(RunDatabase):
    """The database of a run of the shop."""

    def __init__(self, url: str) -> None:
        counted = "select count(*) from booked"
        super().__init__(url, REPOSITORY, ORDERS, tables=TABLES, counted=counted)

    def latencies_s(self) -> dict[str, float]:
        """Percentiles of finished_at - enqueued_at over the history."""
        ((found,),) = self.rows(LATENCY, [list(LATENCY_SHARES.values())])
        pairs = zip(LATENCY_SHARES, found or [], strict=False)
        return {name: round(float(s), 4) for name, s in pairs}

    def evidence(self, orders: Sequence[Order], receipts: Sequence[Recorded]) -> Evidence:
        """Reads what the database has, for comparison with the orders and the receipts."""
        places = f"select rid, state, outcome from {REPOSITORY}.requests"  # noqa: S608 - our own name
        return Evidence(
            orders=orders,
            booked=[
                Order(order_id=r[0], customer_id=r[1], date=r[2], quantity=r[3], amount=r[4])
                for r in self.rows(
                    "select order_id, customer_id, date, quantity, amount from booked"
                )
            ],
            totals=[
                Total(row[0], int(row[1]), Decimal(row[2]))
                for row in self.rows("select customer_id, orders, amount from totals")
            ],
            places=[Place(*row) for row in self.rows(places)],
            receipts=receipts,
        )
