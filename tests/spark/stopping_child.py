"""A driver whose session is stopped while a server has it. Arguments: URL, repository, faults.

Prints what `run` raises, for each of three ways to stop it.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.errors import OnceqError
from onceq.spark.session import build_session
from tests.parts import wait_until
from tests.spark.faulty_source import book
from tests.spark.serving import make_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def before(spark: SparkSession) -> dict[str, Any]:
    """Stop it before it is given."""
    spark.stop()
    return {}


def within(_: SparkSession) -> dict[str, Any]:
    """Stop it in the batch function."""

    def batch(requests: DataFrame) -> DataFrame:
        requests.sparkSession.stop()
        return book(requests)

    return {"batch": batch}


def beside(spark: SparkSession) -> dict[str, Any]:
    """Stop it in another thread, once the query runs."""

    def stop() -> None:
        wait_until(lambda: bool(spark.streams.active), 150.0)
        spark.stop()

    threading.Thread(target=stop).start()
    return {}


def main() -> None:
    url, repository, faults = sys.argv[1:]
    for way in (before, within, beside):
        spark = build_session("stopped", master="local[1]")
        server = make_server(repository, Path(faults), **way(spark))
        try:
            server.run(url, repository=repository, spark=spark)
        except OnceqError as error:
            sys.stdout.write(f"{way.__name__}: {type(error).__name__}: {error}\n")


if __name__ == "__main__":
    main()
