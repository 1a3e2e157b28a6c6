"""Keeps the classes that Spark's Java loads in a file: others begin with it in half the time.

`python -m tests.spark.java_classes FILE`; `make test` does it once. It is Java's sharing of class
data: a Java that does not fit the file begins without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

CLASSES = Path(__file__).resolve().parents[2] / ".venv/spark-classes.jsa"
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the many Javas that live for seconds here: one compiler, one thread to collect garbage."""
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
LIMIT_S = 600.0


def sharing(file: Path) -> str:
    """Return Java's options for the tests: with the file, if it is there."""
    return f'{OPTIONS} "-XX:SharedArchiveFile={file}" {QUIET}' if file.exists() else OPTIONS


def main(file: Path) -> None:
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    os.environ["JDK_JAVA_OPTIONS"] = f'{OPTIONS} "-XX:ArchiveClassesAtExit={unfinished}" {QUIET}'
    import pyspark  # noqa: PLC0415 # conftest.py, which imports this file, needs none

    # Java 17 uses the file only where the jars' paths in it still exist: not a session's own home.
    os.environ["SPARK_HOME"] = str(Path(str(pyspark.__file__)).parent)
    from onceq.spark import build_session  # noqa: PLC0415 # it must see the environment

    spark: Any = build_session("classes", master="local[2]")
    java = spark.sparkContext._gateway.proc
    with tempfile.TemporaryDirectory() as folder:
        exercise(spark, folder)
    spark.stop()
    java.stdin.close()  # it ends then, and writes the file
    java.wait(LIMIT_S)
    if unfinished.exists():
        unfinished.replace(file)
    else:
        sys.stderr.write("no classes are kept, and the tests take longer\n")


def exercise(spark: Any, folder: str) -> None:
    """Do a little of what the tests do most."""
    rows = spark.range(100).selectExpr("id", "cast(id % 3 as string) as day", "now() as at")
    rows.write.partitionBy("day").parquet(f"{folder}/rows")
    read = spark.read.parquet(f"{folder}/rows")
    counts = read.groupBy("day").count().join(read, "day").orderBy("id")
    counts.mapInArrow(lambda batches: batches, counts.schema).collect()
    rate = spark.readStream.format("rate").load()
    query = rate.writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination(LIMIT_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
