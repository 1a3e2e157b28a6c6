"""The Ops of the archive: what may be read, the manifest of files, and what may then be removed.

Pure values; performed by `engine.spark_driver`, each one transaction. All that change something
name the epoch of a run, and raise Fenced once a newer run has begun. Source: spec P4, Q17.

A record is a row of history, or of the attempts, by its number: in the order in which they were
written, and 1 for those from before there was an archive.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from onceq.model.ops import Op

if TYPE_CHECKING:
    from datetime import date
    from uuid import UUID


class Kind(enum.StrEnum):
    """What is archived: a row for each request that has ended, and one for each abort."""

    HISTORY = "history"
    ATTEMPT = "attempt"


ENDED: Final = {Kind.HISTORY: "finished_at", Kind.ATTEMPT: "ended_at"}
"""The column that says when."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    """Returns a moment as the manifest has it: microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePosition:
    """How far an archive is. archived: the last record in files. begun_at: as PostgreSQL has it."""

    epoch: int
    archived: int
    begun_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file of the manifest. path: below the root. day: of the end of all that is in it, in UTC.

    first_us, last_us: the ends in it, in microseconds since 1970. sha256: of the file, in hex.
    since, until: of its folder's records. is_trimmed: the tables hold none of its rows any more.
    run: the folder. These are known of what is in the manifest.
    """

    path: str
    kind: Kind
    day: date
    rows: int
    bytes: int
    first_us: int
    last_us: int
    sha256: str
    since: int = 0
    until: int = 0
    is_trimmed: bool = False
    run: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBegin(Op["ArchivePosition"]):
    """Begins a run, and fences the one before. IllegalState (it has another root): nothing done.

    root: None leaves it, for a run that only trims.
    """

    root: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """until: the last record of which no earlier one is still to come. is_new: since this call."""

    until: int
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettle(Op["Settled"]):
    """Looks how far the records are settled, and begins to look for more.

    What was written before a call is settled for a later one, when all transactions that were under
    way have ended.
    """

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan(Op["bool"]):
    """Notes a folder of files before it is written: `run=RUN` below the root and a kind."""

    epoch: int
    run: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDead(Op["list[UUID]"]):
    """The folders that no commit can make part of the archive any more: those of runs that died.

    And those of runs that were replaced by an earlier run than this, at least a day ago: who read
    the manifest before that may still read their files.
    """

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveCommit(Op["int"]):
    """Puts the files of a run into the manifest, and moves the position from `since` to `until`.

    IllegalState (it stands elsewhere, or `until` is not settled): nothing happened.
    """

    epoch: int
    since: int
    until: int
    run: UUID
    files: list[dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReplace(Op["int"]):
    """Puts the files of a run into the manifest in the place of those of other runs.

    A new file counts as trimmed where all of its kind and day do that it replaces. IllegalState
    (the rows are not the same by kind, day, count, first and last end): nothing happened.
    """

    epoch: int
    replaced: list[UUID]
    run: UUID
    files: list[dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveCount(Op["int"]):
    """How many rows of a kind the tables hold, of the records after `since`, to `until`."""

    kind: Kind
    since: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveTables(Op["list[tuple[int, int]]"]):
    """The tables that hold rows of a kind: (oid, pages)."""

    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class DueDay:
    """How many rows of a day, in UTC, may be removed, and how many once they are in files."""

    day: date
    archived: int
    unarchived: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDue(Op["list[DueDay]"]):
    """What some pages hold that ended before a time, and may be removed, by day.

    What is said of a request stays for as long as its reply, or itself, is in a queue, and for as
    long as a client's registration names it.
    """

    kind: Kind
    before: datetime
    table: int
    page: int
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveTrim(Op["int"]):
    """Removes what may be removed and ended on one of these days, from some pages; how many.

    unarchived: what is in no file, too.
    """

    epoch: int
    kind: Kind
    before: datetime
    days: list[date]
    unarchived: bool = False
    table: int
    page: int
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveTrimmed(Op["int"]):
    """Notes the files of which nothing is left in the tables, now that it was trimmed; how many."""

    epoch: int
    before: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Where an archive is, as of one moment. root: None, where there is none. files: by day.

    All records up to `archived` are in files; the tables may still hold them.
    """

    root: str | None
    archived: int
    files: list[ArchivedFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveManifest(Op["Manifest"]):
    """The files of the archive; of a kind, or of each."""

    kind: Kind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRestore(Op["int"]):
    """Puts those rows of a file back into the tables that they do not hold; how many.

    Performed by `SparkDriver.restoring`, in a transaction that has the file's rows. IllegalState
    (the file is not in the manifest, or names a queue or registrant that is not here).
    """

    epoch: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRedriven(Op["dict[UUID, str]"]):
    """As which requests those were run again that failed with these eids: eid to the new rid."""

    eids: list[UUID]
