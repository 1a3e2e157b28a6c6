"""Parquet made from collected replies, once all of them are there.

Parquet files cannot grow: replies are first collected as JSON Lines, and become a Parquet file,
under its own name at once and complete, at the end. Used by `collect`.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from onceq.engine.faultpoints import faultpoint
from onceq.files.disk import DISK
from onceq.files.replies import columns

ROWS_AT_ONCE: Final = 10_000


def convert(rows: Path, out: Path, fields: tuple[str, ...]) -> None:
    """Makes `out` from the collected rows, complete and durable, and then removes them.

    All columns except `attempts` are texts. If it is killed, it is done again from the rows.
    """
    pa: Any = importlib.import_module("pyarrow")  # an extra, and without types
    parquet: Any = importlib.import_module("pyarrow.parquet")
    kinds: dict[str, Any] = {"attempts": pa.int32()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns(fields)])
    growing = out.with_name(f".{out.name}.growing")
    with rows.open("rb") as lines, growing.open("wb") as file:
        with parquet.ParquetWriter(file, schema) as writer:
            for batch in _batches(lines):
                writer.write_table(pa.Table.from_pylist(batch, schema))
        file.flush()
        os.fsync(file.fileno())
    faultpoint("parquet.written")
    growing.replace(out)
    DISK.sync_directory(out.parent)
    faultpoint("parquet.named")
    rows.unlink()


def _batches(lines: Iterator[bytes]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(lines, ROWS_AT_ONCE)):
        yield [msgspec.json.decode(line) for line in batch]
