"""`onceq doctor`: checks everything that must be right, changes nothing, and says what to do."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceq.cli.command import Invocation
from onceq.cli.config import Target
from onceq.cli.exits import CANNOT_CONNECT, OK, VIOLATION
from onceq.engine.connect.brief import brief_link
from onceq.engine.embedded import embedded_status
from onceq.engine.embedded.locate import EMBEDDED, Located, locate
from onceq.engine.perform.driver import connect
from onceq.engine.schema import health, migrate
from onceq.engine.schema.health import DatabaseFacts
from onceq.engine.schema.holders import connected_levels
from onceq.engine.sessions.session import DOCTOR_TELLS
from onceq.errors import OnceqError
from onceq.model import ops
from onceq.model.admin_ops import ListServers
from onceq.model.queue import QueueKind
from onceq.version import LEVEL

if TYPE_CHECKING:
    from psycopg import Connection

    from onceq.engine.sessions.levels import Stamp

COLUMNS: Final = ("check", "verdict", "found", "advice")
FREE_BYTES_WARN: Final = 1_000_000_000
FREE_BYTES_FAIL: Final = 100_000_000
CLOCK_SKEW_S: Final = 5.0
OLD_TRANSACTION_S: Final = 3600.0
CONNECTIONS_LEFT: Final = 10
ADVICE: Final = re.compile("; (?=check the |grant )")
"""Where the advice begins in the text of an error of the connection, or of a missing right."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: ok, warn or fail; what was found; what to do about it."""

    check: str
    verdict: str
    found: str
    advice: str | None = None


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
                yield disk(shutil.disk_usage(directory).free)
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
        yield from (judge(facts) for judge in JUDGES)
        yield from _examine_schema(connection, located, target.repository)


def _examine_schema(
    connection: Connection[Any], located: Located, repository: str
) -> Iterator[Finding]:
    try:
        stamp = migrate.verify(connection, repository)
    except OnceqError as error:
        yield _failed("schema", error)
        return
    yield schema(repository, stamp)
    yield sessions(connected_levels(connection), stamp.level)
    yield ownership(health.foreign_sequences(connection, repository))
    orphaned = health.orphaned_claims(connection, repository)
    connection.close()  # the next one may be the last that the role is allowed
    yield from _examine_repository(located, repository, orphaned)


def _examine_repository(located: Located, repository: str, orphaned: int) -> Iterator[Finding]:
    with brief_link(located, repository) as link:
        servers = link.perform(ListServers())
        queues = link.perform(ops.ListQueues())
    alive = {one.process for one in servers if one.alive}
    dead = [one for one in servers if not one.alive]
    holding = sum(one.claims for one in dead)
    yield _when(
        holding > 0,
        "servers",
        f"{len(alive)} process(es) alive; {len(dead)} dead session(s) hold {holding} element(s)",
        "start a server: it takes them over at once",
    )
    yield _when(
        orphaned > 0,
        "claims",
        f"{orphaned} claimed by nobody known",
        "servers give them back within minutes: start one; else report a defect",
    )
    stopped = [
        one.name
        for one in queues
        if one.kind is QueueKind.REQUEST and not (one.enqueue_started and one.dequeue_started)
    ]
    yield _when(
        bool(stopped), "queues", f"stopped: {', '.join(stopped) or 'none'}", "`onceq queue start`"
    )
    held = sum(one.held for one in queues)
    yield _when(held > 0, "errors", f"{held} failed element(s) held", "`onceq error list`")


def _failed(check: str, error: OnceqError) -> Finding:
    """Returns what an error says, without advice to run the doctor, which is running."""
    found, *advice = ADVICE.split(str(error).replace(DOCTOR_TELLS, ""), 1)
    return Finding(check, "fail", found, *advice)


def _when(bad: bool, check: str, found: str, advice: str, *, verdict: str = "warn") -> Finding:  # noqa: FBT001 # a fact, not an option
    return Finding(check, verdict if bad else "ok", found, advice if bad else None)


def disk(free: int) -> Finding:
    """Judges the free space where the embedded database is."""
    verdict = "fail" if free < FREE_BYTES_FAIL else "warn"
    return _when(
        free < FREE_BYTES_WARN,
        "disk",
        f"{free / 1e9:.1f} GB free",
        "make room: a full disk stops every send",
        verdict=verdict,
    )


def schema(repository: str, stamp: Stamp) -> Finding:
    """Judges the level of a repository with which this onceq may work."""
    return _when(
        stamp.level > LEVEL,
        "schema",
        f"{repository}: level {stamp.level}, schema {stamp.version}, serves code from level "
        f"{stamp.serves} on; this onceq is of level {LEVEL}",
        "upgrade this onceq before the repository again",
    )


def sessions(levels: Mapping[int, int], newest: int) -> Finding:
    """Judges the code that is connected. levels: sessions by level; newest: the repository's."""
    found = ", ".join(f"{count} of level {level}" for level, count in levels.items())
    return _when(
        any(level < newest for level in levels),
        "sessions",
        found or "none that says its level",
        "upgrade what is older before the repository again: pg_stat_activity.application_name says",
    )


def ownership(foreign: list[tuple[str, str]]) -> Finding:
    """Judges whether the owner owns all sequences: else neither it nor pg_dump can read them."""
    owners = ", ".join(sorted({owner for _, owner in foreign}))
    return _when(
        bool(foreign),
        "ownership",
        f"{len(foreign)} sequence(s) of another role: {owners}" if foreign else "the owner's",
        f"`onceq init`, as a superuser or a member of both roles, gives {len(foreign)} back",
        verdict="fail",
    )


def encoding(facts: DatabaseFacts) -> Finding:
    """Judges whether the database can hold every text."""
    advice = "move to a database in UTF8: text that this one cannot hold is refused"
    return _when(facts.encoding != "UTF8", "encoding", facts.encoding, advice)


def version(facts: DatabaseFacts) -> Finding:
    """Judges PostgreSQL's version."""
    major = facts.server_version // 10000
    if major < migrate.OLDEST_POSTGRES:
        oldest = f"upgrade to {migrate.OLDEST_POSTGRES} or newer"
        return Finding("postgresql", "fail", str(major), oldest)
    advice = "from 17 on the database itself bounds a stopped server's transaction"
    return _when(major < 17, "postgresql", str(major), advice)


def durability(facts: DatabaseFacts) -> Finding:
    """Judges whether a commit survives a crash."""
    found = (
        f"fsync {facts.fsync}, full_page_writes {facts.full_page_writes}, "
        f"synchronous_commit {facts.synchronous_commit}"
    )
    if "off" in {facts.fsync, facts.full_page_writes}:
        return Finding("durability", "fail", found, "turn both on: a crash loses or corrupts data")
    return _when(
        facts.synchronous_commit in {"off", "local"},
        "durability",
        found,
        "onceq turns it on for its own commits; your other transactions may be lost in a crash",
    )


def writable(facts: DatabaseFacts) -> Finding:
    """Judges whether the database takes writes."""
    found = "read only, or a standby" if facts.read_only else "yes"
    return _when(facts.read_only, "writable", found, "connect to the primary", verdict="fail")


def isolation(facts: DatabaseFacts) -> Finding:
    """Judges the default isolation level: onceq sets its own, but not that of a caller."""
    return _when(
        facts.isolation != "read committed",
        "isolation",
        facts.isolation,
        "a transaction that you pass (`connection=`) must be READ COMMITTED: begin it so",
    )


def connections(facts: DatabaseFacts) -> Finding:
    """Judges how many connections are left."""
    left = facts.max_connections - facts.connections
    found = f"{facts.connections} of {facts.max_connections} used"
    return _when(left < CONNECTIONS_LEFT, "connections", found, "raise max_connections")


def transactions(facts: DatabaseFacts) -> Finding:
    """Judges whether an old transaction keeps dead rows from being removed."""
    age_s, prepared = facts.oldest_transaction_s, facts.prepared_transactions
    return _when(
        age_s > OLD_TRANSACTION_S or prepared > 0,
        "transactions",
        f"the oldest is {age_s:.0f} s old; {prepared} prepared",
        "end what was forgotten: pg_stat_activity and pg_prepared_xacts name it",
    )


def clock(facts: DatabaseFacts) -> Finding:
    """Judges this machine's clock against the database's, which is the authority."""
    skew_s = facts.clock.timestamp() - time.time()
    found = f"{skew_s:+.1f} s from this machine's"
    return _when(abs(skew_s) > CLOCK_SKEW_S, "clock", found, "set the clocks: expiry goes by it")


def idle_sessions(facts: DatabaseFacts) -> Finding:
    """Judges whether the database ends idle sessions; servers have such sessions."""
    limit = facts.idle_session_timeout
    found = "kept" if limit == "0" else f"ended after {limit}"
    return _when(limit != "0", "idle sessions", found, "set idle_session_timeout to 0")


JUDGES: Final[tuple[Callable[[DatabaseFacts], Finding], ...]] = (
    version,
    encoding,
    durability,
    writable,
    isolation,
    connections,
    transactions,
    clock,
    idle_sessions,
)
