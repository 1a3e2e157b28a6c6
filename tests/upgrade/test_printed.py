"""`onceq init --print-sql` prints what `init` runs, for psql (ADR 32)."""

from __future__ import annotations

import subprocess

import pytest

from onceq.engine.embedded import find_binaries
from onceq.engine.schema import migrate, upgrading
from onceq.engine.sessions import levels
from tests.cli.parts import run_here
from tests.parts import plain, rows
from tests.upgrade.former import make_former
from tests.upgrade.looks import shape, stamp


def printed(conninfo: str, repository: str) -> str:
    answer = run_here("init", "--print-sql", "--url", conninfo, "--repository", repository)
    assert answer.code == 0
    return answer.out


def run_by_psql(conninfo: str, script: str) -> subprocess.CompletedProcess[str]:
    psql = str(find_binaries().program("psql"))
    return subprocess.run(
        [psql, conninfo, "-q", "-v", "ON_ERROR_STOP=1"],
        input=script,
        text=True,
        check=False,
        capture_output=True,
    )


@pytest.mark.parametrize("name", ["0.1.0", "0.1.0-5", "none"])
def test_what_is_printed_does_what_init_does(
    conninfo: str, repository_name: str, name: str
) -> None:
    ours, other = repository_name, f"{repository_name}_other"
    with plain(conninfo) as connection:
        try:
            for one in (ours, other) if name != "none" else ():
                make_former(conninfo, one, name)
            script = printed(conninfo, ours)
            assert run_by_psql(conninfo, script).returncode == 0
            assert migrate.apply_with(conninfo, other)
            assert shape(conninfo, ours) == shape(conninfo, other)
            assert stamp(conninfo, ours) == stamp(conninfo, other) == upgrading.made()
            assert not migrate.apply_with(conninfo, ours)
            again = run_by_psql(conninfo, script)
            assert again.returncode == 3
            assert "print this script again" in again.stderr
            assert "is up to date" in printed(conninfo, ours)
            assert run_by_psql(conninfo, printed(conninfo, ours)).returncode == 0
        finally:
            connection.execute(f"drop schema if exists {other} cascade".encode())


def test_what_is_printed_is_what_init_runs(
    conninfo: str, released: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = printed(conninfo, released)
    body = upgrading.body
    ran: list[str] = []

    def noted(repository: str, stamp: levels.Stamp | None) -> str:
        ran.append(body(repository, stamp))
        return ran[-1]

    monkeypatch.setattr(upgrading, "body", noted)
    assert migrate.apply_with(conninfo, released)
    give = upgrading.GIVE.format(r=released)
    assert script.rstrip().endswith(f"begin;\n{ran[0]}\ncommit;\n{give}")


SMALL = {"spark_server", "spark_server_pkey", "spark_server_name_key"}
"""A row for each Spark server: a migration may rewrite it, as one did that gave them numbers."""


def test_no_migration_rewrites_a_table_that_may_be_large(conninfo: str, released: str) -> None:
    query = (
        "select relname, pg_relation_filenode(oid) from pg_class"
        " where relnamespace = %s::regnamespace and relkind in ('r', 'i')"
    )
    before = {name: file for name, file in rows(conninfo, query, released) if name not in SMALL}
    migrate.apply_with(conninfo, released)
    after = dict(rows(conninfo, query, released))
    assert "element" in before
    assert {name: after.get(name) for name in before} == before
