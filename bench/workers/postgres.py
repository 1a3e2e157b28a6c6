"""What the systems on PostgreSQL share: connection strings, and the user's table.

Imports psycopg, which is in the project's environment and in that of the peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.workers.base import WrongError, require_count

if TYPE_CHECKING:
    from typing import LiteralString

EFFECT = "insert into effect (body) values (%s)"
EFFECT_NUMBERED = "insert into effect (body) values ($1)"  # for those without psycopg


def parts(conninfo: str) -> dict[str, str]:
    """Return host, port, user, password and dbname, those that are given."""
    wanted = ("host", "port", "user", "password", "dbname")
    given = conninfo_to_dict(conninfo)
    return {name: str(given[name]) for name in wanted if given.get(name)}


def asyncpg_arguments(conninfo: str) -> dict[str, str]:
    """Return the arguments of asyncpg.connect, which reads no connection strings of libpq."""
    given = parts(conninfo)
    return {"database" if name == "dbname" else name: value for name, value in given.items()}


def url(conninfo: str, scheme: str = "postgresql") -> str:
    """Return a URL; host and port stand in its query, as the host may be a directory."""
    given = parts(conninfo)
    who = quote(given.get("user", ""), safe="")
    if "password" in given:
        who += ":" + quote(given["password"], safe="")
    where = {name: value for name, value in given.items() if name in {"host", "port"}}
    return f"{scheme}://{who}@/{quote(given['dbname'], safe='')}?{urlencode(where)}"


def number(connection: psycopg.Connection[Any], query: LiteralString) -> int:
    """Return the one number that a query finds."""
    row = connection.execute(query).fetchone()
    if row is None:
        raise WrongError(f"no row: {query}")
    return int(row[0])


def exists(connection: psycopg.Connection[Any], table: LiteralString) -> bool:
    """Say whether there is such a table."""
    return bool(number(connection, f"select (to_regclass('{table}') is not null)::int"))


def settle(connection: psycopg.Connection[Any]) -> None:
    """Let the planner know what a queue filled just now holds, as autovacuum would in time."""
    connection.execute("vacuum analyze")


def empty_effects(conninfo: str) -> None:
    """Make the user's table, or empty it."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("create table if not exists effect (body bytea)")
        connection.execute("truncate effect")


def require_effects(conninfo: str, expected: int) -> None:
    """Raise WrongError unless the user's table has that many rows."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        found = number(connection, "select count(*) from effect")
    require_count("rows in the user's table", found, expected)
