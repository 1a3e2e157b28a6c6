"""The sources that a part covers, and their digest: by it a record is told from one that is older.

A part covers what it tries and what it tries it with (`proof/parts.py` says for each). The digest
is of names and contents, so that neither a commit elsewhere nor another clone makes it another.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = frozenset((".py", ".sql", ".toml"))
DIGITS = 16


def files(covers: Iterable[str]) -> list[Path]:
    """Return the sources that these patterns name. Raises ValueError for one that names none."""
    found: set[Path] = set()
    for pattern in covers:
        named = {path for path in ROOT.glob(pattern) if path.suffix in SUFFIXES}
        if not named:
            raise ValueError(f"{pattern} names no source: proof/parts.py is wrong")
        found |= named
    return sorted(found)


def digest(covers: Iterable[str]) -> str:
    """Return the digest of what a part covers, as it is now."""
    made = hashlib.sha256()
    for path in files(covers):
        made.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        made.update(path.read_bytes())
    return made.hexdigest()[:DIGITS]
