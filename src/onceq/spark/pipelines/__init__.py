"""The pipelines: what Spark does with requests that have ended."""

from onceq.spark.pipelines.archiving import Archived, archive
from onceq.spark.pipelines.records import records

__all__ = ["Archived", "archive", "records"]
