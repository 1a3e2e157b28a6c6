"""The data source of onceq, armed: each process that comes to a point is told what to do there.

Imported by name in Spark's Python processes, which live for longer than a trial: what is armed
travels with the options of a query, and not by the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceq.engine import faultpoints
from onceq.spark.given.options import ServingOptions
from onceq.spark.serve.sink import OnceqStreamWriter
from onceq.spark.source import OnceqDataSource, OnceqStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ARMED: Final = "armed"
"""The option that says what is armed, as `arm` takes it."""


class ArmedReader(OnceqStreamReader):
    """A reader whose process is armed whenever it comes to a point."""

    def __init__(self, options: ServingOptions, armed: str) -> None:
        super().__init__(options)
        self.armed = armed

    def at(self, point: str) -> None:
        """Comes to a point of the product."""
        faultpoints.arm(self.armed)
        super().at(point)


class ArmedWriter(OnceqStreamWriter):
    """A writer whose process is armed whenever it comes to a point."""

    def __init__(self, options: ServingOptions, schema: StructType, armed: str) -> None:
        super().__init__(options, schema)
        self.armed = armed

    def at(self, point: str) -> None:
        """Comes to a point of the product."""
        faultpoints.arm(self.armed)
        super().at(point)


class ArmedSource(OnceqDataSource):
    """The stream of requests, and the sink, of a trial."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "onceq-armed"

    def streamReader(self, schema: StructType) -> ArmedReader:  # noqa: N802, ARG002 - Spark's signature
        """The reader of this query."""
        return ArmedReader(ServingOptions.from_spark(self.options), self.options[ARMED])

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001 - Spark's signature
    ) -> ArmedWriter:
        """The writer of a batch."""
        options = ServingOptions.from_spark(self.options)
        return ArmedWriter(options, schema, self.options[ARMED])
