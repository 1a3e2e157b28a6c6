"""Delta Lake tables of the archive: each row once, whichever process dies, and without Java.

Public through `onceq.spark.pipelines`. The position in the archive is the version of an
application's transaction, which Delta commits with the rows: the next run adds what is later,
and if two run at once, one fails. Rows are chosen by their number, so it does not matter which
files were joined in between. Source: spec P4.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceq.engine.perform.spark_driver import spark_driver
from onceq.errors import EnvironmentFault, IllegalState, InvalidValue, MissingExtra
from onceq.model.archive_ops import ArchivedFile, ArchiveManifest, Kind, Manifest
from onceq.spark.archive.files import OF_KIND, RUN, check_file, check_root
from onceq.spark.arrow import RecordBatch, pa, schema_of
from onceq.spark.given.route import reach_route

APPLICATION: Final = "onceq"
DAY: Final = "day"
NUMBER: Final = "record_no"
ROWS_AT_ONCE: Final = 1000
"""Rows of a file read at a time: each may have a body and a reply of megabytes."""
SO: Final = "nothing of it is added to a Delta table"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedToDelta:
    """What was added. rows: by kind. until: the last record of the archive at that time."""

    rows: dict[str, int]
    until: int


def require_delta() -> None:
    """Raises MissingExtra if deltalake is not installed."""
    if importlib.util.find_spec("deltalake") is None:
        raise MissingExtra("deltalake is not installed: pip install 'onceq[delta]'")


def add_to_delta(
    tables: str | Path, url: str | None = None, *, repository: str = "onceq"
) -> AddedToDelta:
    """Adds what is archived, and not yet there, to Delta tables: `history` and `attempt`.

    tables: a directory of this machine, for one repository; each table in it is made with its first
    row, and has a partition for each day, in UTC. It adds what one step of the
    archive archived at a time. Raises InvalidValue (the directory is an archive's), MissingExtra,
    IllegalState (there is no archive; a table is another repository's or archive's, or is
    ahead of it), FileMismatch (a file is not what was archived), EnvironmentFault (Delta
    failed, perhaps because another process added at the same time), CannotConnect, SchemaMissing:
    it may be repeated. What deltalake writes is not synced: after a power cut make the tables anew.
    """
    require_delta()
    there = check_root(tables, "the place of Delta tables")
    with reach_route(url, repository, local=True) as route, spark_driver(route) as driver:
        manifest = driver.perform(ArchiveManifest())
    if manifest.root is None:
        raise IllegalState(f"nothing of repository {repository!r} was ever archived")
    root = Path(manifest.root)
    if there in (root, *root.parents) or root in there.parents or any(there.glob(f"*/{RUN}*")):
        raise InvalidValue(f"{there} is the archive's, or holds it: name another directory")
    owner = f"onceq: repository {repository}, archive {root}"
    rows = {kind.value: _Table(there / kind, owner, kind).follow(manifest) for kind in Kind}
    return AddedToDelta(rows=rows, until=manifest.archived)


class _Table:
    """A Delta table. owner: the repository and archive that it was made for."""

    def __init__(self, path: Path, owner: str, kind: Kind) -> None:
        self._delta: Any = importlib.import_module("deltalake")  # an extra
        self._path = str(path)
        self._owner = owner
        self._schema = schema_of(OF_KIND[kind].schema).append(pa.field(DAY, pa.date32()))
        self._kind = kind

    def follow(self, manifest: Manifest) -> int:
        """Adds what later files of its kind hold, step by step; returns how many rows."""
        files = [one for one in manifest.files if one.kind is self._kind]
        added = 0
        while files:
            table = self._opened()
            done = self._position(table, manifest.archived)
            files = [one for one in files if one.until > done]
            until = min((one.until for one in files), default=done)
            step = [one for one in files if one.until == until]
            if step:
                added += self._write(table, Path(manifest.root or ""), step, done)
        return added

    def _opened(self) -> Any:
        """Returns the table as it is now; a write fails if that is no longer its state."""
        table = self._delta.DeltaTable
        try:
            table.create(
                self._path,
                self._schema,
                mode="ignore",
                partition_by=[DAY],
                description=self._owner,
            )
            return table(self._path)
        except (self._delta.exceptions.DeltaError, OSError) as error:
            raise EnvironmentFault(f"{self._path} cannot be opened: {error}") from error

    def _position(self, table: Any, archived: int) -> int:
        """Returns up to which record a table has everything. Raises IllegalState."""
        said = table.metadata().description
        if said != self._owner:
            raise IllegalState(f"{self._path} is a table of {said!r}, and not of {self._owner!r}")
        done: int | None = table.transaction_version(APPLICATION)
        if done is None and table.file_uris():
            raise IllegalState(f"{self._path} has rows, and not which: make the table anew")
        if (done or 0) > archived:
            raise IllegalState(
                f"{self._path} has come to record {done}, and the archive to {archived}: the table "
                "is of a later time"
            )
        return done or 0

    def _write(self, table: Any, root: Path, step: Sequence[ArchivedFile], done: int) -> int:
        """Writes the rows after record `done`, and the new position, in one transaction."""
        for one in step:
            check_file(root / one.path, one, SO)
        until = step[0].until
        rows = _Rows(self._schema, root, step, done)
        moved = self._delta.Transaction(APPLICATION, until)
        properties = self._delta.CommitProperties(app_transactions=[moved])
        fails = self._delta.exceptions
        try:
            self._delta.write_deltalake(
                table,
                rows.reader,
                mode="append",
                schema_mode="merge",
                commit_properties=properties,
            )
        except fails.CommitFailedError as error:
            raise EnvironmentFault(f"{self._path}: another wrote to it: {error}; {SO}") from error
        except (fails.DeltaError, OSError, pa.ArrowException) as error:
            if self._opened().transaction_version(APPLICATION) != until:
                raise EnvironmentFault(f"{self._path}: {error}; {SO}") from error
        return rows.count


class _Rows:
    """The rows of files after a record, as a reader; count: how many were read."""

    def __init__(self, schema: Any, root: Path, files: Sequence[ArchivedFile], done: int) -> None:
        ds: Any = importlib.import_module("pyarrow.dataset")  # without types
        self._read = ds.dataset(
            [str(root / one.path) for one in files],
            schema=schema,
            format="parquet",
            partitioning=ds.partitioning(pa.schema([(DAY, pa.date32())]), flavor="hive"),
            partition_base_dir=str(root),
        ).to_batches(
            filter=ds.field(NUMBER) > done,
            batch_size=ROWS_AT_ONCE,
            batch_readahead=1,
            fragment_readahead=1,
        )
        self.reader = pa.RecordBatchReader.from_batches(schema, self._counted())
        self.count = 0

    def _counted(self) -> Iterator[RecordBatch]:
        for batch in self._read:
            self.count += batch.num_rows
            yield batch
