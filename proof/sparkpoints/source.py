"""The data source of a trial: each of its processes is armed whenever it comes to a point."""

from __future__ import annotations

from typing import Final

from onceq.engine import faultpoints
from proof.harness.spark_source import PointedReader, PointedSource, PointedWriter

ARMED: Final = "armed"
"""The option that says what is armed, as `arm` takes it."""


class Armed:
    """What comes to a point."""

    told: str

    def reach(self, point: str) -> None:
        """Arms this process."""
        del point
        faultpoints.arm(self.told)


class ArmedReader(Armed, PointedReader):
    """A reader whose process is armed."""


class ArmedWriter(Armed, PointedWriter):
    """A writer whose process is armed."""


class ArmedSource(PointedSource):
    """The stream of requests, and the sink, of a trial."""

    option = ARMED
    reads = ArmedReader
    writes = ArmedWriter

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "onceq-armed"
