"""A repository of an earlier version is upgraded where it is, with everything that it holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
import pytest

import onceq
from onceq.engine import migrate, schema
from onceq.errors import SchemaMismatch, SchemaMissing

RAW = onceq.Queue("raw", bytes, bytes)
LATER = "alter table onceq.queue add column colour text not null default 'none';\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SQL files that a test may add to, in place of the installed ones."""
    installed = Path(schema.__file__).parent / "sql"
    shutil.copytree(installed, tmp_path / "sql")
    monkeypatch.setattr(schema, "_files", lambda: tmp_path / "sql")
    return tmp_path / "sql"


def release(files: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Makes this onceq one that has a migration more."""
    name = f"{schema.newest() + 1:04}_later"
    (files / "migrations" / f"{name}.sql").write_text(text, "utf-8")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, name))


def versions(conninfo: str, repository: str) -> tuple[object, ...]:
    with psycopg.connect(conninfo) as connection:
        query = f"select schema_version, tables_sha256 from {repository}.repository"
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row


def test_the_tables_are_upgraded_and_the_requests_stay(
    conninfo: str, repository: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with onceq.open(conninfo, repository=repository) as queues, queues.clerk("till", RAW) as clerk:
        queues.declare(RAW)
        clerk.connect()
        clerk.send("1", b"before")
    release(files, monkeypatch, LATER)
    with pytest.raises(SchemaMismatch, match="onceq init"):
        onceq.open(conninfo, repository=repository)
    assert migrate.apply_with(conninfo, repository)
    assert not migrate.apply_with(conninfo, repository)
    assert versions(conninfo, repository) == (
        schema.newest(),
        schema.tables_sha256(schema.newest()),
    )
    with onceq.open(conninfo, repository=repository) as queues, queues.clerk("till", RAW) as clerk:
        clerk.connect()
        assert clerk.last_sent == "1"
        assert clerk.outstanding == ["1"]


def test_a_new_repository_has_what_an_upgraded_one_has(
    conninfo: str, repository: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(files, monkeypatch, LATER)
    migrate.apply_with(conninfo, repository)
    fresh = f"{repository}_fresh"
    migrate.apply_with(conninfo, fresh)
    query = (
        "select table_name, column_name, data_type, is_nullable, column_default"
        " from information_schema.columns where table_schema = %s order by 1, 2"
    )
    with psycopg.connect(conninfo) as connection:
        upgraded, made = (
            [
                tuple(str(value).replace(name, "onceq") for value in row)
                for row in connection.execute(query, (name,)).fetchall()
            ]
            for name in (repository, fresh)
        )
        connection.execute(f"drop schema {fresh} cascade".encode())
    assert upgraded == made
    assert ("queue", "colour") in [row[:2] for row in made]


def test_a_migration_that_fails_changes_nothing(
    conninfo: str, repository: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = versions(conninfo, repository)
    release(files, monkeypatch, LATER + "alter table onceq.nowhere add column x int;\n")
    with pytest.raises(SchemaMissing, match="nowhere"):
        migrate.apply_with(conninfo, repository)
    assert versions(conninfo, repository) == before


def test_tables_that_no_release_made_are_refused(conninfo: str, repository: str) -> None:
    with psycopg.connect(conninfo) as connection:
        connection.execute(f"update {repository}.repository set tables_sha256 = 'x'".encode())
    with pytest.raises(SchemaMismatch, match=r"before 0\.1\.0"):
        migrate.apply_with(conninfo, repository)
    with psycopg.connect(conninfo) as connection:
        connection.execute(f"alter table {repository}.repository drop tables_sha256".encode())
    with pytest.raises(SchemaMismatch, match=r"before 0\.1\.0"):
        onceq.open(conninfo, repository=repository)
