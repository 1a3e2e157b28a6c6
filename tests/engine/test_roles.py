"""A role that serves and sends, and can make and drop nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceq.engine.schema import migrate
from tests.engine.test_places import use
from tests.parts import plain, rows

if TYPE_CHECKING:
    from collections.abc import Generator

GRANTS = """
    grant usage on schema {0} to {1};
    grant select, insert, update, delete on all tables in schema {0} to {1};
    grant usage, select, update on all sequences in schema {0} to {1};
    alter default privileges for role {2} in schema {0}
        grant usage, select, update on sequences to {1};
"""
"""The rights of a role that serves and sends; docs/deploy.md has them too."""


@pytest.fixture
def owner_and_role(conninfo: str, repository_name: str) -> Generator[tuple[str, str]]:
    """An owner with CREATE on the database, and a role with no right at all."""
    names = (f"{repository_name}_owner", f"{repository_name}_role")
    with plain(conninfo) as connection:
        for name in names:
            connection.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        grant = sql.SQL("grant create on database {} to {}")
        database = sql.Identifier(connection.info.dbname)
        connection.execute(grant.format(database, sql.Identifier(names[0])))
        yield names
        for name in names:
            connection.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(name)))
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_a_role_that_may_make_nothing_serves_and_sends(
    conninfo: str, repository_name: str, owner_and_role: tuple[str, str]
) -> None:
    repository, owner, role = map(sql.Identifier, (repository_name, *owner_and_role))
    as_owner, as_role = (make_conninfo(conninfo, user=name) for name in owner_and_role)
    migrate.apply_with(as_owner, repository_name)
    with plain(conninfo) as connection:
        connection.execute(sql.SQL(GRANTS).format(repository, role, owner))
    use(as_role, repository_name)
    for refused in (
        sql.SQL("create table {}.mine ()"),
        sql.SQL("drop table {}.element"),
        sql.SQL("drop sequence {}.started_1"),
    ):
        with plain(as_role) as other, pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute(refused.format(repository))
    with plain(as_role) as other, pytest.raises(psycopg.errors.InvalidParameterValue):
        other.execute(sql.SQL("select {}.make_sequence('mine', 0)").format(repository))
    assert rows(conninfo, f"select sequence from {repository_name}.foreign_sequences()") == []
