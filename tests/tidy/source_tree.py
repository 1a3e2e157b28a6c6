"""The files that the style tests judge, and how a rule's findings become a verdict."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.tidy.exceptions import EXCEPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "onceq"


@functools.cache
def files() -> tuple[Path, ...]:
    """Return every file that is committed or about to be: all that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(sorted({path for path in paths if path.is_file()}))


def python_files(*tops: str) -> Iterator[Path]:
    """Yield the Python files, all or those under some of the root's folders."""
    for path in files():
        if path.suffix == ".py" and (not tops or path.relative_to(ROOT).parts[0] in tops):
            yield path


def sql_files() -> Iterator[Path]:
    """Yield the SQL files of the engine."""
    return (path for path in files() if path.suffix == ".sql" and PACKAGE in path.parents)


@functools.cache
def syntax(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Return every node of a Python file's syntax tree."""
    return list(ast.walk(syntax(path)))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a file, methods and inner ones too."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def place(path: Path, what: str = "") -> str:
    """Return how findings and exceptions name a place: `path` or `path: what`."""
    name = path.relative_to(ROOT).as_posix()
    return f"{name}: {what}" if what else name


def words(identifier: str) -> list[str]:
    """Return the words of an identifier, in small letters: AsyncQueueManager, queue_manager."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]


def verdict(rule: str, findings: Iterable[tuple[str, str]]) -> None:
    """Fail on what has no exception, and on an exception that nothing needs any more.

    findings: pairs of a place and what is wrong there.
    """
    excused = {where for kind, where in EXCEPTIONS if kind == rule}
    found = dict(findings)
    wrong = [f"{where}: {what}" for where, what in sorted(found.items()) if where not in excused]
    stale = [f"{where}: the exception is not needed" for where in sorted(excused - found.keys())]
    assert not wrong + stale, f"{rule}:\n" + "\n".join(wrong + stale)
