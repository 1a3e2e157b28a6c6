"""The data source of onceq, which fails at a named point: Spark's processes import it by name.

A fault is a file in the directory that the option `faults` names; it strikes once. `POINT` raises,
`POINT.exit` ends the Python process, `POINT.kill` ends the driver with its Java as kill -9 does,
whose pids are in the file `pids`; `POINT.database` ends the processes in that file, and goes on.
`POINT.executor` ends the Java process above this one, which ends this one too. `POINT.pause` waits
until it is killed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pyspark.sql import functions as sf

from onceq.spark.serve.server import Server
from proof.harness.spark_source import PointedReader, PointedSource, PointedWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def strike(directory: str, point: str) -> None:
    """Do what a fault for this point asks for; leave a mark that it was reached."""
    folder = Path(directory)
    for kind in ("", ".exit", ".kill", ".database", ".executor", ".pause"):
        try:
            (folder / f"{point}{kind}").rename(folder / f"{point}{kind}.reached")
        except FileNotFoundError:
            continue
        if kind == "":
            raise RuntimeError(f"planned failure at {point}")
        HERE.get(kind, _go_on)()
        for pid in (folder / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        if kind == ".kill":
            os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """Kill the executor whose Python worker this is, and the worker."""
    java = next(one for one in psutil.Process().parents() if one.name() == "java")
    java.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def exit_at_once() -> None:
    """End this process."""
    os._exit(1)


def _go_on() -> None:
    """What is to be killed is in a file."""


HERE: dict[str, Callable[[], object]] = {
    ".exit": exit_at_once,
    ".pause": signal.pause,
    ".executor": kill_executor,
}
"""What a fault does to the process that comes to it."""


class Faulty:
    told: str

    def reach(self, point: str) -> None:
        strike(self.told, point)


class FaultyReader(Faulty, PointedReader):
    pass


class FaultyWriter(Faulty, PointedWriter):
    pass


class FaultySource(PointedSource):
    option = "faults"
    reads = FaultyReader
    writes = FaultyWriter

    @classmethod
    def name(cls) -> str:
        return "onceq-faulty"

    def streamReader(self, schema: StructType) -> PointedReader:  # noqa: N802 - Spark's
        (Path(self.options["faults"]) / "options").write_text(str(dict(self.options)))
        return super().streamReader(schema)


class FaultyServer(Server):
    """A server on the faulty source. faults: the directory of its faults."""

    data_source = "tests.spark.faulty_source:FaultySource"
    faults = ""

    def source_options(self) -> dict[str, str]:
        return {"faults": self.faults}


def book(requests: DataFrame) -> DataFrame:
    """Answer each order with its cents, book it, and add it up; one of a poisoner fails."""
    order = sf.col("request")
    poison = sf.raise_error(sf.lit("poison")).cast("bigint")
    cents = sf.when(order.customer == "poison", poison).otherwise(order.cents)
    return requests.select(
        "eid",
        sf.struct(cents.alias("number")).alias("reply"),
        sf.when(order.cents < 0, "negative").alias("error"),
        (order.cents < -100).alias("reject"),
        sf.struct("rid", order.customer.alias("customer"), cents.alias("cents")).alias("booked"),
        sf.struct(order.customer.alias("customer"), cents.alias("cents")).alias("totals"),
    )
