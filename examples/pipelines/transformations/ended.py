"""Tables of what is archived of the repository at ONCEQ_URL, for Spark Declarative Pipelines.

`spark-pipelines run --spec examples/pipelines/spark-pipeline.yml`; see docs/reports.md. Each update
reads the files that are in the archive's manifest then, and replaces the tables as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import pipelines
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from onceq.spark.pipelines import archived_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPOSITORY = "onceq"
COLUMNS = (
    "rid string, registrant string, queue string, role string, outcome string, aborts int,"
    " code string, enqueued_at timestamp, started_at timestamp, finished_at timestamp"
)


@pipelines.materialized_view
def ended() -> DataFrame:
    """A row for each request and datagram that has ended, and is archived."""
    files = archived_files(repository=REPOSITORY)
    return SparkSession.active().read.schema(COLUMNS).parquet(*files)


@pipelines.materialized_view
def ended_by_hour() -> DataFrame:
    """What ended in each hour, by queue and outcome, and how long it had waited, in seconds."""
    waited = sf.col("started_at").cast("double") - sf.col("enqueued_at").cast("double")
    return (
        SparkSession.active()
        .table("ended")
        .withColumn("waited_s", waited)
        .groupBy(sf.date_trunc("hour", "finished_at").alias("hour"), "queue", "outcome")
        .agg(
            sf.count("*").alias("ended"),
            sf.sum("aborts").alias("aborts"),
            sf.percentile_approx("waited_s", 0.99).alias("waited_p99_s"),
        )
    )
