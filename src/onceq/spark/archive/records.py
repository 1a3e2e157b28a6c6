"""All that has ended, as a table: what the archive's files hold, and what else PostgreSQL holds.

Public through `onceq.spark.pipelines`. A row is in files or after the archive's position, never
both. Never writes. Source: spec P3, P5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.errors import IllegalState
from onceq.model.archive_ops import ArchiveManifest, Kind, Manifest
from onceq.spark.archive.files import read_files, spoken
from onceq.spark.archive.sessions import read_table, reading_session
from onceq.spark.given.route import reach_route

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RELATION: Final = {Kind.HISTORY: "history", Kind.ATTEMPT: "attempts"}


@contextlib.contextmanager
def records(
    session: SparkSession,
    kind: Kind = Kind.HISTORY,
    url: str | None = None,
    *,
    repository: str = "onceq",
    columns: Sequence[str] | None = None,
) -> Generator[DataFrame]:
    """Yields all records of a kind, archived or not, while the block runs.

    columns: those that are read; None: all, bodies and replies too.
    Each once: `records(...).join(rids, "rid")` looks up millions of requests. It misses what an
    archive running at the same time archives and trims: keep rows for longer than a query lasts.
    Sets what `onceq.spark.session.REQUIRED_SETTINGS` says. Raises InvalidValue, CannotConnect,
    SchemaMissing, FileMismatch (a file of the archive is missing, or not what was archived).
    """
    with reading_session(session, url, repository) as route:
        with spark_driver(route) as driver:
            manifest = driver.perform(ArchiveManifest(kind=kind))
        yield all_records(session, route, manifest, kind, columns=columns)


def archived_files(
    kind: Kind = Kind.HISTORY, url: str | None = None, *, repository: str = "onceq"
) -> list[str]:
    """Returns the files with all that is archived of a kind, in Spark's form: read no others.

    For those who read the archive by themselves; what is not archived yet is not in them. Raises
    IllegalState (there is no archive), CannotConnect, SchemaMissing.
    """
    with reach_route(url, repository, local=True) as route, spark_driver(route) as driver:
        manifest = driver.perform(ArchiveManifest(kind=kind))
    if manifest.root is None:
        raise IllegalState(f"nothing of repository {repository!r} was ever archived")
    return [spoken(Path(manifest.root) / one.path) for one in manifest.files]


def all_records(
    session: SparkSession,
    route: Route,
    manifest: Manifest,
    kind: Kind = Kind.HISTORY,
    *,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Returns all records of a kind. manifest: of this kind. columns: None: all."""
    here = read_records(session, route, kind, columns, since=manifest.archived)
    there = read_files(session, Path(manifest.root or ""), kind, manifest.files)
    return there.select(*here.columns).unionByName(here)


def read_records(
    session: SparkSession,
    route: Route,
    kind: Kind,
    columns: Sequence[str] | None = None,
    *,
    since: int,
    until: int | None = None,
) -> DataFrame:
    """Returns the records of a kind that PostgreSQL holds, after `since` and up to `until`."""
    return read_table(session, route, RELATION[kind], columns, since=since, until=until)
