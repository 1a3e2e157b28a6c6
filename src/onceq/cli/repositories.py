"""`onceq repository list`, `show` and `destroy`: which repositories a database has."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from onceq.cli.command import Invocation, command
from onceq.cli.config import Target, choose
from onceq.cli.output import hint
from onceq.engine.embedded import embedded_status
from onceq.engine.embedded.locate import EMBEDDED, locate
from onceq.engine.perform.driver import connect
from onceq.engine.schema import destroying, repositories
from onceq.engine.schema.repositories import RepositoryInfo
from onceq.errors import EmbeddedError, InvalidValue

if TYPE_CHECKING:
    from psycopg import Connection

app: Final = typer.Typer(
    no_args_is_help=True, help="Repositories: list those of a database, destroy one."
)

COLUMNS: Final = (
    *("name", "state", "level", "schema", "queues", "depth", "bytes", "sessions", "owner"),
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the repository.")]


def as_row(info: RepositoryInfo) -> dict[str, Any]:
    """Returns a repository as the command line shows it in a list."""
    stamp, figures = info.stamp, info.figures
    known = stamp if stamp is not None and not stamp.is_going else None
    return {
        "name": info.name,
        "state": info.state,
        "level": None if known is None else known.level,
        "serves": None if known is None else known.serves,
        "schema_version": None if stamp is None else stamp.version,
        "queues": None if figures is None else figures.queues,
        "depth": None if figures is None else figures.depth,
        "bytes": info.bytes,
        "sessions": info.sessions,
        "owner": info.owner,
    }


@command(app, "list")
def list_repositories(invoked: Invocation) -> None:
    """List the repositories of the database: level, queues, elements, bytes, who is at work.

    `sessions`: those that serve, wait, or have a transaction open; a connection that is idle does
    not count. One that this onceq cannot work with is listed without queues and depth: `state` says
    why.
    """
    target = choose(invoked.url, invoked.repository, os.environ)
    with _connected(target) as connection:
        rows = [as_row(info) for info in repositories.listed(connection)]
    shown = [row | {"schema": row["schema_version"]} for row in rows]
    invoked.output.rows(COLUMNS, rows if invoked.as_json else shown)


@command(app, "show")
def show(
    invoked: Invocation,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Default: that of --repository.")
    ] = None,
) -> None:
    """Show a repository: what it holds, what waits there, who is at work; exit 3 if there is none.

    `holders` are those who have locks of its tables now.
    """
    target = choose(invoked.url, name or invoked.repository, os.environ)
    with _connected(target) as connection:
        info = repositories.shown(connection, target.repository)
    figures = {} if info.figures is None else asdict(info.figures)
    invoked.output.item({**as_row(info), **figures, "holders": info.holders or None})


@command(app, "destroy")
def destroy(
    invoked: Invocation,
    name: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the name again.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to try while tables are locked.")
    ] = destroying.WAIT_S,
) -> None:
    """Destroy a repository in which nothing waits: its schema, its history, all of it.

    Refused (exit 1) while it has requests, replies, datagrams or failed elements, while a client is
    connected, and while somebody serves or waits. If it is interrupted, `onceq repository list`
    says so, nobody can use the repository, and the same command goes on.
    """
    target = choose(invoked.url, name, os.environ)
    with _connected(target) as connection:
        is_whole = destroying.check(connection, name, wait_s=timeout_s)
        if not yes:
            _confirm(name, connection.info.dbname)
        if not is_whole:
            hint(f"onceq: going on with repository {name!r}, which is being destroyed")
        dropped = destroying.destroy(connection, name, wait_s=timeout_s)
    invoked.output.item({"repository": name, "destroyed": True, "dropped": dropped})


def _confirm(name: str, database: str) -> None:
    """Raises InvalidValue unless a person types the name."""
    hint(f"onceq: this destroys repository {name!r} of database {database!r}, with its history.")
    sys.stderr.write("Type its name to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise InvalidValue(f"that is not {name!r}: nothing happened; type the name, or give --yes")


@contextlib.contextmanager
def _connected(target: Target) -> Generator[Connection[Any]]:
    """A session on the database. An embedded one that is not there is not made: EmbeddedError."""
    if target.url.startswith(EMBEDDED):
        directory = target.url.removeprefix(EMBEDDED)
        if embedded_status(directory).version is None:
            raise EmbeddedError(f"nothing is in {directory} yet: `onceq init` makes it")
    with contextlib.ExitStack() as opened:
        located = opened.enter_context(contextlib.closing(locate(target.url)))
        yield opened.enter_context(contextlib.closing(connect(located.conninfo)))
