"""Whether an optional dependency is there: asked before it is first needed.

Used here and by whatever reads and writes files.
"""

from __future__ import annotations

import importlib.util

from onceq.errors import MissingExtra


def require_arrow() -> None:
    """Raises MissingExtra if pyarrow is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtra("Parquet needs pyarrow: pip install 'onceq[files]'")
