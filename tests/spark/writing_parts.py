"""What the tests of bulk enqueue share: rows, the writing of them, and what is then there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onceq
from onceq.spark import writing
from onceq.spark.source import OnceqDataSource
from proof.harness.ledger import ask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = onceq.Queue("orders", dict[str, int], dict[str, int], abort_limit=1, keep_body=True)
CLIENT = "warehouse"
CHILD_ROWS = 10_000
PLACES = """
select rid, count(*) from (
    select rid, registrant_id from {r}.element where role <> 'reply'
    union all select rid, registrant_id from {r}.history) x
group by rid
"""


def orders(spark: SparkSession, count: int) -> DataFrame:
    """Returns so many orders, the same each time, in four partitions."""
    return spark.range(0, count, 1, 4).selectExpr(
        "concat('order-', id) as rid", "to_json(named_struct('cents', id)) as body"
    )


def enqueue(
    rows: DataFrame, url: str, repository: str, registrant: str | None = CLIENT, **how: Any
) -> None:
    """Enqueues rows."""
    rows.sparkSession.dataSource.register(OnceqDataSource)
    with writing(ORDERS, url, registrant=registrant, repository=repository) as options:
        rows.write.format("onceq").options(**{**options, **how}).mode("append").save()


def places(url: str, repository: str) -> dict[str, int]:
    """Returns in how many places each rid is that was enqueued: queued, held or ended."""
    return dict(ask(url, PLACES.format(r=repository)))
