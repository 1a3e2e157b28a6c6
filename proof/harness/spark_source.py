"""The data source of onceq, whose processes do something wherever they come to a point of theirs.

Spark imports it by name in processes that live for longer than a trial, so what they are to do
travels with the options of a query, and not by the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onceq.spark.given.options import ServingOptions
from onceq.spark.serve.sink import OnceqStreamWriter
from onceq.spark.source import OnceqDataSource, OnceqStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class PointedReader(OnceqStreamReader):
    """A reader that does something at each point. told: what, by the option of its source."""

    told = ""

    def reach(self, point: str) -> None:
        """Does it."""

    def at(self, point: str) -> None:
        """Comes to a point of the product."""
        self.reach(point)
        super().at(point)


class PointedWriter(OnceqStreamWriter):
    """A writer that does something at each point. told: what, by the option of its source."""

    told = ""

    def reach(self, point: str) -> None:
        """Does it."""

    def at(self, point: str) -> None:
        """Comes to a point of the product."""
        self.reach(point)
        super().at(point)


class PointedSource(OnceqDataSource):
    """The stream of requests, and the sink. option: the one that says what is to be done."""

    option: ClassVar[str] = ""
    reads: ClassVar[type[PointedReader]] = PointedReader
    writes: ClassVar[type[PointedWriter]] = PointedWriter

    def streamReader(self, schema: StructType) -> PointedReader:  # noqa: N802, ARG002 - Spark's signature
        """The reader of this query."""
        made = self.reads(ServingOptions.from_spark(self.options))
        made.told = self.options[self.option]
        return made

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001 - Spark's signature
    ) -> PointedWriter:
        """The writer of a batch."""
        made = self.writes(ServingOptions.from_spark(self.options), schema)
        made.told = self.options[self.option]
        return made
