"""The bindings of the Spark server's Ops, to be merged with BINDINGS by a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.engine.binding import Binding, call
from onceq.model import spark_ops as ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.engine.binding import Row
    from onceq.model.ops import Op

_WHO = "server_id integer, epoch bigint, "


def _scalar(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def _registration(rows: Sequence[Row]) -> ops.SparkRegistration:
    row = rows[0]
    return ops.SparkRegistration(
        server_id=row[0], epoch=row[1], queue_id=row[2], query_id=row[3], batch_id=row[4]
    )


def _committed(rows: Sequence[Row]) -> ops.SparkCommitted:
    row = rows[0]
    return ops.SparkCommitted(verdict=row[0], done=row[1], failed=row[2], returned=row[3])


SPARK_BINDINGS: dict[type[Op[Any]], Binding] = {
    ops.SparkOpen: call(
        "spark_open",
        "name text, queue text, hold_s double precision, innocent boolean",
        _registration,
    ),
    ops.SparkClaim: call("spark_claim", f"{_WHO} start bigint, n integer, bound bigint", _scalar),
    ops.SparkBound: call("spark_bound", "", _scalar, writes=False),
    ops.SparkPlan: call("spark_plan", f"{_WHO} group bigint", _scalar),
    ops.SparkRead: call(
        "spark_read", "group bigint, first integer, last integer", list, writes=False
    ),
    ops.SparkAttempt: call("spark_attempt", f"{_WHO} query_id text, batch_id bigint", _scalar),
    ops.SparkDiscard: call("spark_discard", "attempts bigint[]", _scalar),
    ops.SparkCommit: call(
        "spark_commit",
        f"{_WHO} query_id text, batch_id bigint, attempts bigint[], rows bigint, tables jsonb,"
        " content_type text",
        _committed,
    ),
    ops.SparkCheckTable: call("spark_statement", "table jsonb", _scalar, writes=False),
    ops.SparkClose: call("spark_close", _WHO, _scalar),
    ops.SparkTakeOver: call(
        "spark_take_over", "server_id integer, grace_s double precision", _scalar
    ),
}
