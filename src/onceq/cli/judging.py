"""How the doctor judges what it is told of a database and of a repository: one function a check.

Pure: `onceq.engine.schema` finds the facts, `doctor` asks and prints.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from onceq.cli.findings import Finding, when
from onceq.engine.schema import migrate
from onceq.engine.schema.horizon import SHOWN
from onceq.version import LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceq.engine.schema.health import DatabaseFacts, StaleClaims
    from onceq.engine.schema.horizon import HorizonHolder, TableRows
    from onceq.engine.sessions.levels import Stamp

FREE_BYTES_WARN: Final = 1_000_000_000
FREE_BYTES_FAIL: Final = 100_000_000
CLOCK_SKEW_S: Final = 5.0
CONNECTIONS_LEFT: Final = 10
OLD_TRANSACTION_S: Final = 3600.0
"""Longer than this nobody is expected to work in one transaction ..."""
IDLE_TRANSACTION_S: Final = 300.0
"""... or to have one open and do nothing ..."""
BEHIND: Final = 1_000_000
"""... or while so many transactions begin: each may leave dead rows."""
DEAD_ROWS: Final = 100_000
"""With so many dead rows, more than live ones, a table should have been vacuumed lately ..."""
VACUUMED_S: Final = 600.0
"""... that is, in so many seconds: autovacuum looks once a minute ..."""
DEAD_ROWS_MOST: Final = 1_000_000
"""... and so many it should not have even then: something keeps them."""


def disk(free: int) -> Finding:
    """Judges the free space where the embedded database is."""
    verdict = "fail" if free < FREE_BYTES_FAIL else "warn"
    return when(
        "disk",
        f"{free / 1e9:.1f} GB free",
        "make room: a full disk stops every send",
        bad=free < FREE_BYTES_WARN,
        verdict=verdict,
    )


def schema(repository: str, stamp: Stamp) -> Finding:
    """Judges the level of a repository with which this onceq may work."""
    return when(
        "schema",
        f"{repository}: level {stamp.level}, schema {stamp.version}, serves code from level "
        f"{stamp.serves} on; this onceq is of level {LEVEL}",
        "upgrade this onceq before the repository again",
        bad=stamp.level > LEVEL,
    )


def sessions(levels: Mapping[int, int], newest: int) -> Finding:
    """Judges the code that is connected. levels: sessions by level; newest: the repository's."""
    found = ", ".join(f"{count} of level {level}" for level, count in levels.items())
    return when(
        "sessions",
        found or "none that says its level",
        "upgrade what is older before the repository again: pg_stat_activity.application_name says",
        bad=any(level < newest for level in levels),
    )


def ownership(foreign: list[tuple[str, str]]) -> Finding:
    """Judges whether the owner owns all sequences: else neither it nor pg_dump can read them."""
    owners = ", ".join(sorted({owner for _, owner in foreign}))
    return when(
        "ownership",
        f"{len(foreign)} sequence(s) of another role: {owners}" if foreign else "the owner's",
        f"`onceq init`, as a superuser or a member of both roles, gives {len(foreign)} back",
        bad=bool(foreign),
        verdict="fail",
    )


def encoding(facts: DatabaseFacts) -> Finding:
    """Judges whether the database can hold every text."""
    advice = "move to a database in UTF8: text that this one cannot hold is refused"
    return when("encoding", facts.encoding, advice, bad=facts.encoding != "UTF8")


def version(facts: DatabaseFacts) -> Finding:
    """Judges PostgreSQL's version."""
    major = facts.server_version // 10000
    if major < migrate.OLDEST_POSTGRES:
        oldest = f"upgrade to {migrate.OLDEST_POSTGRES} or newer"
        return Finding("postgresql", "fail", str(major), oldest)
    advice = "from 17 on the database itself bounds a stopped server's transaction"
    return when("postgresql", str(major), advice, bad=major < 17)


def durability(facts: DatabaseFacts) -> Finding:
    """Judges whether a commit survives a crash."""
    found = (
        f"fsync {facts.fsync}, full_page_writes {facts.full_page_writes}, "
        f"synchronous_commit {facts.synchronous_commit}"
    )
    if "off" in {facts.fsync, facts.full_page_writes}:
        return Finding("durability", "fail", found, "turn both on: a crash loses or corrupts data")
    return when(
        "durability",
        found,
        "onceq turns it on for its own commits; your other transactions may be lost in a crash",
        bad=facts.synchronous_commit in {"off", "local"},
    )


def writable(facts: DatabaseFacts) -> Finding:
    """Judges whether the database takes writes."""
    found = "read only, or a standby" if facts.read_only else "yes"
    return when("writable", found, "connect to the primary", bad=facts.read_only, verdict="fail")


def isolation(facts: DatabaseFacts) -> Finding:
    """Judges the default isolation level: onceq sets its own, but not that of a caller."""
    return when(
        "isolation",
        facts.isolation,
        "a transaction that you pass (`connection=`) must be READ COMMITTED: begin it so",
        bad=facts.isolation != "read committed",
    )


def connections(facts: DatabaseFacts) -> Finding:
    """Judges how many connections are left."""
    left = facts.max_connections - facts.connections
    found = f"{facts.connections} of {facts.max_connections} used"
    return when("connections", found, "raise max_connections", bad=left < CONNECTIONS_LEFT)


def transactions(holders: list[HorizonHolder]) -> Finding:
    """Judges whether something keeps dead rows from being removed. holders: the oldest first."""
    found = ", ".join(map(str, holders)) or "nothing holds xmin back"
    return when(
        "transactions",
        found,
        "it keeps dead rows in all tables: end what was forgotten, by pg_terminate_backend(pid), "
        "ROLLBACK PREPARED, or pg_drop_replication_slot",
        bad=any(holds_for_long(one) for one in holders),
    )


def holds_for_long(holder: HorizonHolder) -> bool:
    """Whether what holds the horizon is old, or is nothing that ends by itself."""
    idle = (holder.state or "").startswith("idle in transaction")
    limit_s = IDLE_TRANSACTION_S if idle else OLD_TRANSACTION_S
    lasts = holder.kind == "prepared transaction" or holder.state == "inactive"
    return lasts or holder.behind > BEHIND or (holder.age_s or 0.0) > limit_s


def dead_rows(tables: list[TableRows], *, is_on: bool) -> Finding:
    """Judges whether dead rows are removed. tables: with most first; is_on: autovacuum is."""
    off = [one.name for one in tables if one.is_off]
    if off or not is_on:
        where = "" if not is_on else f" for {', '.join(off)}"
        found = f"autovacuum is off{where}: {'; '.join(map(str, tables[:SHOWN]))}"
        advice = "turn on autovacuum and track_counts: tables that change all the time need them"
        return Finding("dead rows", "fail", found, advice)
    neglected = [one for one in tables if is_neglected(one)]
    some = [one for one in tables[:SHOWN] if one.dead]
    return when(
        "dead rows",
        "; ".join(map(str, neglected or some)) or f"none in {len(tables)} tables",
        "end what `transactions` names; then VACUUM, and give autovacuum more workers, less delay",
        bad=bool(neglected),
    )


def is_neglected(table: TableRows) -> bool:
    """Whether a table has more dead rows than vacuuming in time would leave."""
    lately = table.vacuumed_s is not None and table.vacuumed_s <= VACUUMED_S
    most = DEAD_ROWS_MOST if lately else DEAD_ROWS
    return table.dead > max(most, table.live)


def claims(stale: StaleClaims) -> Finding:
    """Judges whether something is claimed by somebody who has ended."""
    parts = (
        (stale.gone, "of sessions that ended, and nobody has taken over"),
        (stale.missing, f"waiting for a verdict, for {stale.missing_s or 0:.0f} s"),
        (stale.spark, "of Spark servers that ended"),
        (stale.unknown, "claimed by nobody known"),
    )
    found = "; ".join(f"{count} {what}" for count, what in parts if count)
    return when(
        "claims",
        found or "none is stale",
        "start a server, or the Spark server again: it takes them over, what waits for a verdict "
        "within a minute; if they stay, report a defect",
        bad=bool(found),
    )


def clock(facts: DatabaseFacts) -> Finding:
    """Judges this machine's clock against the database's, which is the authority."""
    skew_s = facts.clock.timestamp() - time.time()
    found = f"{skew_s:+.1f} s from this machine's"
    return when("clock", found, "set the clocks: expiry goes by it", bad=abs(skew_s) > CLOCK_SKEW_S)


def idle_sessions(facts: DatabaseFacts) -> Finding:
    """Judges whether the database ends idle sessions; servers have such sessions."""
    limit = facts.idle_session_timeout
    found = "kept" if limit == "0" else f"ended after {limit}"
    return when("idle sessions", found, "set idle_session_timeout to 0", bad=limit != "0")


JUDGES: Final[tuple[Callable[[DatabaseFacts], Finding], ...]] = (
    version,
    encoding,
    durability,
    writable,
    isolation,
    connections,
    clock,
    idle_sessions,
)
