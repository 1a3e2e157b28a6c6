"""Handlers for the tests, where Spark's workers can import them: the same orders in each form."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from onceq.errors import Reject, Retry
from onceq.spark import Answer
from onceq.spark.arrow import pa, pc

if TYPE_CHECKING:
    from onceq.spark import RequestContext
    from tests.spark.serving import Order


class Booked(msgspec.Struct):
    rid: str
    customer: str
    cents: int


class Total(msgspec.Struct):
    customer: str
    cents: Decimal


def book_one(order: Order, context: RequestContext) -> Any:
    """Answer an order with its cents, book it and add it up; its amount may be a fault."""
    if order.cents < -100:
        raise Reject("negative")
    if order.cents == -1 and context.attempt == 1:
        raise ZeroDivisionError("only once")
    if order.cents == -2:
        raise Retry("away", after_s=2.5)
    if order.cents == -3:
        return {"number": "three"}
    booked = Booked(context.rid, order.customer, order.cents)
    if order.cents == -4:
        booked.cents = 2**63
    if order.cents == -5:
        return Answer(reply={"number": 5}, rows={"nowhere": [booked]})
    total = Total(order.customer, Decimal(order.cents))
    return Answer(reply={"number": order.cents}, rows={"booked": [booked], "totals": [total]})


RETURNS = (
    "eid string, reply struct<number: bigint>, booked struct<rid: string, customer: string,"
    " cents: bigint>, totals struct<customer: string, cents: bigint>"
)


def book_arrow(batch: Any) -> Any:
    """Answer each order of a batch with its cents, book it and add it up."""
    customer = pc.struct_field(batch.column("request"), "customer")
    cents = pc.struct_field(batch.column("request"), "cents")
    columns = {
        "eid": batch.column("eid"),
        "reply": pa.StructArray.from_arrays([cents], ["number"]),
        "booked": pa.StructArray.from_arrays(
            [batch.column("rid"), customer, cents], ["rid", "customer", "cents"]
        ),
        "totals": pa.StructArray.from_arrays([customer, cents], ["customer", "cents"]),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
