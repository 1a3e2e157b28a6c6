"""pyarrow, in one place: it has no types, so everything of it is Any here, and said to be.

Used by the source and the sink. Loads pyarrow when it is imported, which only they do.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

__all__ = ["RecordBatch", "pa", "pc", "pcsv"]

RecordBatch: TypeAlias = Any
"""A pyarrow.RecordBatch."""

pa: Any = importlib.import_module("pyarrow")
pc: Any = importlib.import_module("pyarrow.compute")
pcsv: Any = importlib.import_module("pyarrow.csv")
