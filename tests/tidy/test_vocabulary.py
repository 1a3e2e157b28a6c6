"""Python's words and SQL's are the same: the names of lanes."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import pytest

from onceq.model.element import Lane
from tests.tidy.source_tree import nodes, place, python_files, sql_files, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME_OF: Final = {int(one): one.name.lower() for one in Lane}

COMMENT: Final = re.compile(r"--[^\n]*")
NAMED: Final = re.compile(r"(?P<said>\d+|'\{[-\d,]+\}'(?:::\w+\[\])?) /\* (?P<names>[a-z, ]+) \*/")
COMPARED: Final = re.compile(r"lane\)? (?P<sign>=|<>|[<>]=?|:=) (?P<number>\d+)\b(?! /\*)")
LATE: Final = re.compile(r"(?<![\w.])(?:9|1[0-3])(?![\w.])")
"""The numbers that in a statement about lanes are nothing else."""
INSERT: Final = re.compile(
    r"insert into \S*\belement \((?P<columns>[^)]*)\)\s+(?:overriding system value\s+)?"
    r"(?:values \(|select )(?P<values>.*)",
    re.DOTALL,
)


def names_of(said: str) -> list[str]:
    """Return the names of the lanes in a number or an array literal; what is fresh is one."""
    numbers = [int(number) for number in re.findall(r"\d+", said)]
    if len(numbers) == 1:
        return [NAME_OF.get(numbers[0], "fresh")]
    named = ["fresh" if number <= Lane.FRESH else NAME_OF[number] for number in numbers]
    return list(dict.fromkeys(named))


def misnamed(text: str) -> Iterator[str]:
    """Yield the lanes that have a name which is not theirs."""
    for match in NAMED.finditer(text):
        if match["names"].split(", ") != names_of(match["said"]):
            yield match[0]


def unnamed(text: str, *, is_all_sql: bool = True) -> Iterator[str]:
    """Yield the lanes without their name in what is said of lanes in some SQL.

    is_all_sql: False for a text that may be prose, in which a 10 may be anything.
    """
    for statement in NAMED.sub("", COMMENT.sub("", text)).split(";"):
        for match in COMPARED.finditer(statement):
            if int(match["number"]) in NAME_OF and (match["sign"], match["number"]) != ("<", "0"):
                yield match[0]
        if "lane" in statement and is_all_sql:
            yield from LATE.findall(statement)
        for match in INSERT.finditer(statement):
            columns = [column.strip() for column in match["columns"].split(",")]
            given = list(pieces(match["values"]))
            if "lane" in columns and given[columns.index("lane")].strip().isdecimal():
                yield match[0].split("\n")[0]


def pieces(values: str) -> Iterator[str]:
    """Yield what stands between the commas that are in no parentheses of their own."""
    depth, begin = 0, 0
    for at, character in enumerate(values):
        depth += (character == "(") - (character == ")")
        if depth < 0 or (character == "," and depth == 0):
            yield values[begin:at]
            begin = at + 1


def numbers_in_python(node: ast.AST) -> Iterator[str]:
    """Yield the numbers that stand for lanes, and the SQL in strings that has them."""
    match node:
        case ast.Compare(
            left=ast.Name(id="lane") | ast.Attribute(attr="lane"),
            comparators=[ast.Constant(value=number)],
        ) if number in NAME_OF:
            yield str(number)
        case ast.keyword(arg="lane", value=ast.Constant(value=number)) if number in NAME_OF:
            yield str(number)
        case ast.Constant(value=str() as text):
            yield from misnamed(text)
            yield from unnamed(text, is_all_sql=False)
        case _:
            pass


def test_lanes_have_their_names_in_sql() -> None:
    def findings() -> Iterator[tuple[str, str]]:
        for path in sql_files():
            text = path.read_text(encoding="utf-8")
            if path.parent.name == "functions":
                for found in (*misnamed(text), *unnamed(text)):
                    yield place(path, found), "a lane is named: see `Lane` in model/element.py"

    verdict("lane", findings())


def test_lanes_have_their_names_in_python() -> None:
    def findings() -> Iterator[tuple[str, str]]:
        for path in python_files("src", "proof", "bench", "tests"):
            for node in [] if path.samefile(__file__) else nodes(path):
                for found in numbers_in_python(node):
                    yield place(path, found), "a lane is named: see `Lane` in model/element.py"

    verdict("lane", findings())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("where lane = 11 /* suspect */", []),
        ("where lane = 11 /* due */", ["11 /* due */"]),
        ("where e.lane <> 13", ["lane <> 13", "13"]),
        ("e.lane := 0;", ["lane := 0"]),
        ("when at_lane < 0 then", []),
        ("unnest('{0,1,2,10}'::smallint[] /* fresh, due */) lane", []),
        ("'{-11,10}' /* due, suspect */", ["'{-11,10}' /* due, suspect */"]),
        ("set lane = case when x then 11 /* suspect */ else 10 end", ["10"]),
        ("faults = 10 -- in no lane = 10", []),
        ("insert into r.element (a, lane) values (f(1, 2), 5 /* usual */)", []),
        (
            "insert into r.element (a, lane) values (f(1, 2), 5)",
            ["insert into r.element (a, lane) values (f(1, 2), 5)"],
        ),
    ],
)
def test_a_lane_without_its_name_is_seen(text: str, wrong: list[str]) -> None:
    assert [*misnamed(text), *unnamed(text)] == wrong
