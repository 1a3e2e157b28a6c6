"""Bulk: submit a file of requests, collect the replies into a file (spec C11); trim history (Q17).

Each may be killed at any moment and run again: nothing is lost, nothing is doubled.
"""

from onceq.files.collect import CollectOrder, CollectSummary, collect
from onceq.files.submit import SubmitOrder, SubmitSummary, submit
from onceq.files.trimming import Trimmed, TrimOrder, trim_history

__all__ = [
    "CollectOrder",
    "CollectSummary",
    "SubmitOrder",
    "SubmitSummary",
    "TrimOrder",
    "Trimmed",
    "collect",
    "submit",
    "trim_history",
]
