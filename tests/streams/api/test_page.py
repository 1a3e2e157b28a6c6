"""The guide to streams, word for word: what its programs print, and its table of options."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.examples.pages import blocks, reader, shell, text_of, write_files
from tests.tidy.source_tree import ROOT

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
