"""A file of the archive that is missing, shortened or another is named; nobody reads over it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

import onceq
from onceq import errors
from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.model.archive_ops import ArchiveManifest
from onceq.spark.pipelines import archive, audit, records, report
from tests.spark.test_archive import WORDS, end_some

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)


def shorten(path: Path) -> None:
    """Leave a whole Parquet file, with one row less."""
    parquet.write_table(parquet.ParquetFile(path).read().slice(1), path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def trade(path: Path) -> None:
    """Put bytes of the same number in its place."""
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.fixture
def archived(
    spark: SparkSession, onceq_url: str, qm: onceq.QueueManager, tmp_path: Path
) -> tuple[Route, Path]:
    qm.declare(WORDS)
    end_some(qm, "one", "two", "three")
    route = Route(url="", conninfo=onceq_url, repository=qm.repository)
    archive(tmp_path / "archive", onceq_url, repository=qm.repository, spark=spark)
    with spark_driver(route) as driver:
        (one,) = driver.perform(ArchiveManifest()).files
    return route, tmp_path / "archive" / one.path


def read_records(spark: SparkSession, route: Route) -> None:
    with records(spark, url=route.conninfo, repository=route.repository) as found:
        found.collect()


def run_audit(spark: SparkSession, route: Route) -> None:
    audit(route.conninfo, repository=route.repository, spark=spark)


def run_report(spark: SparkSession, route: Route) -> None:
    with tempfile.TemporaryDirectory() as out:
        report(out, route.conninfo, repository=route.repository, spark=spark)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (Path.unlink, "cannot be read"),
        (cut, "bytes, not"),
        (shorten, "bytes, not"),
        (trade, "cannot be read"),
    ],
)
@pytest.mark.parametrize("read", [read_records, run_audit, run_report])
def test_a_file_that_is_not_what_was_archived_is_named(
    spark: SparkSession,
    archived: tuple[Route, Path],
    harm: Callable[[Path], None],
    says: str,
    read: Callable[[Any, Route], None],
) -> None:
    route, path = archived
    read(spark, route)
    harm(path)
    with pytest.raises(errors.FileMismatch, match=f"{path.name}.* {says}"):
        read(spark, route)
