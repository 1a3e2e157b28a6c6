"""`onceq init`, `url`, `psql`, `stop`, `version`: the repository as a whole."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceq import telemetry
from onceq.cli.command import Invocation
from onceq.cli.config import Target, chosen_repository
from onceq.cli.exits import OK
from onceq.cli.output import hint
from onceq.engine.connect import address
from onceq.engine.embedded import find_binaries, stop_embedded
from onceq.engine.embedded.locate import EMBEDDED, locate
from onceq.engine.perform.driver import connect
from onceq.engine.schema import migrate, scripts, upgrading
from onceq.errors import EmbeddedError, InvalidValue, MissingExtra
from onceq.version import LEVEL, __version__

if TYPE_CHECKING:
    from psycopg import Connection


def init(
    invoked: Invocation,
    *,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="Only print the SQL that it would run.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to try while tables are locked.")
    ] = migrate.WAIT_S,
) -> None:
    """Create the repository's schema, or bring it up to date; running it again is harmless.

    Exit 1: its tables stayed locked, or code that the new level does not serve is at work.
    """
    if print_sql:
        script = _script(invoked)
        invoked.output.either({"sql": script}, script)
        return
    target = invoked.target
    with _connected(target) as connection:
        name = target.repository
        changed = migrate.apply(connection, name, wait_s=timeout_s, told=_waits)
        stamp = migrate.verify(connection, name)
    made = {"changed": changed, "level": stamp.level, "schema_version": stamp.version}
    invoked.output.item({"repository": target.repository, **made})


def _script(invoked: Invocation) -> str:
    """Returns what `init` would run: where no database is named, on one without the repository."""
    try:
        target = invoked.target
    except InvalidValue:
        return upgrading.script(chosen_repository(invoked.repository), None)
    with _connected(target) as connection:
        return migrate.script(connection, target.repository)


@contextlib.contextmanager
def _connected(target: Target) -> Generator[Connection[Any]]:
    with contextlib.ExitStack() as opened:
        located = opened.enter_context(contextlib.closing(locate(target.url)))
        yield opened.enter_context(contextlib.closing(connect(located.conninfo)))


def _waits(event: telemetry.UpgradeWaits) -> None:
    hint(
        f"onceq: locks of repository {event.repository!r} are held by {event.holders}; "
        f"trying again in {event.delay_s:g} s"
    )


def url(
    invoked: Invocation,
    *,
    show_password: Annotated[
        bool, typer.Option("--show-password", help="Do not mask the password.")
    ] = False,
) -> None:
    """Print the libpq URL of the database, for psql and other programs."""
    target = invoked.target
    with contextlib.closing(locate(target.url)) as located:
        found = address.as_url(located.conninfo, show_password=show_password)
    invoked.output.either({"url": found, "repository": target.repository}, found)
    if target.url.startswith(EMBEDDED):
        hint("onceq: the embedded server runs only while somebody uses it (`onceq psql` does)")


def psql(
    invoked: Invocation,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Passed to psql; write -- before those that begin with -."),
    ] = None,
) -> int:
    """Run psql on the database, with the repository's schema at the end of the search path."""
    target = invoked.target
    with contextlib.closing(locate(target.url)) as located:
        conninfo, secret = address.without_password(located.conninfo)
        conninfo = address.with_search_path(
            conninfo,
            f"{address.search_path(located.conninfo)},{target.repository}",
            os.environ.get("PGOPTIONS", ""),
        )
        environment = dict(os.environ)
        if secret is not None:
            environment["PGPASSWORD"] = secret
        # A child, not exec: the embedded server stays, being used, until psql has ended.
        # Ctrl-C is for psql, which cancels the query. A handler, as a child inherits SIG_IGN.
        former = signal.signal(signal.SIGINT, lambda _number, _frame: None)
        try:
            command = [str(_psql_program()), conninfo, *(arguments or [])]
            return subprocess.run(command, env=environment, check=False).returncode
        finally:
            signal.signal(signal.SIGINT, former)


def _psql_program() -> Path | str:
    with contextlib.suppress(EmbeddedError):
        bundled = find_binaries().program("psql")
        if bundled.exists():
            return bundled
    found = shutil.which("psql")
    if found is None:
        raise MissingExtra(
            "psql is not installed: pip install 'onceq[embedded]' brings one, as does your "
            "system's package of PostgreSQL's client"
        )
    return found


def stop(
    invoked: Invocation,
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Stop it even if others use it: they lose their connections."),
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds to wait for it to stop.")
    ] = 30.0,
) -> int:
    """Stop the embedded server of a directory; committed work is kept."""
    target = invoked.target
    if not target.url.startswith(EMBEDDED):
        raise InvalidValue("only an embedded server is stopped: give --url embedded:PATH")
    directory = target.url.removeprefix(EMBEDDED)
    stopped = stop_embedded(directory, timeout_s=timeout_s, force=force)
    invoked.output.item({"directory": directory, "stopped": stopped})
    if not stopped:
        hint("onceq: it was not running")
    return OK


def version(invoked: Invocation) -> None:
    """Print the versions of onceq, its schema and Python."""
    versions = {
        "version": __version__,
        "level": LEVEL,
        "schema_version": scripts.newest(),
        "python": platform.python_version(),
    }
    invoked.output.either(versions, f"onceq {__version__}")
