"""The version, in the one place that says it.

Anyone may read it; the build reads it from here too. It never imports anything.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
