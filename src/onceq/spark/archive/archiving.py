"""The archive: ended requests go from PostgreSQL into files by day, each row exactly once.

Public through `onceq.spark.pipelines`. A run reads the records that are settled, writes them,
reads them again, and puts the files into the manifest in the transaction that moves the position.
If a run dies, what it had committed is archived, a million records at a time; a run that was
overtaken is fenced. Only rows in files that were just read again are ever trimmed. Source:
spec P4, Q17.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from onceq.engine.faultpoints import faultpoint
from onceq.engine.perform.spark_driver import Route, SparkDriver, spark_driver
from onceq.errors import EnvironmentFault
from onceq.manager import trimming
from onceq.model.archive_ops import (
    ArchiveBegin,
    ArchiveCommit,
    ArchiveCount,
    ArchiveDead,
    ArchivedFile,
    ArchivePlan,
    ArchiveSettle,
    Kind,
)
from onceq.model.names import check_range
from onceq.spark.archive.compacting import compact as put_together
from onceq.spark.archive.files import check_root, rehash, sweep, write_files
from onceq.spark.archive.records import read_records
from onceq.spark.archive.sessions import own_session
from onceq.spark.given.route import find_route, reach
from onceq.spark.session import build_session, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTLE_EVERY_S: Final = 0.05
SETTLE_WITHIN_S: Final = 10.0
"""How long a run waits for transactions that were under way when it began."""
LOOKS: Final = 2
RECORDS: Final = 1_000_000
"""Records of the archive committed at a time: a run that dies repeats at most this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """What a run did. rows: archived, by kind; trimmed: removed from PostgreSQL, by kind.

    since, until: of the records that it read. compacted: runs that were joined. swept:
    folders removed, of runs that had died, and of those that were joined at least a day ago.
    is_behind: transactions have been open since before this run, and may hold up later rows.
    """

    since: int
    until: int
    rows: dict[str, int]
    files: int
    bytes: int
    trimmed: dict[str, int]
    compacted: int
    swept: int
    is_behind: bool


def archive(
    root: str | Path,
    url: str | None = None,
    *,
    repository: str = "onceq",
    keep_days: int | None = None,
    compact: int | None = None,
    spark: SparkSession | None = None,
) -> Archived:
    """Archives what has ended, and trims what ended more than keep_days ago.

    root: a directory that the driver and the executors see; the same for each run. keep_days: 0 to
    36,500; None: nothing is trimmed. compact: 2 to 10,000: once this many runs in a row
    are small, together at most 128 MB, they are joined into one, with one file a day; None:
    none are. What long-open transactions may still write is archived by a
    later run. Raises IllegalState (another root), Fenced (a newer run has begun), FileMismatch (a
    file is not what was archived), EnvironmentFault (Spark failed, or what was written is not what
    was sent), CannotConnect: what this run had committed is archived, and it may be repeated.
    """
    if keep_days is not None:
        check_range("keep_days", keep_days, 0, 36_500)
    if compact is not None:
        check_range("compact", compact, 2, 10_000)
    root_of_files = check_root(root)
    with reach(url, repository) as located:
        given = spark if spark is not None else build_session("onceq archive")
        with (
            own_session(given, "what it did is not archived") as session,
            find_route(located, repository, local=is_local(session)) as route,
            spark_driver(route) as driver,
        ):
            return _Run(session, route, driver, root_of_files).run(keep_days, compact)


class _Run:
    """One run. root: of the files; its epoch is that of `begun`."""

    def __init__(
        self, session: SparkSession, route: Route, driver: SparkDriver, root: Path
    ) -> None:
        self._session = session
        self._route = route
        self._driver = driver
        self._root = root
        self._begun = driver.perform(ArchiveBegin(root=str(root)))
        self._files: list[ArchivedFile] = []

    def run(self, keep_days: int | None, least: int | None) -> Archived:
        begun = self._begun
        until, is_behind = self._settled()
        for since in range(begun.archived, until, RECORDS):
            self._step(since, min(since + RECORDS, until))
        trimmed: dict[str, int] = {}
        if keep_days is not None:
            trimmed = self._trim(begun.begun_at - timedelta(days=keep_days))
        compacted = 0
        if least is not None:
            compacted = put_together(
                self._session, self._root, self._driver, begun.epoch, least=least
            )
        dead = self._driver.perform(ArchiveDead(epoch=begun.epoch))
        files = self._files
        return Archived(
            since=begun.archived,
            until=until,
            rows={kind.value: sum(f.rows for f in files if f.kind is kind) for kind in Kind},
            files=len(files),
            bytes=sum(one.bytes for one in files),
            trimmed=trimmed,
            compacted=compacted,
            swept=sweep(self._root, dead),
            is_behind=is_behind,
        )

    def _settled(self) -> tuple[int, bool]:
        """Waits until what was there at the beginning is settled, or until it has waited enough.

        The first look may settle what a former run began to look at; the second one settles ours.
        Returns the last record to archive, and whether transactions are still in the way.
        """
        end = time.monotonic() + SETTLE_WITHIN_S
        pause = threading.Event()
        looks = 0
        while True:  # until two looks have had a result, or the time is over
            found = self._driver.perform(ArchiveSettle(epoch=self._begun.epoch))
            looks += found.is_new
            if looks == LOOKS or time.monotonic() >= end:
                return max(self._begun.archived, found.until), looks < LOOKS
            pause.wait(SETTLE_EVERY_S)

    def _step(self, since: int, until: int) -> None:
        """Archives some records. If it dies here, none of them are archived."""
        run = uuid4()
        epoch = self._begun.epoch
        self._driver.perform(ArchivePlan(epoch=epoch, run=run))
        files: list[ArchivedFile] = []
        for kind in Kind:
            there = self._driver.perform(ArchiveCount(kind=kind, since=since, until=until))
            if there:
                rows = read_records(self._session, self._route, kind, since=since, until=until)
                written = write_files(rows, self._root, kind, run)
                _compare(kind, there, sum(one.rows for one in written))
                files += written
        faultpoint("archive.written")
        self._driver.perform(
            ArchiveCommit(
                epoch=epoch,
                since=since,
                until=until,
                run=run,
                files=[msgspec.to_builtins(one) for one in files],
            )
        )
        self._files += files

    def _trim(self, before: datetime) -> dict[str, int]:
        """Reads again the files that hold what is to be trimmed, and trims it."""
        due = self._driver.run(trimming.due(before))
        held = self._driver.run(trimming.holding(due))
        rehash(self._session, self._root, held, "nothing is trimmed")
        return self._driver.run(trimming.remove(self._begun.epoch, due))


def _compare(kind: Kind, there: int, written: int) -> None:
    if written != there:
        raise EnvironmentFault(
            f"{written} rows of {kind.value} were written, and {there} are there: "
            "they are not in the archive"
        )
