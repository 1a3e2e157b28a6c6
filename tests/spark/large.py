"""A handler whose reply to one order is very large, where Spark's workers can import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceq.spark import RequestContext
    from tests.spark.serving import Order

BYTES = 100_000_000
LARGE = 3
"""The cents of the order that is answered so."""


def answer(order: Order, _: RequestContext) -> str:
    """Answer with the cents of an order."""
    return "x" * BYTES if order.cents == LARGE else str(order.cents)
