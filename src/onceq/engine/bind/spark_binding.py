"""The bindings of the Ops of the Spark server and of the archive, to be merged by a driver."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from onceq.engine.bind.statement import bind
from onceq.model import archive_ops as archive
from onceq.model import spark_ops as ops
from onceq.model.ops.base import kinds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.engine.bind.decoding import Row
    from onceq.engine.bind.statement import Binding, Special
    from onceq.model.ops import Op


_OF_FILE: Final = tuple(one.name for one in fields(archive.ArchivedFile))


def _archived_file(row: Row) -> archive.ArchivedFile:
    found = dict(zip(_OF_FILE, row, strict=True))
    found["kind"] = archive.Kind(found["kind"])
    return archive.ArchivedFile(**found)


def _manifest(rows: Sequence[Row]) -> archive.Manifest:
    root, archived = rows[0][:2] if rows else (None, 0)
    files = [_archived_file(row[2:]) for row in rows if row[2] is not None]
    return archive.Manifest(root=root, archived=archived, files=files)


SPECIAL: Final[dict[type[Op[Any]], Special]] = {
    archive.ArchiveDue: {"function": "archive_due_days"},
    archive.ArchiveManifest: {
        "columns": "root, archived, "
        + ", ".join(f"(file).{name}" for name in _OF_FILE).replace(
            "(file).sha256", "encode((file).sha256, 'hex')"
        ),
        "decode": _manifest,
    },
    archive.ArchiveRedriven: {"decode": dict},
    ops.SparkAborts: {
        "columns": "record_no, rid, eid, attempt, charge, code, failed, traceback",
    },
    ops.SparkCheckTable: {"function": "spark_try"},
    ops.SparkEnqueue: {"function": "enqueue_each_row"},
}
"""What `bind` is told beside the Op."""

ARCHIVE_BINDINGS: Final[dict[type[Op[Any]], Binding]] = {
    kind: bind(kind, SPECIAL.get(kind, {})) for kind in kinds_of(archive)
}
SPARK_BINDINGS: Final[dict[type[Op[Any]], Binding]] = {
    kind: bind(kind, SPECIAL.get(kind, {})) for kind in kinds_of(ops)
}
