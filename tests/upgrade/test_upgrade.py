"""A repository of an earlier version is upgraded where it is, with everything that it holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
import pytest

import onceq
from onceq.engine.schema import migrate, scripts
from onceq.errors import SchemaMismatch, SchemaMissing
from tests.parts import LIMIT_S, serving
from tests.upgrade.former import FORMER, make_former

RAW = onceq.Queue("raw", bytes, bytes)
LATER = "alter table onceq.queue add column colour text not null default 'none';\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SQL files that a test may add to, in place of the installed ones."""
    installed = Path(scripts.__file__).parents[1] / "sql"
    shutil.copytree(installed, tmp_path / "sql")
    monkeypatch.setattr(scripts, "_files", lambda: tmp_path / "sql")
    return tmp_path / "sql"


def release(files: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Makes this onceq one that has a migration more."""
    name = f"{scripts.newest() + 1:04}_later"
    (files / "migrations" / f"{name}.sql").write_text(text, "utf-8")
    monkeypatch.setattr(scripts, "MIGRATIONS", (*scripts.MIGRATIONS, name))


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
        scripts.newest(),
        scripts.tables_sha256(scripts.newest()),
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


# --- functions that were released ---------------------------------------------------------------

ASKED = """
select from {r}.create_queue('raw', true, 5, 100, 60000, 3600, 1048576, 65536, false, null);
select from {r}.connect('till', '', 1);
select from {r}.send((select registrant_id from {r}.registrant), 1, 'raw', '1', 'before', 1,
    '{{}}', 5::smallint, null, null, 'application/octet-stream', null, false, false, 1);
"""
ROUTINES = """
select oid::regprocedure::text, pg_get_function_result(oid), prokind::text, provolatile::text,
    prosrc
from pg_proc where pronamespace = %s::regnamespace order by 1
"""


def routines(conninfo: str, repository: str) -> list[tuple[str, ...]]:
    """Returns what functions there are, as of a repository called onceq."""
    with psycopg.connect(conninfo) as connection:
        found = connection.execute(ROUTINES, (repository,)).fetchall()
    return [tuple(str(value).replace(repository, "onceq") for value in row) for row in found]


@pytest.mark.parametrize("name", FORMER)
def test_the_functions_of_a_former_version_are_replaced(
    conninfo: str, repository_name: str, name: str
) -> None:
    """With what is in its tables; also those whose parameters are others now."""
    former, fresh = repository_name, f"{repository_name}_fresh"
    migrate.apply_with(conninfo, fresh)
    make_former(conninfo, former, name)
    with psycopg.connect(conninfo) as connection:
        connection.execute(ASKED.format(r=former).encode())
    assert migrate.apply_with(conninfo, former)
    assert not migrate.apply_with(conninfo, former)
    made = routines(conninfo, fresh)
    ours = {signature.partition("(")[0] for signature, *_ in made}
    upgraded = [one for one in routines(conninfo, former) if one[0].partition("(")[0] in ours]
    assert upgraded == made
    handled = RAW.handled_by(lambda request, _: request + b" and after")
    with (
        onceq.open(conninfo, repository=former) as queues,
        queues.clerk("till", RAW) as clerk,
        serving(conninfo, former, handled),
    ):
        clerk.connect()
        assert clerk.outstanding == ["1"]
        assert clerk.receive(timeout_s=LIMIT_S).value == b"before and after"
