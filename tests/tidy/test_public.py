"""What is public is named as such, shown by a test, and on the map."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from typing import TYPE_CHECKING

import pytest

from onceq import errors
from tests.tidy.source_tree import (
    PACKAGE,
    ROOT,
    nodes,
    place,
    python_files,
    sql_files,
    syntax,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PUBLIC_MODULES = (
    ("onceq", PACKAGE / "__init__.py"),
    ("onceq.errors", PACKAGE / "errors.py"),
    ("onceq.streams", PACKAGE / "streams" / "__init__.py"),
)


def public_names(module: ast.Module) -> Iterator[str]:
    """Yield what a module defines, or takes from onceq to pass on, without an underscore."""
    for node in module.body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names = [node.name]
            case ast.Assign():
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name() as target):
                names = [target.id]
            case ast.ImportFrom(module=str() as source) if source.split(".")[0] == "onceq":
                names = [alias.asname or alias.name for alias in node.names]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def error_classes() -> list[str]:
    """Return the errors that can be raised: not the branches of the tree, which never are."""
    branches = {"OnceqError", "UsageError", "OperatingError", "ReplyError", "HandlerSignal"}
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    named = {value.__name__ for value in classes if issubclass(value, errors.OnceqError)}
    return sorted(named - branches)


def packages() -> list[str]:
    """Return the packages under onceq, those within others too, as paths."""
    folders = {path.parent for path in python_files("src") if path.parent != PACKAGE}
    return sorted(folder.relative_to(PACKAGE).as_posix() for folder in folders)


@pytest.fixture(scope="module")
def names_in_tests() -> frozenset[str]:
    """Every name and attribute that a test reads, but for those in this folder."""
    found: set[str] = set()
    for path in python_files("tests"):
        if "tidy" in path.parts:
            continue
        for node in nodes(path):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    found.add(name)
                case _:
                    pass
    return frozenset(found)


@pytest.mark.parametrize(("name", "path"), PUBLIC_MODULES)
def test_all_lists_the_public_names(name: str, path: Path) -> None:
    module = importlib.import_module(name)
    listed = [entry for entry in module.__all__ if entry != "__version__"]
    assert len(listed) == len(set(listed)), "a name is listed twice"
    assert set(public_names(syntax(path))) <= set(listed), "public, but not in __all__"
    assert [entry for entry in module.__all__ if not hasattr(module, entry)] == []


@pytest.mark.parametrize("name", error_classes())
def test_every_error_is_shown_by_a_test(name: str, names_in_tests: frozenset[str]) -> None:
    shown = name in names_in_tests
    assert shown, f"no test raises or expects {name}"


@pytest.mark.parametrize("package", packages())
def test_every_package_has_its_init(package: str) -> None:
    """Without one, the checks of import levels do not see the package."""
    assert (PACKAGE / package / "__init__.py").exists()


@pytest.mark.parametrize("package", packages())
def test_every_package_is_on_the_map(package: str) -> None:
    name = package.rsplit("/", 1)[-1]
    path = ROOT / "ARCHITECTURE.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    pattern = rf"\b{name}/|\bonceq\.{package.replace('/', '.')}\b"
    named = re.search(pattern, text) is not None
    assert named, f"ARCHITECTURE.md does not name {package}/"


def test_sql_functions_say_what_they_lock() -> None:
    def findings() -> Iterator[tuple[str, str]]:
        for path in sql_files():
            lines = path.read_text(encoding="utf-8").splitlines()
            header = itertools.takewhile(lambda line: line.startswith("--"), lines)
            if path.parent.name == "functions" and "Locks:" not in " ".join(header):
                yield place(path), "its header has no `Locks: ...`"

    verdict("lock order", findings())
