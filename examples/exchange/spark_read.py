"""Reads with Spark what is stable of all topics, and sums the bars.

python -m examples.exchange.spark_read RUN
"""

from __future__ import annotations

import sys
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as sf

from examples.exchange.market import BARS, FEEDS, MOVES, SESSIONS, RunDirectory, Setup
from examples.running.lifeline import hold_lifeline
from onceq.spark.session import build_session
from onceq.spark.streams import OnceqStreamSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BAR = "day string, symbol string, open string, high string, low string, close string, value string"
EXACT = "decimal(38, 14)"
"""No value has more than 14 places; none is lost in a sum."""


def read(spark: SparkSession, setup: Setup, topic: str, session: int) -> DataFrame:
    """Return the stable messages of a stream."""
    return (
        spark.read.format("onceq-stream")
        .option("topic", topic)
        .option("session", hex(session))
        .option("stores", setup.list)
        .load()
    )


def bars(spark: SparkSession, setup: Setup, feed: str) -> DataFrame:
    """Return the bars that a feed has sent."""
    found = read(spark, setup, BARS.name, SESSIONS[feed])
    bar = sf.from_json(sf.col("body").cast("string"), BAR)
    return found.select(
        sf.lit(feed).alias("feed"), "stream", "epoch", "number", bar.alias("bar")
    ).select("feed", "stream", "epoch", "number", "bar.*")


def main(directory: RunDirectory) -> None:
    """Read all, and write what the check compares."""
    setup = directory.read_setup()
    spark = build_session("the exchange")
    spark.dataSource.register(OnceqStreamSource)
    every = reduce(lambda one, other: one.union(other), (bars(spark, setup, f) for f in FEEDS))
    every = every.cache()
    (sums,) = every.select(
        sf.count("*").alias("bars"),
        *(sf.sum(sf.col(name).cast(EXACT)).alias(name) for name in ("close", "value")),
    ).collect()
    kept = every.select("feed", "stream", "epoch", "number", "day", "symbol")
    kept.write.parquet(str(directory.read / "bars"))
    moves = read(spark, setup, MOVES.name, SESSIONS["relay"]).select("number", "body")
    moves.write.parquet(str(directory.read / "moves"))
    told = {name: str(value) for name, value in sums.asDict().items()}
    (directory.read / "sums.json").write_bytes(msgspec.json.encode(told))
    spark.stop()


if __name__ == "__main__":
    hold_lifeline()
    main(RunDirectory(Path(sys.argv[1])))
