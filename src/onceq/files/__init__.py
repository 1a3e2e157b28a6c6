"""Bulk: submit a file of requests, collect the replies into a file (spec C11).

Both may be killed at any moment and run again: nothing is lost, nothing is doubled.
"""

from onceq.files.collect import CollectOrder, CollectSummary, collect
from onceq.files.submit import SubmitOrder, SubmitSummary, submit

__all__ = [
    "CollectOrder",
    "CollectSummary",
    "SubmitOrder",
    "SubmitSummary",
    "collect",
    "submit",
]
