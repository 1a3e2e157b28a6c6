"""The programs of "Survive your own crash", word for word, each run twice, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import onceq
from onceq.engine.embedded import open_embedded
from onceq.engine.migrate import apply_with
from tests.parts import serving
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PAGE = (ROOT / "docs" / "survive-your-own-crash.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(?:python\n# (\w+\.py)|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def programs() -> dict[str, list[str]]:
    """Returns what each program of the page prints, run after run."""
    printed: dict[str, list[str]] = {}
    for name, text in BLOCK.findall(PAGE):
        if name:
            printed[name] = []
        else:
            printed[list(printed)[-1]].append(text)
    return printed


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path]]:
    """A database of its own with a server, the programs, and where a ledger may be prepared."""
    place = tmp_path_factory.mktemp("guide")
    for name, text in BLOCK.findall(PAGE):
        if name:
            (place / name).write_text(text, encoding="utf-8")
    settings = {"max_prepared_transactions": "10"}
    with open_embedded(place / "postgresql", settings=settings) as server:
        apply_with(server.conninfo, "onceq")
        orders = onceq.Queue("orders", str, str)

        def book(order: str, context: onceq.Context) -> str:
            del context
            return f"booked {order}"

        with serving(server.conninfo, "onceq", orders.handled_by(book)):
            yield server.conninfo, place


def test_the_page_has_a_program_for_each_way() -> None:
    assert set(programs()) == {
        "orders.py",
        "session.py",
        "shop.py",
        "beside.py",
        "elsewhere.py",
    }


@pytest.mark.parametrize("name", ["session.py", "shop.py", "beside.py", "elsewhere.py"])
def test_a_program_prints_what_the_page_says(name: str, shop: tuple[str, Path]) -> None:
    url, place = shop
    database = f"shop_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {database}".encode())
    own = {"ONCEQ_URL": url, "SHOP_URL": make_conninfo(url, dbname=database)}
    for printed in programs()[name]:
        done = subprocess.run(
            [sys.executable, name],
            cwd=place,
            env={**os.environ, **own, "PYTHONPATH": str(ROOT / "src")},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == printed
