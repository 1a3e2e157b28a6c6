"""The Ops of the archive: what may be read, the manifest of files, and what may then be removed.

Pure values; performed by `engine.perform.spark_driver`, each as one transaction. All that change
something, but for `ArchiveBegin`, name the epoch of a run, and raise Fenced once a newer run has
begun. Source: spec P4, Q17.

A record is a row of history or of the attempts, by its number. Rows are numbered in the order in
which they were written; those from before there was an archive have number 1.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

from onceq.model.ops.base import Integer, Oid, Op


class Kind(enum.StrEnum):
    """What is archived: a row for each request that has ended, and one for each abort."""

    HISTORY = "history"
    ATTEMPT = "attempt"


ENDED: Final = {Kind.HISTORY: "finished_at", Kind.ATTEMPT: "ended_at"}
"""The column with the time of the end."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    """Returns a point in time in the manifest's form: microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePosition:
    """How far an archive is. archived: the last record in files. begun_at: by the database's clock.

    epoch: of the run.
    """

    epoch: int
    archived: int
    begun_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file of the manifest. path: below the root. day: on which all that is in it ended, in UTC.

    first_us, last_us: its first and last end, in microseconds since 1970. sha256: of the file, in
    hex. since, until: of its folder's records. is_trimmed: the tables no longer hold any of its
    rows. run: the folder. The last four are known only for files in the manifest.
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


class ArchiveBegin(
    Op[ArchivePosition], changes="a run of the archive begins, and fences the one before"
):
    """Begins a run, and fences the previous one. IllegalState (other root): nothing happened.

    root: None leaves it as it is, for a run that only trims.
    """

    root: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """until: the last record up to which none is still to come. is_new: this call moved it."""

    until: int
    is_new: bool


class ArchiveSettle(Op[Settled], changes="it is noted up to where no record is still to come"):
    """Determines how far the records are settled, and begins to look for more.

    What was written before a call is settled in a later one, once all transactions that were under
    way have ended.
    """

    epoch: int


class ArchivePlan(Op[bool], changes="a folder of files is noted, and not yet written"):
    """Notes a folder of files before it is written: `run=RUN` below the root and a kind."""

    epoch: int
    run: UUID


class ArchiveDead(Op[list[UUID]]):
    """The folders that no commit can make part of the archive any more: those of runs that died.

    Also those of runs that an earlier run replaced, at least a day ago: whoever had already read
    the manifest may still read their files until then.
    """

    epoch: int


class ArchiveCommit(Op[int], changes="files go into the manifest, and the position moves"):
    """Puts the files of a run into the manifest, and moves the position from `since` to `until`.

    IllegalState (it is elsewhere, or `until` is not settled): nothing happened.
    """

    epoch: int
    since: int
    until: int
    run: UUID
    files: list[dict[str, object]]


class ArchiveReplace(
    Op[int], changes="files take the place of others in the manifest, which hold the same rows"
):
    """Puts the files of a run into the manifest, in place of those of other runs.

    A new file counts as trimmed if all the files of its kind and day that it replaces do.
    IllegalState (the rows are not the same by kind, day, count, first and last end): nothing
    happened.
    """

    epoch: int
    replaced: list[UUID]
    run: UUID
    files: list[dict[str, object]]


class ArchiveCount(Op[int]):
    """How many rows of a kind the tables hold, of the records after `since`, up to `until`."""

    kind: Kind
    since: int
    until: int


class ArchiveTables(Op[list[tuple[int, int]]]):
    """The tables that hold rows of a kind: (oid, pages)."""

    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class DueDay:
    """How many rows of a day, in UTC, may be removed, and how many once they are in files."""

    day: date
    archived: int
    unarchived: int


class ArchiveDue(Op[list[DueDay]]):
    """Rows on some pages that ended before a time and may be removed, by day.

    The history of a request stays as long as it, or its reply, is in a queue, and as long as a
    client's registration names it. Its aborts stay as long as it is in a queue itself.
    """

    kind: Kind
    before: datetime
    table: Oid
    page: int
    pages: Integer


class ArchiveOwners(Op[list[int]]):
    """The registrants with history that ended before a time, and none of whose may go yet."""

    before: datetime


class ArchiveSpend(Op[bool], changes="history of a registrant may be trimmed from now on"):
    """Lets history of a registrant be trimmed: its sends look from now on for what was (finding 3).

    False: for `timeout_s` a transaction of its client was open, so its history stays for now.
    """

    registrant_id: Integer
    timeout_s: float


class ArchiveTrim(Op[int], changes="rows that are in files are removed"):
    """Removes, from some pages, what may be removed and ended on these days; returns how many.

    History of a registrant goes only after an `ArchiveSpend`. Its rids stay: sent again, each is
    answered as done, or refused. unarchived: also what is in no file.
    """

    epoch: int
    kind: Kind
    before: datetime
    days: list[date]
    unarchived: bool = False
    table: Oid
    page: int
    pages: Integer


class ArchiveTrimmed(Op[int], changes="it is noted of which files no row is left in the tables"):
    """Notes the files of which the tables hold nothing any more after a trim; returns how many."""

    epoch: int
    before: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Where an archive is, at one moment. root: None if there is none. files: by day.

    All records up to `archived` are in files; the tables may still hold them.
    """

    root: str | None
    archived: int
    files: list[ArchivedFile]


class ArchiveManifest(Op[Manifest]):
    """The files of the archive; of one kind, or of all."""

    kind: Kind | None = None


class ArchiveRestore(
    Op[int], changes="rows of a file are put back into the tables, and not yet committed"
):
    """Puts back the rows of a file that the tables do not hold; returns how many.

    Performed by `SparkDriver.restore`, in a transaction that has the file's rows. IllegalState
    (the file is not in the manifest, or names a queue or registrant that is not here).
    """

    epoch: int
    path: str


class ArchiveRedriven(Op[dict[UUID, str]]):
    """The rids under which the failed requests with these eids were run again, by eid."""

    eids: list[UUID]
