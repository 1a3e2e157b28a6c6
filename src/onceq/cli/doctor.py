"""`onceq doctor`: checks everything that must be right, changes nothing, and says what to do."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceq.cli import judging, security
from onceq.cli.command import Invocation
from onceq.cli.config import Target
from onceq.cli.exits import CANNOT_CONNECT, OK, VIOLATION
from onceq.cli.findings import Finding, when
from onceq.engine.connect.brief import brief_link
from onceq.engine.embedded import embedded_status
from onceq.engine.embedded.locate import EMBEDDED, Located, locate
from onceq.engine.perform.driver import connect
from onceq.engine.schema import health, horizon, migrate
from onceq.engine.schema import security as secured
from onceq.engine.schema.holders import connected_levels
from onceq.engine.sessions.session import DOCTOR_TELLS
from onceq.errors import OnceqError
from onceq.model import ops
from onceq.model.admin_ops import ListServers
from onceq.model.queue import QueueKind

if TYPE_CHECKING:
    from psycopg import Connection

COLUMNS: Final = ("check", "verdict", "found", "advice")
ADVICE: Final = re.compile("; (?=check the |grant )")
"""Where the advice begins in the text of an error of the connection, or of a missing right."""


def doctor(invoked: Invocation) -> int:
    """Check the database, the schema, the settings, the servers and the disk.

    Exit 0: nothing failed, though there may be warnings; 1: a check failed; 4: cannot connect.
    """
    findings = list(_examine(invoked.target))
    invoked.output.rows(COLUMNS, [asdict(finding) for finding in findings])
    failed = [finding.check for finding in findings if finding.verdict == "fail"]
    if "connection" in failed:
        return CANNOT_CONNECT
    return VIOLATION if failed else OK


def _examine(target: Target) -> Iterator[Finding]:
    with ExitStack() as opened:
        try:
            if target.url.startswith(EMBEDDED):
                directory = Path(target.url.removeprefix(EMBEDDED))
                if embedded_status(directory).version is None:
                    found = f"nothing is in {directory} yet"
                    yield Finding("connection", "fail", found, "`onceq init` makes it")
                    return
                yield judging.disk(shutil.disk_usage(directory).free)
            located = opened.enter_context(closing(locate(target.url)))
            connect(located.conninfo).close()  # only one at a time: it may be all that a role has
            began = time.monotonic()
            facts = health.database_facts(located.conninfo)
            took_ms = (time.monotonic() - began) * 1000
            connection = opened.enter_context(closing(connect(located.conninfo)))
        except OnceqError as error:
            yield _failed("connection", error)
            return
        answers = f"connects and answers in {took_ms:.1f} ms, no pooler between"
        yield Finding("connection", "ok", answers)
        yield from (judge(facts) for judge in judging.JUDGES)
        yield judging.transactions(horizon.horizon_holders(connection))
        reach = secured.reach(connection)
        yield from (security.tls(reach), security.passwords(reach))
        yield security.login(reach, embedded=located.embedded is not None)
        yield from _examine_schema(connection, located, target.repository)


def _examine_schema(
    connection: Connection[Any], located: Located, repository: str
) -> Iterator[Finding]:
    try:
        stamp = migrate.verify(connection, repository)
    except OnceqError as error:
        yield _failed("schema", error)
        return
    yield judging.schema(repository, stamp)
    yield judging.sessions(connected_levels(connection), stamp.level)
    yield judging.ownership(health.foreign_sequences(connection, repository))
    yield security.public_rights(repository, secured.public_rights(connection, repository))
    yield security.strangers(secured.strangers(connection, repository))
    tables = horizon.table_rows(connection, repository)
    yield judging.dead_rows(tables, is_on=horizon.autovacuum_is_on(connection))
    yield judging.claims(health.stale_claims(connection, repository))
    connection.close()  # the next one may be the last that the role is allowed
    yield from _examine_repository(located, repository)


def _examine_repository(located: Located, repository: str) -> Iterator[Finding]:
    with brief_link(located, repository) as link:
        servers = link.perform(ListServers())
        queues = link.perform(ops.ListQueues())
    alive = {one.process for one in servers if one.alive}
    dead = [one for one in servers if not one.alive]
    holding = sum(one.claims for one in dead)
    yield when(
        "servers",
        f"{len(alive)} process(es) alive; {len(dead)} dead session(s) hold {holding} element(s)",
        "start a server: it takes them over at once",
        bad=holding > 0,
    )
    stopped = [
        one.name
        for one in queues
        if one.kind is QueueKind.REQUEST and not (one.enqueue_started and one.dequeue_started)
    ]
    yield when(
        "queues",
        f"stopped: {', '.join(stopped) or 'none'}",
        "`onceq queue start`",
        bad=bool(stopped),
    )
    held = sum(one.held for one in queues)
    yield when(
        "errors", f"{held} failed element(s) held", "`onceq error list --group`", bad=held > 0
    )


def _failed(check: str, error: OnceqError) -> Finding:
    """Returns what an error says, without advice to run the doctor, which is running."""
    found, *advice = ADVICE.split(str(error).replace(DOCTOR_TELLS, ""), 1)
    return Finding(check, "fail", found, *advice)
