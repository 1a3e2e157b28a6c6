"""Every event stands where events do, is logged by some test, and is documented."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

from onceq import telemetry
from onceq.otel import logged as logged_of_spans
from onceq.streams import logged
from tests.events import ENVELOPE, kinds
from tests.tidy.source_tree import ROOT, nodes, place, python_files, syntax, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

SAYS = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "log"})
TELLS = ("src/onceq/telemetry.py", "log.log")
"""The one place that logs."""


def logged_by_hand() -> Iterator[tuple[str, str]]:
    """Yields calls of a logger, and loggers that are not named after their module."""
    for path in python_files("src"):
        for why in by_hand(place(path), syntax(path)):
            yield place(path), why


def by_hand(where: str, tree: ast.AST) -> Iterator[str]:
    """Yields what is wrong with the calls of loggers in a file."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "logging"), attr=attr)):
                if attr in SAYS and (where, ast.unparse(node.func)) != TELLS:
                    yield f"logs what is no event: {ast.unparse(node)}"
                if attr == "getLogger" and ast.unparse(node.args[0]) != "__name__":
                    yield "a logger is named after its module"
            case _:
                pass


def test_nothing_is_logged_but_events() -> None:
    verdict("logged by hand", logged_by_hand())


def marked() -> set[str]:
    """Returns the events that tests are marked to emit."""
    return {
        argument.attr
        for path in python_files("tests")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "emits"
        for argument in node.args
        if isinstance(argument, ast.Attribute)
    }


def test_every_event_stands_where_events_do() -> None:
    places = {telemetry.__name__, logged.__name__, logged_of_spans.__name__}
    assert {one.__module__ for one in kinds()} == places


def test_every_event_is_logged_by_a_test() -> None:
    assert {one.__name__ for one in kinds()} - marked() == set()


def test_the_page_has_every_event_with_its_level_and_fields() -> None:
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    for kind in kinds():
        level = {20: "info", 30: "warning", 40: "error"}[kind.level]
        names = ", ".join(f"`{one}`" for one in inspect.signature(kind).parameters)
        assert f"| `{kind.name()}` | {level} | {names} |" in page


def test_no_field_hides_what_every_line_has() -> None:
    for kind in kinds():
        assert {*ENVELOPE, "event", "message"}.isdisjoint(inspect.signature(kind).parameters)


def test_a_logger_of_each_module_that_tells() -> None:
    """`tell` is given the logger of the module that calls it."""

    def findings() -> Iterator[tuple[str, str]]:
        for path in python_files("src"):
            text = path.read_text("utf-8")
            if "telemetry.tell(" in text and "log = logging.getLogger(__name__)" not in text:
                yield place(path), "tells by another's logger"

    verdict("another's logger", findings())


def test_the_scanner_sees_what_is_logged_by_hand() -> None:
    tree = ast.parse("log = logging.getLogger('onceq')\nlog.info('it began')\nlog.log(20, 'so')\n")
    named, logged = (
        "a logger is named after its module",
        "logs what is no event: log.info('it began')",
    )
    assert [*by_hand("src/onceq/other.py", tree)] == [
        named,
        logged,
        "logs what is no event: log.log(20, 'so')",
    ]
    assert [*by_hand(TELLS[0], tree)] == [named, logged]
