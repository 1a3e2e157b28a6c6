"""The guides, word for word: their programs print what they say, their tests pass.

A python block whose first line names a file is that file; text blocks are what the last one prints.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

import onceq
from onceq.engine.migrate import apply_with
from tests.examples.test_quickstart import BLOCK, FILE_NAME, ROOT
from tests.parts import plain

if TYPE_CHECKING:
    from pathlib import Path

SHOP = """
import onceq, psycopg

URL = {url!r}
DATABASE = {database!r}
PARCELS = onceq.Queue("parcels", str, str)

def connect():
    return psycopg.connect(URL)
"""
NAMES = {"host": "HOST", "port": "PORT", "user": "USER", "dbname": "NAME"}


def write(guide: str, directory: Path) -> tuple[list[str], str]:
    """Writes a guide's files into a directory; returns their names, and what it says is printed."""
    found = {"python": "", "text": ""}
    for language, text in BLOCK.findall((ROOT / "docs" / guide).read_text(encoding="utf-8")):
        found[language] += text
    before, *parts = FILE_NAME.split(found["python"])
    assert before == "", f"a python block that names no file:\n{before}"
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        (directory / name).write_text(text, encoding="utf-8")
    return parts[::2], found["text"]


def run(directory: Path, *command: str, **environment: str) -> str:
    """Runs Python in a directory; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{directory}", **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_bring_your_own_connection(conninfo: str, tmp_path: Path) -> None:
    names, printed = write("connections.md", tmp_path)
    given = conninfo_to_dict(conninfo)
    with plain(conninfo) as connection:
        connection.execute("create database guide")
    url = make_conninfo(conninfo, dbname="guide")
    database = {NAMES[key]: value for key, value in given.items() if key in NAMES}
    text = SHOP.format(url=url, database={**database, "NAME": "guide"})
    (tmp_path / "shop.py").write_text(text, encoding="utf-8")
    try:
        apply_with(url, "onceq")
        with onceq.open(url) as qm, plain(url) as connection:
            qm.declare(onceq.Queue("parcels", str, str))
            connection.execute("create table orders (number integer, what text)")
            connection.execute("create table packed (what text)")
        said = [run(tmp_path, name) for name in names]
        assert said == [*[""] * (len(names) - 1), printed]
        with plain(url) as connection:
            found = connection.execute("select number from orders order by number").fetchall()
        assert found == [(1,), (3,), (4,), (5,)]
    finally:
        with plain(conninfo) as connection:
            connection.execute("drop database guide with (force)")


def test_test_your_handlers(conninfo: str, tmp_path: Path) -> None:
    write("testing.md", tmp_path)
    options = ("-p", "onceq.testing.plugin", "-p", "no:cacheprovider", "-q")
    said = run(tmp_path, "-m", "pytest", *options, ONCEQ_TEST_URL=conninfo)
    assert "6 passed" in said
