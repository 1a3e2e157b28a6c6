"""The pipelines: what Spark does with requests that have ended, and for clients that come back."""

from onceq.spark.pipelines.archiving import Archived, archive
from onceq.spark.pipelines.audit_page import audit_page
from onceq.spark.pipelines.auditing import Audited, Known, audit, audit_files
from onceq.spark.pipelines.delta import AddedToDelta, add_to_delta
from onceq.spark.pipelines.facts import Span
from onceq.spark.pipelines.incidents import Incident
from onceq.spark.pipelines.records import archived_files, records
from onceq.spark.pipelines.recovering import Recovered, recovery
from onceq.spark.pipelines.reporting import Reported, report
from onceq.spark.pipelines.restoring import Restored, restore
from onceq.spark.pipelines.unsent import unsent

__all__ = [
    "AddedToDelta",
    "Archived",
    "Audited",
    "Incident",
    "Known",
    "Recovered",
    "Reported",
    "Restored",
    "Span",
    "add_to_delta",
    "archive",
    "archived_files",
    "audit",
    "audit_files",
    "audit_page",
    "records",
    "recovery",
    "report",
    "restore",
    "unsent",
]
