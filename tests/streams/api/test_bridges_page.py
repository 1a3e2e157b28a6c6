"""The guide to bridges, word for word: what its programs print."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from tests.examples.pages import BLOCK, blocks, reader, section, shell, text_of, write_files
from tests.parts import plain
from tests.streams.api.test_page import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = "docs/bridges.md"


@pytest.fixture
def database(conninfo: str, repository_name: str) -> Iterator[str]:
    """An empty database."""
    with plain(conninfo) as connection:
        connection.execute(f"create database {repository_name} template template0".encode())
    try:
        yield make_conninfo(conninfo, dbname=repository_name)
    finally:
        with plain(conninfo) as connection:
            connection.execute(f"drop database {repository_name} with (force)".encode())


@pytest.mark.timeout(600)
def test_the_guide_is_true(tmp_path: Path, database: str) -> None:
    page = text_of(PAGE).replace("embedded:./data", shlex.quote(database))
    for written, free in zip(("7401", "7402", "7403"), free_ports(3), strict=True):
        page = page.replace(written, free)
    page = section("Begin", page)
    names = ["bars.py", "enqueue.py", "send.py", "book.py"]
    assert write_files(page, tmp_path) == names
    found = blocks(page)
    printed, complaints = shell(found["bash"], tmp_path, reader(), 500)
    log = (tmp_path / "stores.log").read_text() + (tmp_path / "send.log").read_text()
    assert printed == found["text"], complaints + log


def test_every_program_of_the_page_is_run() -> None:
    page = text_of(PAGE)
    begin = section("Begin", page)
    programs = [block for language, block in BLOCK.findall(page) if language in {"python", "bash"}]
    assert programs == [
        block for language, block in BLOCK.findall(begin) if language in {"python", "bash"}
    ]
