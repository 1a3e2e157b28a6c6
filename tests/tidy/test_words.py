"""What rows say in words, they say in SQL and in Python alike: roles, outcomes, states, charges."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from onceq.model.element import Charge, ElementState, Fate, KillAnswer, RequestOutcome, Role
from onceq.model.ops import Verdict
from onceq.model.queue import QueueKind
from tests.tidy.source_tree import PACKAGE, nodes, place, python_files, sql_files, verdict
from tests.tidy.test_sizes import SQL_FUNCTION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import Enum

SQL: Final = PACKAGE / "engine/sql"
QUOTED: Final = re.compile(r"'(\w+)'")

WORDS_OF: Final[dict[str, type[Enum]]] = {
    "role": Role,
    "state": ElementState,
    "outcome": RequestOutcome,
    "charge": Charge,
    "fate": Fate,
    "kind": QueueKind,
}
"""By the names that a field, a column or a parameter has which holds such a word."""
SAID: Final = re.compile(
    r"\b(?:\w+_|\w\.)?(?P<name>role|outcome|charge)(?:::\w+)?\)? "
    r"(?:=|<>|:=|in|not in|is distinct from|is not distinct from) \(?(?P<words>'\w+'(?:, '\w+')*)"
)
"""In SQL, words that a column is compared with or set to."""


def values(words: type[Enum]) -> set[str]:
    return {str(one.value) for one in words}


def functions() -> dict[str, str]:
    """Return the text of each SQL function by its name."""
    texts = [path.read_text("utf-8") for path in sql_files() if path.parent.name == "functions"]
    found = (match for text in texts for match in SQL_FUNCTION.finditer(text))
    return {match["name"].removeprefix("onceq."): match.group() for match in found}


def texts_of_python() -> Iterator[tuple[str, str]]:
    """Yield the texts in Python files, among them SQL."""
    for path in python_files("src"):
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield place(path), node.value


def table_of_charges() -> set[str]:
    """Return the charges that the comment above return_element explains."""
    text = (SQL / "functions/conclude.sql").read_text("utf-8")
    above = text.split("function onceq.return_element")[0].rsplit("end $$;", 1)[-1].split("$$;")[-1]
    return set(re.findall(r"^--   (\w+) ", above, re.MULTILINE))


def test_enums_of_sql_are_those_of_python() -> None:
    text = (SQL / "migrations/0001_baseline.sql").read_text("utf-8")
    for name, words in (("role", Role), ("outcome", RequestOutcome)):
        (listed,) = re.findall(rf"create type onceq\.{name} as enum \((.*?)\)", text)
        assert set(QUOTED.findall(listed)) == values(words)
    (kinds,) = re.findall(r"check \(kind in \(('request'.*?)\)", text)
    assert set(QUOTED.findall(kinds)) == values(QueueKind)


def test_the_view_of_requests_says_every_state() -> None:
    text = (SQL / "functions/views.sql").read_text("utf-8")
    view = text.split("create or replace view onceq.requests")[1].split(";")[0]
    said = set(re.findall(r"(?:then|else) '(\w+)'", functions()["state_of"]))
    assert said | set(re.findall(r"h\.eid, '(\w+)'", view)) == values(ElementState)
    said = set(re.findall(r"(?:then|else) '(\w+)'", functions()["where_is"]))
    assert said == values(ElementState) - {"kept"}


def test_charges_are_those_that_the_table_explains() -> None:
    assert table_of_charges() == values(Charge)


@pytest.mark.parametrize(
    ("words", "of", "pattern"),
    [
        (Fate, ("return_element", "abort", "abort_taken"), r"return '(\w+)'"),
        (KillAnswer, ("kill",), r"'([A-Z_]{3,})'"),
        (Verdict, ("judge",), r"p_verdict = '(\w+)'"),
    ],
)
def test_functions_answer_with_words_of_python(
    words: type[Enum], of: tuple[str, ...], pattern: str
) -> None:
    bodies = functions()
    said = {word for name in of for word in re.findall(pattern, bodies[name])}
    assert said <= values(words)
    assert said == values(words) or words is Verdict, "judge takes all others for `lives`"


def test_sql_says_no_other_word() -> None:
    def findings() -> Iterator[tuple[str, str]]:
        for name, text in [*functions().items(), *texts_of_python()]:
            for match in SAID.finditer(text):
                for word in QUOTED.findall(match["words"]):
                    if word not in values(WORDS_OF[match["name"]]):
                        yield f"{name}: {match[0]}", f"no {match['name']} of model/element.py"
            for word in re.findall(r"return_element\(\w+, '(\w+)'", text):
                if word not in values(Charge):
                    yield f"{name}: {word}", "no charge of model/element.py"

    verdict("word in SQL", findings())


def name_of(node: ast.AST) -> str:
    """Return the name that a value is read from: of a variable, an attribute or a key."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            return name
        case _:
            return ""


def texts_in(node: ast.AST) -> list[str]:
    """Return the texts that a value is, or consists of."""
    found = node.elts if isinstance(node, ast.Tuple | ast.Set | ast.List) else [node]
    return [
        one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]


def bare_words(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (name, word) where one of the names is compared with a word, or given one."""
    match node:
        case ast.Compare(left=left, comparators=[right]):
            yield from ((name_of(left), word) for word in texts_in(right))
            yield from ((name_of(right), word) for word in texts_in(left))
        case ast.keyword(arg=str() as name, value=value) if name != "state":  # one searches by it
            yield from ((name, word) for word in texts_in(value))
        case _:
            pass


def test_no_word_is_bare_in_python() -> None:
    def findings() -> Iterator[tuple[str, str]]:
        for path in python_files("src"):
            for node in nodes(path):
                for name, word in bare_words(node):
                    if name in WORDS_OF and word in values(WORDS_OF[name]):
                        yield place(path, word), f"{WORDS_OF[name].__name__} has a name for it"

    verdict("bare word", findings())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("one.role == 'reply'", {("role", "reply")}),
        ("'failed' != row['outcome']", {("outcome", "failed")}),
        ("state in {'held', other}", {("state", "held")}),
        ("make(charge='reject')", {("charge", "reject")}),
        ("qm.lookup(state='held')", set[Any]()),
        ("role = one.role is Role.REPLY", set[Any]()),
    ],
)
def test_bare_words_are_seen(source: str, found: set[tuple[str, str]]) -> None:
    nodes = ast.walk(ast.parse(source))
    assert {pair for node in nodes for pair in bare_words(node) if pair[0]} == found
