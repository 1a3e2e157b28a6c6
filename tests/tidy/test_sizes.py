"""Files and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tests.tidy.source_tree import functions, place, python_files, sql_files, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
SQL_FUNCTION_LINES_MAX = 60
ARGUMENTS_MAX = 6
POSITIONAL_MAX = 4

SQL_FUNCTION = re.compile(
    r"^create (?:or replace )?(?:function|procedure) (?P<name>[\w.]+)"
    r".*?(?P<quote>\$\w*\$).*?(?P=quote)[^;]*;",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def argument_counts(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
    """Count the arguments of a function, all and positional, without self and cls."""
    positional = [*function.args.posonlyargs, *function.args.args]
    if positional and positional[0].arg in {"self", "cls"}:
        positional.pop(0)
    return len(positional) + len(function.args.kwonlyargs), len(positional)


def test_python_files_are_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    verdict(
        "file length",
        (
            (place(path), f"{lines} lines, at most {FILE_LINES_MAX}")
            for path, lines in lengths.items()
            if lines > FILE_LINES_MAX
        ),
    )


def test_python_functions_are_short() -> None:
    verdict(
        "function length",
        (
            (place(path, function.name), f"{code_lines(function)} lines")
            for path in python_files()
            for function in functions(path)
            if code_lines(function) > FUNCTION_LINES_MAX
        ),
    )


def test_functions_take_few_arguments() -> None:
    """Fixtures are arguments too, so that tests may have more."""

    def findings() -> Iterator[tuple[str, str]]:
        for path in python_files("src", "bench", "proof", "examples", "project.py"):
            for function in functions(path):
                count, positional = argument_counts(function)
                if count > ARGUMENTS_MAX or positional > POSITIONAL_MAX:
                    yield place(path, function.name), f"{count}, of which {positional} positional"

    verdict("arguments", findings())


def test_sql_functions_are_short() -> None:
    def findings() -> Iterator[tuple[str, str]]:
        for path in sql_files():
            for match in SQL_FUNCTION.finditer(path.read_text(encoding="utf-8")):
                lines = match.group().count("\n") + 1
                if lines > SQL_FUNCTION_LINES_MAX:
                    yield place(path, match["name"]), f"{lines} lines"

    verdict("SQL function length", findings())


def test_the_sql_scanner_sees_functions() -> None:
    text = "create function a.b() returns void as $$\nbegin\nend $$;\n\n"
    text += "create or replace function c(x int)\nreturns int language sql as $f$ select 1 $f$;\n"
    found = [(match["name"], match.group().count("\n")) for match in SQL_FUNCTION.finditer(text)]
    assert found == [("a.b", 2), ("c", 1)]
