"""pyarrow, in one place: it has no types, so everything from it is Any here, explicitly.

Used by the source and the sink. Importing this loads pyarrow; only they do so.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

RecordBatch: TypeAlias = Any
"""A pyarrow.RecordBatch."""

pa: Any = importlib.import_module("pyarrow")
pc: Any = importlib.import_module("pyarrow.compute")
pcsv: Any = importlib.import_module("pyarrow.csv")
