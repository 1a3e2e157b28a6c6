"""A repository as a former onceq made it: its tables, and its functions, `NAME.sql.xz`."""

from __future__ import annotations

import lzma
from pathlib import Path

import psycopg

from onceq.engine.schema import scripts

HERE = Path(__file__).parent
FORMER = {"0.1.0": 2, "0.1.0-5": 5}
"""The functions of a former onceq, `NAME.sql.xz`, and how many of the migrations it had.

Each is its files in the order of its FUNCTION_FILES: of 0.1.0, and of the first with an archive.
"""


def make_former(conninfo: str, repository: str, name: str) -> None:
    """Makes an empty repository of a former onceq."""
    with lzma.open(HERE / f"{name}.sql.xz", "rt", encoding="utf-8") as file:
        functions = file.read()
    tables = scripts.tables(0, FORMER[name])
    text = "\n".join([f"create schema {repository};", tables, functions])
    digest = scripts.tables_sha256(FORMER[name])
    with psycopg.connect(conninfo) as connection:
        connection.execute(scripts.in_schema(text, repository).encode())
        connection.execute(
            f"insert into {repository}.repository"
            " (name, schema_version, tables_sha256, functions_sha256)"
            " values (%s, %s, %s, 'former')".encode(),
            (repository, FORMER[name], digest),
        )
