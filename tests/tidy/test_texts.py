"""What must not be in any committed file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source_tree import ROOT, files, place, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARY = {".gif", ".ico", ".jpg", ".parquet", ".png", ".xz"}

# Written so that no pattern matches itself. Paths: of home directories, and of this
# checkout and its neighbours, unless it lies where anyone's might.
HOMES = r"(?<![\w.~$}/-])/(?:root|home|Users)/\w"
ANYWHERE = {"/", "/opt", "/srv", "/tmp", "/var/tmp"}
HERE = str(ROOT if str(ROOT.parent) in ANYWHERE else ROOT.parent)
MACHINE_PATH = re.compile(rf"{HOMES}|(?<![\w.])(?:{re.escape(HERE)})(?:/|\b)")
INDEX_HOST = re.compile(
    r"py[p]i\.org|pythonhosted\.or[g]|--(?:extra-)?index-ur[l]\b|--find-link[s]\b"
)
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b")
# An ignore needs its code and, in the same line, its reason.
MUTED = re.compile(r"#\s*(?:type|pyright|mypy):\s*ignor[e]|#\s*noq[a]")
MUTED_WITH_REASON = re.compile(
    r"#\s*(?:(?:type|pyright):\s*ignore\[[\w, -]+\]|noqa:\s*\w+(?:,\s*\w+)*)\s*(?:-|#|;)\s*\w"
)
NOT_RUN = re.compile(r"\bpytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip)\b")


def lines(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of every text file, or of those with some suffixes."""
    for path in files():
        if path.suffix in BINARY or (suffixes and path.suffix not in suffixes):
            continue
        where = place(path)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{where}: {number}", line


@pytest.mark.parametrize(
    ("rule", "pattern", "suffixes"),
    [
        ("machine path", MACHINE_PATH, ()),
        ("package index", INDEX_HOST, ()),
        ("unfinished", UNFINISHED, ()),
        ("not run", NOT_RUN, (".py",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_committed_says(
    rule: str, pattern: re.Pattern[str], suffixes: tuple[str, ...]
) -> None:
    verdict(rule, ((where, line) for where, line in lines(*suffixes) if pattern.search(line)))


def test_every_ignore_gives_its_reason() -> None:
    verdict(
        "ignore without reason",
        (
            (where, line.strip())
            for where, line in lines(".py")
            if MUTED.search(line) and not MUTED_WITH_REASON.search(line)
        ),
    )
