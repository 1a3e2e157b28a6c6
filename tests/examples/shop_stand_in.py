"""A native server in the place of Spark's, for tests of the runner: `python -m ... DIRECTORY`.

It behaves, unless the file `behaviour` in the directory's parent says "careless": then it books
order 7 twice, never books order 8, and books order 9 for a cent more. If it says a number, there is
work for so many strikes: the last orders take long until they have come.
"""

from __future__ import annotations

import signal
import sys
import threading
from decimal import Decimal
from pathlib import Path

import onceq
from examples.cdnow.shop import ORDERS, REPOSITORY, Purchase, Receipt, RunDirectory
from examples.running.lifeline import hold_lifeline
from examples.running.status import say

BOOK = "insert into booked values (%s, %s, %s, %s, %s, %s)"
ADD = """
insert into totals values (%s, 1, %s) on conflict (customer_id)
do update set orders = totals.orders + 1, amount = totals.amount + excluded.amount
"""
PACE_S = 0.015
SLOW_S, SLOW_FROM = 0.5, 400
"""So slow it is from the 400th order on while there are strikes to come, which fall before."""


class Pace:
    """How long an order takes. strikes: so many are to come."""

    def __init__(self, directory: RunDirectory, strikes: int) -> None:
        self._kills = directory.events / "kills.events"
        self._strikes = strikes

    def keep(self, context: onceq.Context) -> None:
        """Takes that long."""
        threading.Event().wait(PACE_S)
        if self._strikes == 0:
            return
        ((booked,),) = context.connection.execute("select count(*) from booked").fetchall()
        struck = self._kills.read_bytes().count(b"kill -9")
        if booked >= SLOW_FROM and struck < self._strikes:
            threading.Event().wait(SLOW_S)


def book(purchase: Purchase, context: onceq.Context, *, careless: bool) -> Receipt:
    times, amount = 1, purchase.amount
    if careless:
        times = {"7": 2, "8": 0}.get(purchase.order_id, 1)
        amount += Decimal("0.01") if purchase.order_id == "9" else 0
    for _ in range(times):
        row = (purchase.order_id, purchase.customer_id, purchase.date, purchase.quantity, amount)
        context.connection.execute(BOOK, (*row, context.eid))
        context.connection.execute(ADD, (purchase.customer_id, amount))
    return Receipt(purchase.order_id, purchase.customer_id, purchase.amount)


def main() -> None:
    hold_lifeline()
    directory = RunDirectory(Path(sys.argv[1]))
    behaviour = directory.root.parent / "behaviour"
    said = behaviour.read_text() if behaviour.exists() else ""
    careless = said == "careless"
    pace = Pace(directory, int(said) if said.isdigit() else 0)

    def handler(purchase: Purchase, context: onceq.Context) -> Receipt:
        pace.keep(context)
        return book(purchase, context, careless=careless)

    server = onceq.Server([ORDERS.handled_by(handler)])
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    say(ready=True)
    server.run(directory.read_setup().url, repository=REPOSITORY)


if __name__ == "__main__":
    main()
