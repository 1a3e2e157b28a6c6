"""A Spark server that runs nothing, for the test of how `onceq spark serve` runs and stops one."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import msgspec

import onceq
import onceq.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Idle(onceq.spark.Server):
    """Says how it was called, and waits for its stop."""

    stopped = threading.Event()

    def run(
        self, url: str | None = None, *, repository: str = "onceq", once: bool = False, **_: Any
    ) -> None:
        assert url
        said = msgspec.json.encode({"repository": repository, "once": once}).decode()
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
        self.stopped.wait()

    def stop(self) -> None:
        self.stopped.set()


def batch(requests: DataFrame) -> DataFrame:
    """Is never called."""
    return requests


server = Idle(onceq.Queue("orders", bytes, bytes), batch=batch)
