"""Servers for the tests: the queue of orders, its batch function, its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onceq.model.queue import Queue
from onceq.spark import ServerSettings, add, insert
from tests.spark.faulty_source import FaultyServer, book
from tests.spark.spark_parts import QUEUE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.spark_parts import Repository


class Order(msgspec.Struct):
    customer: str
    cents: int


class Receipt(msgspec.Struct):
    number: int


ORDERS = Queue(QUEUE, Order, Receipt)


def make_server(repository: str, faults: Path, **options: Any) -> FaultyServer:
    """Make a server of orders, whose faults are files in a directory."""
    tables = {
        "booked": insert(into=f"{repository}.booked"),
        "totals": add("customer", "cents", into=f"{repository}.totals"),
    }
    chosen: dict[str, Any] = {
        "batch": book,
        "tables": tables,
        "name": "spark",
        "settings": ServerSettings(backoff_s=0.01, backoff_max_s=0.1, trigger_ms=0),
    }
    server = FaultyServer(ORDERS, **(chosen | options))
    server.faults = str(faults)
    return server


def check_all_done(repository: Repository, rids: list[str]) -> None:
    """Check that every request has one reply and took effect once."""
    assert repository.seqs_left() == 0
    replies = repository.replies()
    assert replies.keys() == set(rids)
    for rid, (outcome, body) in replies.items():
        assert (outcome, body) == ("done", b'{"number":%s}' % rid[1:].encode())
    booked = repository.booked()
    assert [row[0] for row in booked] == sorted(rids, key=lambda rid: int(rid[1:]))
    totals: dict[str, int] = {}
    for _, customer, cents in booked:
        totals[customer] = totals.get(customer, 0) + cents
    assert repository.totals() == totals
    history = repository.ask(
        "select rid, count(*) from {}.history where role = 'request' group by rid"
    )
    assert dict(history) == dict.fromkeys(rids, 1)
