"""Judges what processes recorded, and what stores have at the end: by the history checker."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceq.streams.history import Journal, Report, check_files, kinds, record_kept
from onceq.streams.store.disk_store import DiskStore
from proof.streams_torture import messages

if TYPE_CHECKING:
    from proof.streams_torture.stand import Stand

QUORUM: Final = 2
SHOWN_MAX: Final = 20


@dataclass(slots=True, kw_only=True)
class Judged:
    """What was found. wrong: each in words."""

    report: Report
    wrong: list[str]


def judged(stand: Stand, *, forgot: Iterable[str] = ()) -> Judged:
    """Judge a run whose processes have all ended. forgot: stores that have lost their disks."""
    with Journal(stand.home / "end.events") as journal:
        for name, place in stand.places.items():
            store = DiskStore(place, os.urandom)
            try:
                record_kept(journal, place.name, store, content=messages.sender_of)
            finally:
                store.close()
            if name in forgot:
                journal.record(kinds.Forgot(store=place.name))
        receivers = tuple(role.name for role in stand.receivers)
        journal.record(kinds.Ended(copies=QUORUM, receivers=receivers))
    report = check_files([stand.home])
    return Judged(report=report, wrong=[str(one) for one in report.violations[:SHOWN_MAX]])
