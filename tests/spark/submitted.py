"""A server as `spark-submit` runs it: URL, repository, directory of faults and checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from onceq.spark.session import REQUIRED_SETTINGS
from tests.spark.serving import make_server


def main() -> None:
    url, repository, directory = sys.argv[1:]
    builder = SparkSession.Builder()
    for name, value in REQUIRED_SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    server = make_server(repository, Path(directory))
    notes = Path(directory) / "checkpoint"
    server.run(url, repository=repository, spark=spark, checkpoint=notes, once=True)
    sys.stdout.write(f"served on {spark.sparkContext.master}\n")
    spark.stop()


if __name__ == "__main__":
    main()
