"""Restoring: what was archived and trimmed goes back into PostgreSQL as it was, for some days.

Public through `onceq.spark.pipelines`. Needs no Spark session: files are read here one at a time,
and each is put back in one transaction, which also compares each row. It is a run of the archive:
it fences the previous one, and the next one fences it. Source: spec P4, C10.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from onceq.engine.perform.spark_driver import SparkDriver, spark_driver
from onceq.errors import FileMismatch, IllegalState, InvalidValue
from onceq.model.archive_ops import (
    ArchiveBegin,
    ArchivedFile,
    ArchiveManifest,
    ArchiveRestore,
    Kind,
)
from onceq.spark.archive.files import OF_KIND, check_file
from onceq.spark.arrow import pa
from onceq.spark.given.route import reach_route

SO: Final = "nothing of it is restored"
ROWS_AT_ONCE: Final = 250
"""Rows of a file read at a time: each may have a body and a reply of megabytes."""
SHAPE: Final = "select {columns} from {source}"
WRONG: Final = """
select count(*) from pg_temp.restoring s where 1 <> (
    select count(*) from {source} where {alias}.eid = s.eid::uuid and {digest} = s.digest
)
"""
"""A query for how many rows, by all that is in them, are not in the tables exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was put back. files: those read; rows: those that had been trimmed, by kind."""

    files: int
    rows: dict[str, int]


def restore(
    url: str | None = None, *, since: date, until: date, repository: str = "onceq"
) -> Restored:
    """Puts back into PostgreSQL what ended from the day `since` to the day before `until`, in UTC.

    Rows that are still there stay. Each comes back with its number, so it is not archived
    again; the next run that trims removes it again if it is too old. A row goes to the
    registrant of its name, and to the queue that had its name then. Raises IllegalState (there is
    no archive; a row names a queue or registrant that is not here), FileMismatch (a file is not
    what was archived), EnvironmentFault (a row is not as it was), Fenced (a newer run has begun),
    CannotConnect, ConnectionLost, InDoubt: the files before are restored, and it may be repeated.
    """
    if since >= until:
        raise InvalidValue(f"from {since} to before {until} there is no day")
    with reach_route(url, repository, local=True) as route, spark_driver(route) as driver:
        root = driver.perform(ArchiveManifest()).root
        if root is None:
            raise IllegalState(f"nothing of repository {repository!r} was ever archived")
        epoch = driver.perform(ArchiveBegin(root=root)).epoch
        files = driver.perform(ArchiveManifest()).files
        due = [one for one in files if since <= one.day < until]
        rows = dict.fromkeys((kind.value for kind in Kind), 0)
        for one in due:
            rows[one.kind.value] += _restore_file(driver, epoch, Path(root), one)
    return Restored(files=len(due), rows=rows)


def _restore_file(driver: SparkDriver, epoch: int, root: Path, file: ArchivedFile) -> int:
    relation = OF_KIND[file.kind]
    columns = ", ".join(f"{one.by} as {one.name}" for one in relation.columns)
    return driver.restore(
        ArchiveRestore(epoch=epoch, path=file.path),
        SHAPE.format(columns=columns, source=relation.source),
        WRONG.format(
            source=relation.source,
            alias=relation.table.split()[1],
            digest=relation.columns[-1].by,
        ),
        rows_of(root / file.path, file, [one.name for one in relation.columns]),
    )


def rows_of(path: Path, file: ArchivedFile, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a file. Raises FileMismatch if it is not what the manifest says."""
    parquet: Any = importlib.import_module("pyarrow.parquet")
    check_file(path, file, SO)
    try:
        with parquet.ParquetFile(path) as opened:
            for batch in opened.iter_batches(ROWS_AT_ONCE):
                yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    except (OSError, pa.ArrowException) as error:
        raise FileMismatch(f"{path} cannot be read: {SO}: {error}") from error
