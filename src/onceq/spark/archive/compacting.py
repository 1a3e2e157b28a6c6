"""Compaction: the files of many small runs of an archive become those of one run, one file a day.

Used by `onceq.spark.archive.archiving`, within a run and under its epoch. The rows stay as they
are: the old files are compared with the manifest, the new ones are read again, and the new replace
the old in one transaction. The old ones stay for a day, for those who are reading them. Source:
spec P4.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import msgspec
from pyspark.sql import functions as sf

from onceq.engine.faultpoints import faultpoint
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.errors import EnvironmentFault
from onceq.model.archive_ops import (
    ENDED,
    ArchivedFile,
    ArchiveManifest,
    ArchivePlan,
    ArchiveReplace,
    Kind,
)
from onceq.spark.archive.files import read_files, rehash, write_files
from onceq.spark.read.relations import DIGEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTES: Final = 128 << 20
"""The most bytes of the run that small runs are joined into."""


def compact(
    session: SparkSession, root: Path, driver: SparkDriver, epoch: int, *, least: int
) -> int:
    """Joins small runs, at least this many at a time; returns how many there were.

    If this dies, nothing is changed but what it had committed. Raises FileMismatch (a file is not
    what was archived), EnvironmentFault (what was written is not what was read), Fenced.
    """
    files = driver.perform(ArchiveManifest()).files
    found = small_neighbours(files, least)
    for replaced in found:
        run = uuid4()
        driver.perform(ArchivePlan(epoch=epoch, run=run))
        old = [one for one in files if one.run in replaced]
        new = _put_together(session, root, old, run)
        faultpoint("archive.compacted")
        driver.perform(
            ArchiveReplace(
                epoch=epoch,
                replaced=replaced,
                run=run,
                files=[msgspec.to_builtins(one) for one in new],
            )
        )
    return sum(len(one) for one in found)


def small_neighbours(files: Iterable[ArchivedFile], least: int) -> list[list[UUID]]:
    """Returns which runs to join: in the order of their records, up to BYTES.

    Fewer than `least` are left for a later run, so that no row is rewritten again and again.
    """
    sizes: dict[UUID, int] = {}
    for one in sorted(files, key=lambda one: one.since):
        if one.run is not None:
            sizes[one.run] = sizes.get(one.run, 0) + one.bytes
    found: list[list[UUID]] = [[]]
    room = BYTES
    for run, size in sizes.items():
        if size > room:
            found.append([])
            room = BYTES
        found[-1].append(run)
        room -= size
    return [one for one in found if len(one) >= least]


def _put_together(
    session: SparkSession, root: Path, old: list[ArchivedFile], run: UUID
) -> list[ArchivedFile]:
    """Writes the rows of files anew, and compares the result."""
    rehash(session, root, old, "nothing is put together")
    new: list[ArchivedFile] = []
    for kind in Kind:
        parts = [one for one in old if one.kind is kind]
        if not parts:
            continue
        rows = read_files(session, root, kind, parts)
        written = write_files(rows.repartition(sf.to_date(ENDED[kind])), root, kind, run)
        there, here = _held(rows), _held(read_files(session, root, kind, written))
        if there != here:
            raise EnvironmentFault(
                f"{here} of {kind.value} (rows, digests) were written, and {there} read: "
                "nothing is put together"
            )
        new += written
    return new


def _held(rows: DataFrame) -> tuple[Any, Any]:
    """Returns how many rows there are, and the sum of their digests."""
    digests = sf.sum(sf.col(DIGEST).cast("decimal(20)"))
    spark: Any = rows  # its types are partial
    ((count, total),) = spark.agg(sf.count("*"), digests).collect()
    return count, total
