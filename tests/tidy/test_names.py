"""One word, one meaning: the words that the glossary leaves out are nobody's names."""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source_tree import PACKAGE, nodes, place, python_files, sql_files, verdict, words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BANNED = frozenset(
    "broker common helper job manager message misc task util utils worker".split()  # noqa: SIM905 - a list of words reads best as one
)
# A banned word in its one allowed company: the queue manager, an element's message id.
PHRASES = frozenset({("queue", "manager"), ("message", "id")})
# Folders in which a word has a meaning of its own, and the one folder called manager.
AT_HOME = {"message": ("streams", "gateway")}

SQL_NAME = re.compile(
    r"^\s*create (?:or replace )?(?:unlogged )?(?:unique )?"
    r"(?:function|procedure|table|view|sequence|type|domain|index|schema)"
    r" (?:if not exists )?(?:\w+\.)?(?P<name>\w+)",
    re.IGNORECASE | re.MULTILINE,
)


@functools.cache
def banned_words(identifier: str) -> set[str]:
    """Return the banned words in an identifier, plurals too, but for the allowed phrases."""
    parts = words(identifier)
    found: set[str] = set()
    for index, part in enumerate(parts):
        singular = part if part in BANNED else part.removesuffix("s")
        before = (*parts[max(index - 1, 0) : index], singular)
        after = (singular, *parts[index + 1 : index + 2])
        if singular in BANNED and before not in PHRASES and after not in PHRASES:
            found.add(singular)
    return found


def defined_names(path: Path) -> Iterator[str]:
    """Yield the names that a Python file defines."""
    for node in nodes(path):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.alias(asname=str() as name):
                yield name
            case _:
                pass


def names_of_path(path: Path) -> Iterator[str]:
    """Yield the names of a module and of its folders, but for the package `manager`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts if PACKAGE in path.parents else ()
    yield from parts[1:] if parts[:1] == ("manager",) else parts


def at_home(word: str, path: Path) -> bool:
    homes = AT_HOME.get(word, ())
    return any(part == home or part.startswith(f"{home}_") for home in homes for part in path.parts)


def test_no_banned_word_is_a_name() -> None:
    def findings() -> Iterator[tuple[str, str]]:
        for path in python_files("src", "bench", "proof", "examples"):
            for name in {*defined_names(path), *names_of_path(path)}:
                for word in banned_words(name):
                    if not at_home(word, path):
                        yield place(path, name), f"{word!r} is not in the glossary"

    verdict("banned word", findings())


def test_no_banned_word_is_a_name_in_sql() -> None:
    def findings() -> Iterator[tuple[str, str]]:
        for path in sql_files():
            for match in SQL_NAME.finditer(path.read_text(encoding="utf-8")):
                for word in banned_words(match["name"]):
                    yield place(path, match["name"]), f"{word!r} is not in the glossary"

    verdict("banned word in SQL", findings())


@pytest.mark.parametrize(
    ("identifier", "banned"),
    [
        ("QueueManager", set[str]()),
        ("AsyncQueueManager", set[str]()),
        ("queue_manager", set[str]()),
        ("message_id", set[str]()),
        ("ClaimManager", {"manager"}),
        ("HTTPWorkers", {"worker"}),
        ("job_count", {"job"}),
        ("utils", {"utils"}),
        ("commonly", set[str]()),
    ],
)
def test_words_are_told_apart(identifier: str, banned: set[str]) -> None:
    assert banned_words(identifier) == banned
