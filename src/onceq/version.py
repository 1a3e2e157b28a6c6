"""The version and the level, in the one place that says them.

Anyone may read it; the build reads it from here too. It never imports anything.
"""

from __future__ import annotations

__all__ = ["LEVEL", "SERVES", "__version__"]

__version__ = "0.1.0"

LEVEL = 1
"""The level of this code, and of the repositories that it makes (docs/adr/0032-levels.md).

A release whose SQL differs from that of the former one has the next number. 0.1.0 has none.
"""
SERVES = 1
"""The oldest level whose code may work with a repository of level LEVEL, beside newer code."""
