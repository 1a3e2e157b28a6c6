"""A driver of its own, to be killed: enqueues rows. Arguments: URL, repository, pids."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from onceq.spark.session import build_session
from tests.spark.writing_parts import CHILD_ROWS, enqueue, orders

ROWS_PER_BATCH = 50
"""Of Arrow, and so of a transaction: there are many moments to be killed at."""


def main() -> None:
    url, repository, pids = sys.argv[1:]
    settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH)}
    spark = build_session("child", master="local[2,4]", settings=settings)
    gateway: Any = spark.sparkContext._gateway
    Path(pids).write_text(f"{os.getpid()} {gateway.proc.pid}")
    enqueue(orders(spark, CHILD_ROWS), url, repository)
    spark.stop()


if __name__ == "__main__":
    main()
