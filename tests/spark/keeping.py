"""A batch function with a state: each customer's orders are answered in pairs, with their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

STATE = "eid string, cents bigint"


def in_pairs(requests: DataFrame) -> DataFrame:
    """Answer the second order of a customer, and with it the first, which waited in the state."""
    order = sf.col("request")
    orders = requests.select("eid", order.customer.alias("customer"), order.cents.alias("cents"))
    return orders.groupBy("customer").applyInPandasWithState(
        pair, "eid string, reply string", STATE, "append", "NoTimeout"
    )


def pair(_: tuple[str], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    waiting = [state.get] if state.exists else []
    answers = []
    for frame in frames:
        for eid, cents in sorted(zip(frame.eid, frame.cents, strict=True), key=lambda one: one[1]):
            waiting.append((eid, int(cents)))
            if len(waiting) == 2:
                total = sum(one[1] for one in waiting)
                answers += [(one[0], str(total)) for one in waiting]
                waiting = []
    if waiting:
        state.update(waiting[0])
    elif state.exists:
        state.remove()
    eids, replies = [one[0] for one in answers], [one[1] for one in answers]
    yield pd.DataFrame({"eid": eids, "reply": replies}, dtype=object)
