"""The sources that a part covers, and their digest, which tells whether its record is older.

A part covers what it tries and what it tries it with (`proof/parts.py` says for each). The digest
is of names and code, so a commit elsewhere, another clone, or a better comment
or docstring does not change it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = frozenset((".py", ".sql", ".toml"))
BUT = "!"
"""How a pattern of sources begins that a part does not cover."""
DIGITS = 16
_SQL_COMMENT_LINE = re.compile(r"^\s*--.*\n?", re.MULTILINE)
"""A line that is a comment. One after code counts as code: a string may hold two dashes."""


def files(covers: Iterable[str]) -> list[Path]:
    """Return the sources that these patterns name, but for those of patterns that begin with `!`.

    Raises ValueError if one names none.
    """
    found: set[Path] = set()
    left_out: set[Path] = set()
    for pattern in covers:
        named = {p for p in ROOT.glob(pattern.removeprefix(BUT)) if p.suffix in SUFFIXES}
        if not named:
            raise ValueError(f"{pattern} names no source: proof/parts.py is wrong")
        (left_out if pattern.startswith(BUT) else found).update(named)
    return sorted(found - left_out)


def digest(covers: Iterable[str]) -> str:
    """Return the digest of what a part covers, as it is now."""
    made = hashlib.sha256()
    for path in files(covers):
        text = code(path.suffix, path.read_text("utf-8"))
        made.update(f"{path.relative_to(ROOT)}\0{len(text)}\0{text}".encode())
    return made.hexdigest()[:DIGITS]


@functools.cache
def code(suffix: str, text: str) -> str:
    """Return what a source does, without the text for its readers and without empty lines."""
    if suffix == ".sql":
        text = _SQL_COMMENT_LINE.sub("", text)
    elif suffix == ".py":
        text = _without_comments(text)
    return "\n".join(line for line in text.splitlines() if line.strip())


def _without_comments(text: str) -> str:
    """Return Python without comments and docstrings; the same in every version of Python."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.walk(ast.parse(text)):
        if _is_text(node):
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [""] * (last - node.lineno + 1)
    return "\n".join(lines)


def _is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Return whether this is a string that nobody uses, as docstrings are."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
