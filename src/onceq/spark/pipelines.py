"""The pipelines: what Spark does with requests that have ended, and for clients that come back."""

from onceq.spark.archive.archiving import Archived, archive
from onceq.spark.archive.delta import AddedToDelta, add_to_delta
from onceq.spark.archive.records import archived_files, records
from onceq.spark.archive.restoring import Restored, restore
from onceq.spark.audit.audit_page import audit_page
from onceq.spark.audit.audited import Audited
from onceq.spark.audit.auditing import Known, audit, audit_files
from onceq.spark.recover.recovering import Recovered, recovery
from onceq.spark.recover.unsent import unsent
from onceq.spark.report.facts import Span
from onceq.spark.report.incidents import Incident
from onceq.spark.report.reporting import Reported, report

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
