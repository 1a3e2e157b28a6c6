"""What the shop's parts agree on: its requests, its receipts, its queue, its tables, its files.

A value module: importing it does nothing. The clients, the Spark server and the runner
import it; each of them is a program of its own.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from pathlib import Path

import msgspec

import onceq


class Purchase(msgspec.Struct, frozen=True):
    """A request: book this order. The amount travels as text, so that no cent is lost."""

    order_id: str
    customer_id: str
    date: dt.date
    quantity: int
    amount: Decimal


class Receipt(msgspec.Struct, frozen=True):
    """The reply: what was booked."""

    order_id: str
    customer_id: str
    amount: Decimal


ORDERS = onceq.Queue("orders", Purchase, Receipt)
REPOSITORY = "cdnow"
SPARK = "spark"

# No unique constraint on booked: an order that was booked twice is to be seen, not prevented. The
# audit finds each booking by the eid of its request.
TABLES = """
create table booked (
    order_id    text not null,
    customer_id text not null,
    date        date not null,
    quantity    integer not null,
    amount      numeric not null,
    eid         uuid not null
);
create table totals (
    customer_id text primary key,
    orders      bigint not null,
    amount      numeric not null
);
"""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is set up; the runner writes it, its children read it.

    window: most requests that a client has outstanding. chunk: most that it sends at once, and
    most receipts that it records at once. batch: most requests of one micro-batch of Spark.
    """

    url: str
    window: int
    chunk: int
    batch: int


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """What came after the work. archived: requests in files; audit, report: pages to open."""

    archived: int
    files: int
    violations: int
    audit: str
    report: str


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A kill, and when the work went on again; None: the run ended before that."""

    what: str
    at: dt.datetime
    over_at: dt.datetime | None


class Recorded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a receipts file. failed: the code with which the request failed, if it did."""

    rid: str
    receipt: Receipt | None = None
    failed: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "database"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def finished(self) -> Path:
        return self.root / "finished"

    @property
    def report(self) -> Path:
        return self.root / "report.json"

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    @property
    def audit(self) -> Path:
        return self.root / "audit.html"

    @property
    def events(self) -> Path:
        """Of what clients saw, and of the kills, for the audit."""
        return self.root / "events"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def _pipeline(self) -> Path:
        return self.root / "pipeline.json"

    @property
    def _outages(self) -> Path:
        return self.root / "outages.json"

    def orders(self, client: str) -> Path:
        return self.root / "clients" / client / "orders.csv"

    def receipts(self, client: str) -> Path:
        return self.root / "clients" / client / "receipts.jsonl"

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"

    def write_pipeline(self, pipeline: Pipeline) -> None:
        self._pipeline.write_bytes(msgspec.json.encode(pipeline))

    def read_pipeline(self) -> Pipeline:
        return msgspec.json.decode(self._pipeline.read_bytes(), type=Pipeline)

    def write_outages(self, outages: list[Outage]) -> None:
        self._outages.write_bytes(msgspec.json.encode(outages))

    def read_outages(self) -> list[Outage]:
        return msgspec.json.decode(self._outages.read_bytes(), type=list[Outage])

    def write_setup(self, setup: Setup) -> None:
        (self.root / "setup.json").write_bytes(msgspec.json.encode(setup))

    def read_setup(self) -> Setup:
        return msgspec.json.decode((self.root / "setup.json").read_bytes(), type=Setup)
