"""What the servers of trials compute: each request by itself, in a state, or many in one row.

Used by proof/sparkpoints/driver.py; Spark's Python processes import it by name. Each answers an
order with its receipt and one row for the ledger; of what fails too, whose row must not be applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from proof.harness.ledger import EFFECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

__all__ = ["EACH", "FORMS", "SEVERAL", "STATE", "Form"]

_TOLD: Final = "case when kind = 'fail' then 'told to fail' end as error"
_REPLY: Final = "named_struct('rid', rid, 'pid', 0) as reply"
_EFFECT: Final = (
    f"named_struct('key', rid, 'rid', rid, 'eid', cast(eid as string), 'pid', number) as {EFFECTS}"
)
_ROWS: Final = "array<struct<key: string, rid: string, eid: string, pid: int>>"
_TOGETHER: Final = f"eid string, eids array<string>, reply string, error string, {EFFECTS} {_ROWS}"
_TOGETHER_ARROW: Final = pa.schema(
    [
        ("eid", pa.string()),
        ("eids", pa.list_(pa.string())),
        ("reply", pa.string()),
        ("error", pa.string()),
        (
            EFFECTS,
            pa.list_(
                pa.struct(
                    [
                        ("key", pa.string()),
                        ("rid", pa.string()),
                        ("eid", pa.string()),
                        ("pid", pa.int32()),
                    ]
                )
            ),
        ),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A batch function, and the settings of its server beside those of all."""

    batch: Callable[[DataFrame], DataFrame]
    settings: Mapping[str, Any]


def each(requests: DataFrame) -> DataFrame:
    """Answers each order by itself."""
    orders = requests.selectExpr("eid", "rid", "request.kind as kind", "0 as number")
    return orders.selectExpr("eid", _REPLY, _TOLD, _EFFECT)


# --- a state ------------------------------------------------------------------------------------


def numbered(requests: DataFrame) -> DataFrame:
    """Numbers the orders that do not fail, from 1 on, by a state: the ledger has the number."""
    orders = requests.selectExpr("eid", "rid", "request.kind as kind", "request.key as key")
    answers = orders.groupBy("key").applyInPandasWithState(
        _number,
        "eid string, rid string, kind string, number int",
        "last int",
        "append",
        "NoTimeout",
    )
    return answers.selectExpr("eid", _REPLY, _TOLD, _EFFECT)


def _number(_: tuple[str], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    last = state.get[0] if state.exists else 0
    for frame in frames:
        is_counted = frame["kind"] != "fail"
        numbers = last + is_counted.cumsum()
        last = int(numbers.iloc[-1])
        yield frame.assign(number=numbers.where(is_counted, 0).astype("int32"))[
            ["eid", "rid", "kind", "number"]
        ]
    state.update((last,))


# --- rows of several requests -------------------------------------------------------------------


def together(requests: DataFrame) -> DataFrame:
    """Answers each order, and makes the rows of all that do not fail in one row of all of them."""
    orders = requests.selectExpr("eid", "rid", "request.kind as kind", "request.key as key")
    return orders.groupBy("key").applyInArrow(_all_of, _TOGETHER)


def _all_of(orders: pa.Table) -> pa.Table:
    rows: list[dict[str, Any]] = []
    effects: list[dict[str, Any]] = []
    for order in orders.to_pylist():
        eid, rid = order["eid"], order["rid"]
        error = "told to fail" if order["kind"] == "fail" else None
        rows.append({"eid": eid, "reply": f'{{"rid":"{rid}","pid":0}}', "error": error})
        if error is None:
            effects.append({"key": rid, "rid": rid, "eid": eid, "pid": 0})
    if effects:
        rows.append({"eids": [one["eid"] for one in effects], EFFECTS: effects})
    return pa.Table.from_pylist(rows, schema=_TOGETHER_ARROW)


EACH: Final = "each"
STATE: Final = "a state"
SEVERAL: Final = "several requests"
FORMS: Final = {
    EACH: Form(batch=each, settings={}),
    STATE: Form(batch=numbered, settings={"stateful": True, "hold_s": 60.0}),
    SEVERAL: Form(batch=together, settings={}),
}
