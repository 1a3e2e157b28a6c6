"""The guide to streams, word for word: its programs, its table of options, its events."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import re
import socket
from typing import TYPE_CHECKING, Any, get_args

import pytest

from onceq.streams.model.events import Event
from tests.examples.pages import blocks, reader, section, shell, text_of, write_files
from tests.tidy.source_tree import ROOT, place, python_files, syntax

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/streams.md"
LATER = "python later.py 4 > later.txt\nkill $(jobs -p)"


def free_ports(number: int) -> list[str]:
    """Ports of the loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)
        ]
        return [str(one.getsockname()[1]) for one in sockets]


@pytest.mark.timeout(280)
def test_the_guide_is_true(tmp_path: Path) -> None:
    page = text_of(PAGE)
    for written, free in zip(("7401", "7402", "7403"), free_ports(3), strict=True):
        page = page.replace(written, free)
    assert write_files(page, tmp_path) == ["feed.py", "show.py", "later.py"]
    found = blocks(page)
    script = found["bash"].replace("kill $(jobs -p)", LATER)
    printed, complaints = shell(script, tmp_path, reader(), 250)
    assert printed == found["text"], complaints + (tmp_path / "stores.log").read_text()
    assert (tmp_path / "later.txt").read_text() == "acknowledged below 5\n"


def test_the_page_has_the_table_of_options() -> None:
    spec = importlib.util.spec_from_file_location("options_page", ROOT / "docs" / "options.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = text_of(PAGE)
    assert module.written(page) == page, "run: python docs/options.py"
    assert all(one in page for one in module.rows())


CLASSES = {event.__name__ for event in get_args(Event)}


def made_in(room: str) -> set[str]:
    """Return the event classes of which a room of the streams makes one."""
    trees = [
        syntax(path)
        for path in python_files("src")
        if place(path).startswith(f"src/onceq/streams/{room}/")
    ]
    calls = [node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {ast.unparse(call).removeprefix("events.") for call in calls}
    return called & CLASSES


def in_the_page_of(whose: str) -> list[str]:
    """Return the events that the page lists in the table of a source, or of a receiver."""
    _, _, table = section("Events", text_of(PAGE)).partition(f"| event | of a {whose}, when |\n")
    return re.findall(r"^\| `(\w+)`", table.partition("\n\n")[0], re.MULTILINE)


@pytest.mark.parametrize("whose", ["source", "receiver"])
def test_the_page_names_each_event_once(whose: str) -> None:
    assert sorted(in_the_page_of(whose)) == sorted(made_in(whose))


def test_each_event_is_of_somebody() -> None:
    assert {*in_the_page_of("source"), *in_the_page_of("receiver")} == CLASSES
