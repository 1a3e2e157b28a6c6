"""Programs that trim history: old rows that files hold too are removed from the tables, by page.

Run by the archive and by `onceq history trim`. Between `due` and `remove` the caller reads again
the files that hold what is due: nothing is removed if a file is not what was archived. A run that
dies has removed some of it, and may be repeated. Source: spec Q17.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

from onceq.model.archive_ops import (
    ArchivedFile,
    ArchiveDue,
    ArchiveManifest,
    ArchiveOwners,
    ArchiveSpend,
    ArchiveTables,
    ArchiveTrim,
    ArchiveTrimmed,
    Kind,
)
from onceq.model.ops import Program

PAGES: Final = 1000
"""Of a table, read or trimmed in one transaction: 8 MB, besides long values stored elsewhere."""
WAIT_S: Final = 1.0
"""How long a client's transaction is waited for, once in its life; its sends wait behind that."""


def _counts() -> dict[Kind, int]:
    return dict.fromkeys(Kind, 0)


def _days() -> dict[Kind, set[date]]:
    return {kind: set() for kind in Kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What may be removed, by kind: rows that ended before a time; and those not yet in files.

    days: when the rows ended, in UTC; without `unarchived`, only those of rows in files.
    """

    before: datetime
    unarchived: bool = False
    archived: dict[Kind, int] = field(default_factory=_counts)
    others: dict[Kind, int] = field(default_factory=_counts)
    days: dict[Kind, set[date]] = field(default_factory=_days)


def _pages(kind: Kind) -> Program[list[dict[str, Any]]]:
    """Returns some pages of each table of a kind, for a transaction each."""
    tables = yield from ArchiveTables(kind=kind)
    return [
        {"kind": kind, "table": table, "page": page, "pages": PAGES}
        for table, pages in tables
        for page in range(0, pages, PAGES)
    ]


def due(before: datetime, *, unarchived: bool = False) -> Program[Due]:
    """Returns what may be removed; what falls due later belongs to a later run."""
    found = Due(before=before, unarchived=unarchived)
    for kind in Kind:
        for where in (yield from _pages(kind)):
            for one in (yield from ArchiveDue(before=before, **where)):
                found.archived[kind] += one.archived
                found.others[kind] += one.unarchived
                if one.archived or unarchived:
                    found.days[kind].add(one.day)
    return found


def holding(due: Due) -> Program[list[ArchivedFile]]:
    """Returns the files that may hold what is due."""
    every = (yield from ArchiveManifest()).files
    return [one for one in every if not one.is_trimmed and one.day in due.days[one.kind]]


def remove(epoch: int, due: Due) -> Program[dict[str, int]]:
    """Removes what is due, whose files were read again; returns how many rows, by kind. Fenced.

    History of a client of which a transaction stays open stays, if none of its ever went before.
    """
    removed = {kind.value: 0 for kind in Kind}
    for one in (yield from ArchiveOwners(before=due.before)) if due.days[Kind.HISTORY] else ():
        yield from ArchiveSpend(registrant_id=one, timeout_s=WAIT_S)
    for kind, days in due.days.items():
        pages: Sequence[dict[str, Any]] = (yield from _pages(kind)) if days else ()
        for where in pages:
            removed[kind.value] += yield from ArchiveTrim(
                epoch=epoch,
                before=due.before,
                days=sorted(days),
                unarchived=due.unarchived,
                **where,
            )
    yield from ArchiveTrimmed(epoch=epoch, before=due.before)
    return removed
