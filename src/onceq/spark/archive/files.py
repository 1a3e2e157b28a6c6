"""The files of an archive: written by a run, read again, and found only by the manifest.

Used by `onceq.spark.pipelines`. A file belongs to the archive once it is in the manifest; files of
a run that died before that are swept. The root is a directory that the driver and all executors
see under the same path. Source: spec P4.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

from pyspark.sql import functions as sf

from onceq.engine.embedded.directory import sync_directory
from onceq.engine.schema.sealing import check_sealed, sealed
from onceq.errors import EnvironmentFault, FileMismatch, InvalidValue
from onceq.model.archive_ops import ENDED, ArchivedFile, Kind
from onceq.spark.arrow import pa
from onceq.spark.read.relations import ATTEMPTS, DIGEST, HISTORY, Relation, digest_in_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_KIND: Final[dict[Kind, Relation]] = {Kind.HISTORY: HISTORY, Kind.ATTEMPT: ATTEMPTS}
_SORTED: Final = {Kind.HISTORY: ("rid", "registrant"), Kind.ATTEMPT: ("eid",)}
"""The order within a file, so that looking up one row reads a small part of it."""
_PARQUET: Final[Any] = importlib.import_module("pyarrow.parquet")  # without types
_HASHED: Final = "path string, bytes bigint, sha256 string"
RUN: Final = "run="
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_PATTERN: Final = re.compile(r"[][{}*?\\]")


def check_root(root: str | Path, use: str = "the archive") -> Path:
    """Returns the root, which then exists durably. Raises InvalidValue if it is not a directory.

    use: what it is for. When Spark reads paths, some characters are patterns: a root that has them
    is refused.
    """
    if _SCHEME.match(str(root)):
        raise InvalidValue(f"{root}: {use} is a directory that all of Spark's machines see")
    found = Path(os.path.abspath(root))  # noqa: PTH100 # Spark takes ".." out of paths, too
    if strange := _PATTERN.findall(str(found)):
        raise InvalidValue(f"{found} cannot be {use}: {strange[0]!r} is a pattern for Spark")
    made = [one for one in (found, *found.parents) if not one.exists()]
    try:
        found.mkdir(parents=True, exist_ok=True)
        for one in made:
            sync_directory(one.parent)
    except OSError as error:
        raise InvalidValue(f"{found} cannot be {use}: {error}") from error
    return found


def write_files(rows: DataFrame, root: Path, kind: Kind, run: UUID) -> list[ArchivedFile]:
    """Writes rows below the root by the day of their end, reads them again, describes the files.

    Raises EnvironmentFault if what is read is not what PostgreSQL sent.
    """
    folder = _folder(root, kind, run)
    dated = rows.withColumn("day", sf.to_date(ENDED[kind]))
    ordered = dated.sortWithinPartitions("day", *_SORTED[kind])
    ordered.write.partitionBy("day").option("compression", "zstd").parquet(spoken(folder))
    session = rows.sparkSession
    paths = sorted(str(path.relative_to(root)) for path in folder.rglob("*.parquet"))
    if not paths:
        return []
    hashed = {row["path"]: row for row in _hash(session, root, paths)}
    return [_described(row, kind, root, hashed) for row in _read_again(session, folder, kind)]


def _read_again(session: SparkSession, folder: Path, kind: Kind) -> list[Any]:
    """Returns one row for each file, with its contents summed up."""
    relation = OF_KIND[kind]
    wrong = sf.expr(f"not ({DIGEST} <=> {digest_in_spark(relation)})")
    ended = sf.unix_micros(ENDED[kind])
    written = session.read.schema(f"{relation.schema}, day date").parquet(spoken(folder))
    return (
        written.groupBy(sf.col("_metadata.file_path").alias("uri"), "day")
        .agg(
            sf.count("*").alias("rows"),
            sf.count_if(wrong).alias("wrong"),
            sf.min(ended).alias("first"),
            sf.max(ended).alias("last"),
        )
        .collect()
    )


def _described(row: Any, kind: Kind, root: Path, hashed: dict[str, Any]) -> ArchivedFile:
    path = str(Path(unquote(urlsplit(str(row["uri"])).path)).relative_to(root))
    if not hashed[path]["sha256"]:
        raise EnvironmentFault(f"{root / path} was written, and cannot be read: it is not archived")
    if row["wrong"]:
        raise EnvironmentFault(
            f"{root / path}: {row['wrong']} of {row['rows']} rows are not what PostgreSQL sent: "
            "they are not archived"
        )
    return ArchivedFile(
        path=path,
        kind=kind,
        day=row["day"],
        rows=row["rows"],
        bytes=hashed[path]["bytes"],
        first_us=row["first"],
        last_us=row["last"],
        sha256=hashed[path]["sha256"],
    )


def rehash(session: SparkSession, root: Path, files: Sequence[ArchivedFile], so: str) -> None:
    """Reads files again. Raises FileMismatch if one is not what the manifest says.

    so: what follows from that, for the error.
    """
    wanted = {one.path: one for one in files}
    for row in _hash(session, root, sorted(wanted)):
        check_sealed(root, wanted[row["path"]], row, so)


def _hash(session: SparkSession, root: Path, paths: Sequence[str]) -> list[Any]:
    """Returns path, size and digest of files, each then durable; on the executors."""
    if not paths:
        return []
    place = str(root)

    def hashed(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            found = [sealed(place, path) for path in batch.column("path").to_pylist()]
            yield pa.RecordBatch.from_pylist(found)

    spark: Any = session  # its types are partial
    given = spark.createDataFrame([(path,) for path in paths], "path string")
    spread = given.repartition(min(len(paths), spark.sparkContext.defaultParallelism))
    rows: list[Any] = spread.mapInArrow(hashed, _HASHED).collect()
    return rows


def check_file(path: Path, file: ArchivedFile, so: str) -> None:
    """Raises FileMismatch if a file here is not what the manifest says. so: what follows."""
    try:
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise FileMismatch(f"{path} cannot be read: {so}: {error}") from error
    if digest != file.sha256:
        raise FileMismatch(f"{path} is not what was archived: {so}")


def check_shape(root: Path, file: ArchivedFile) -> None:
    """Raises FileMismatch unless a file has the bytes and the rows that the manifest says.

    It reads only the end of the file: `rehash` and `check_file` read all of it.
    """
    path = root / file.path
    try:
        size = path.stat().st_size
        rows = _PARQUET.read_metadata(path).num_rows if size == file.bytes else None
    except (OSError, pa.ArrowException) as error:
        raise FileMismatch(
            f"{path} is in the archive's manifest, and cannot be read: {error}"
        ) from error
    if (size, rows) != (file.bytes, file.rows):
        what = (
            f"{size} bytes, not {file.bytes}" if rows is None else f"{rows} rows, not {file.rows}"
        )
        raise FileMismatch(f"{path} is not what was archived: it has {what}")


def read_files(
    session: SparkSession, root: Path, kind: Kind, files: Iterable[ArchivedFile]
) -> DataFrame:
    """Returns the contents of files of a kind, in the columns of its relation.

    Raises FileMismatch if one does not exist, or does not have the bytes and rows that it had.
    """
    schema = OF_KIND[kind].schema
    wanted = [one for one in files if one.kind is kind]
    for one in wanted:
        check_shape(root, one)
    paths = [spoken(root / one.path) for one in wanted]
    spark: Any = session  # its types are partial
    found: DataFrame = (
        spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
    )
    return found


def sweep(root: Path, dead: Iterable[UUID]) -> int:
    """Removes the folders of runs that died; returns how many there were."""
    folders = [_folder(root, kind, run) for run in dead for kind in Kind]
    left = [folder for folder in folders if folder.exists()]
    for folder in left:
        shutil.rmtree(folder)
    return len(left)


def _folder(root: Path, kind: Kind, run: UUID) -> Path:
    return root / kind / f"{RUN}{run}"


def spoken(path: Path) -> str:
    """Returns a path in a form that Spark takes, whatever its default file system is."""
    return f"file:{path}"
