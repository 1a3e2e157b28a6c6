"""Where a rule of style is broken on purpose: (rule, place) and the reason."""

from __future__ import annotations

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("banned word", "src/onceq/errors.py: message"): "the text of an error, as Python calls it",
}
