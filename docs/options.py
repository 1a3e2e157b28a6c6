"""Write the table of options in `docs/streams.md`: `python docs/options.py`.

A test compares the page with what would be written. The table is the one that options are read by.
"""

from __future__ import annotations

import enum
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from onceq.streams.model.options import OPTIONS, Option  # noqa: E402 - its path comes first

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "streams.md"
HEAD = "| option | of | default | |\n|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def row(option: Option) -> str:
    """Return the row of an option."""
    default = option.default.value if isinstance(option.default, enum.Enum) else option.default
    scopes = ", ".join(sorted(option.scopes))
    return f"| `{option.name}` | {scopes} | {default} | {option.text} |\n"


def rows() -> Iterator[str]:
    """Yield the rows, in the order of the table."""
    yield from map(row, OPTIONS)


def written(page: str) -> str:
    """Return the page with the table as it is now."""
    return TABLE.sub(lambda _: HEAD + "".join(rows()), page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
