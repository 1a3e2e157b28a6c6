"""What must hold at the end: file, bookings, totals, history and receipts compared.

Pure. Each of the five says independently which orders there were; the file is the judge of the
other four. A mismatch names the rids, which are the order ids.
"""

from __future__ import annotations

import collections
import dataclasses
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from examples.cdnow.data import Order
    from examples.cdnow.shop import Recorded

NOTHING = Decimal("0.00")


class Total(NamedTuple):
    """A row of totals."""

    customer_id: str
    orders: int
    amount: Decimal


class Place(NamedTuple):
    """A place where a rid is: a request in a queue, a waiting reply, or the history."""

    rid: str
    state: str
    outcome: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the five witnesses say."""

    orders: Sequence[Order]
    booked: Sequence[Order]
    totals: Sequence[Total]
    places: Sequence[Place]
    receipts: Sequence[Recorded]


@dataclasses.dataclass(frozen=True, slots=True)
class Mismatch:
    """What is wrong, with which orders; customers: of totals that nobody's orders explain."""

    what: str
    rids: tuple[str, ...]
    customers: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = self.rids or self.customers
        shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if names[20:] else "")
        return f"{self.what}: {len(names)}" + (f" ({shown})" if names else "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The counts of the report. executed_once: one booking as ordered, and one history row 'done'.

    receipts: orders whose receipt is in a receipts file exactly once, and is right.
    """

    orders: int
    customers: int
    dollars: Mapping[str, Decimal]
    requests_sent: int
    executed_once: int
    lost: int
    doubled: int
    receipts: int
    mismatches: tuple[Mismatch, ...]


def judge(evidence: Evidence) -> Verdict:
    """Compares the witnesses."""
    ordered = {order.order_id: order for order in evidence.orders}
    booked = collections.Counter(order.order_id for order in evidence.booked)
    finished = collections.Counter(p.rid for p in evidence.places if p.state == "finished")
    done = {p.rid for p in evidence.places if p.state == "finished" and p.outcome == "done"}
    altered = {o.order_id for o in evidence.booked if ordered.get(o.order_id, o) != o}
    once = {rid for rid, n in booked.items() if n == 1 and finished[rid] == 1} & done
    received = collections.Counter(one.rid for one in evidence.receipts)
    wrong = {one.rid for one in evidence.receipts if not _is_right(one, ordered)}
    doubled = _twice(booked) | _twice(finished)
    found = (
        ("lost: sent, and not booked", _missing(ordered, booked)),
        ("doubled: booked more than once", _twice(booked)),
        ("booked otherwise than ordered", altered),
        ("booked, and not in the file", booked.keys() - ordered.keys()),
        ("not finished, says the history", _missing(ordered, finished)),
        ("finished more than once, says the history", _twice(finished)),
        ("finished, but failed, says the history", finished.keys() - done),
        ("finished, and not in the file, says the history", finished.keys() - ordered.keys()),
        ("still in a queue", {p.rid for p in evidence.places if p.state != "finished"}),
        ("without a receipt", _missing(ordered, received)),
        ("with more than one receipt", _twice(received)),
        ("with a wrong receipt", wrong),
    )
    mismatches = [Mismatch(what, _sorted(rids)) for what, rids in found if rids]
    mismatches += _totals(evidence)
    mismatches += _dollars(dollars := _sums(evidence))
    return Verdict(
        orders=len(ordered),
        customers=len({order.customer_id for order in evidence.orders}),
        dollars=dollars,
        requests_sent=len({p.rid for p in evidence.places} & ordered.keys()),
        executed_once=len(once & ordered.keys() - altered),
        lost=len(_missing(ordered, booked)),
        doubled=len(doubled),
        receipts=sum(n == 1 and rid not in wrong for rid, n in received.items()),
        mismatches=tuple(mismatches),
    )


def _missing(ordered: Mapping[str, Order], counted: Mapping[str, int]) -> set[str]:
    return {rid for rid in ordered if rid not in counted}


def _twice(counted: Mapping[str, int]) -> set[str]:
    return {rid for rid, n in counted.items() if n > 1}


def _sorted(rids: Iterable[str]) -> tuple[str, ...]:
    """Sorts numbers by their value, then the rest alphabetically."""
    return tuple(sorted(rids, key=lambda rid: (len(rid) if rid.isdecimal() else 1000, rid)))


def _is_right(one: Recorded, ordered: Mapping[str, Order]) -> bool:
    order, receipt = ordered.get(one.rid), one.receipt
    if order is None or receipt is None:
        return False
    return (receipt.order_id, receipt.customer_id, receipt.amount) == (
        order.order_id,
        order.customer_id,
        order.amount,
    )


def _totals(evidence: Evidence) -> Iterator[Mismatch]:
    """Compares each customer's total with what the file's orders add up to."""
    of: dict[str, list[Order]] = collections.defaultdict(list)
    for order in evidence.orders:
        of[order.customer_id].append(order)
    found = {total.customer_id: total for total in evidence.totals}
    wrong = [
        order.order_id
        for customer, orders in of.items()
        if found.get(customer)
        != Total(customer, len(orders), sum((o.amount for o in orders), NOTHING))
        for order in orders
    ]
    if wrong:
        yield Mismatch("of a customer whose total is wrong", _sorted(wrong))
    if foreign := tuple(sorted(found.keys() - of.keys())):
        yield Mismatch("totals of customers who are not in the file", (), foreign)


def _sums(evidence: Evidence) -> dict[str, Decimal]:
    receipts = (one.receipt.amount for one in evidence.receipts if one.receipt is not None)
    return {
        "file": sum((order.amount for order in evidence.orders), NOTHING),
        "booked": sum((order.amount for order in evidence.booked), NOTHING),
        "totals": sum((total.amount for total in evidence.totals), NOTHING),
        "receipts": sum(receipts, NOTHING),
    }


def _dollars(sums: Mapping[str, Decimal]) -> Iterator[Mismatch]:
    for name, amount in sums.items():
        if amount != sums["file"]:
            yield Mismatch(f"the dollars of {name}, {amount:,}, are not the file's", ())
