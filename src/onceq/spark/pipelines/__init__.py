"""The pipelines: what Spark does with requests that have ended."""

from onceq.spark.pipelines.archiving import Archived, archive
from onceq.spark.pipelines.records import records
from onceq.spark.pipelines.reporting import Reported, report
from onceq.spark.pipelines.restoring import Restored, restore

__all__ = ["Archived", "Reported", "Restored", "archive", "records", "report", "restore"]
