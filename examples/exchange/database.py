"""What the runner reads in the run's database, to compare it with the bars."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from examples.exchange.market import MOVED, REPOSITORY, TABLES
from examples.running.database import RunDatabase

MOVES_BY_STATE = f"""
select state, count(*) from {REPOSITORY}.requests where queue = '{MOVED.name}' group by state
"""  # noqa: S608 - our own names
COUNTED = "select coalesce(sum(bars), 0)::bigint from total"


class Booked(NamedTuple):
    """A row of the ledger."""

    feed: str
    number: int
    day: str
    symbol: str
    close: Decimal
    value: Decimal
    moved: bool


class Total(NamedTuple):
    """A row of totals."""

    symbol: str
    bars: int
    close: Decimal
    value: Decimal


class Database(RunDatabase):
    """The database of a run of the exchange."""

    def __init__(self, url: str) -> None:
        super().__init__(url, REPOSITORY, MOVED, tables=TABLES, counted=COUNTED)

    def bars(self) -> list[Booked]:
        """All rows of the ledger."""
        query = "select feed, number, day::text, symbol, close, value, moved from bar"
        return [Booked(*row) for row in self.rows(query)]

    def totals(self) -> list[Total]:
        """The totals of all stocks."""
        return [Total(*row) for row in self.rows("select symbol, bars, close, value from total")]

    def moves(self) -> dict[str, int]:
        """How many moves the queue has had, by their state there."""
        return {str(state): int(count) for state, count in self.rows(MOVES_BY_STATE)}
