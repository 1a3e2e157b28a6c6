"""The files of an archive, read again: made durable, and compared with their digests.

Used when files are added to an archive or merged, and before the rows in them are removed from the
tables; by Spark's executors, and without Spark.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onceq.engine.embedded.directory import sync_directory
from onceq.errors import FileMismatch
from onceq.model.archive_ops import ArchivedFile

CHUNK_BYTES: Final = 1 << 20


def sealed(root: str, path: str) -> dict[str, Any]:
    """Makes a file durable; returns its path, size and digest, "" if it cannot be read."""
    digest = hashlib.sha256()
    whole = Path(root) / path
    try:
        with whole.open("rb") as file:
            os.fsync(file.fileno())
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
            size = file.tell()
        for above in Path(path).parents:
            sync_directory(Path(root) / above)
    except OSError:
        return {"path": path, "bytes": 0, "sha256": ""}
    return {"path": path, "bytes": size, "sha256": digest.hexdigest()}


def check_sealed(root: Path, file: ArchivedFile, found: Mapping[str, Any], so: str) -> None:
    """Raises FileMismatch unless a file is as the manifest says. so: the error's consequence."""
    if found["sha256"] != file.sha256:
        what = "is not what was archived" if found["sha256"] else "cannot be read"
        raise FileMismatch(f"{root / file.path} {what}: {so}")
