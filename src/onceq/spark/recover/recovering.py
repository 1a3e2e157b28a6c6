"""Bulk recovery: where the last request of each client stands, and which requests are stuck.

Public through `onceq.spark.pipelines`. The clients' own ledgers are joined with what the
repository has: registrations, queues, and history, archived or not. The conclusion is drawn
by the function that a clerk's `recover` uses (`onceq.model.recovery.decide`), so both say the same.
Queues are read before history: what leaves one is then found in the other. Never writes: the
clients themselves act upon it. Source: spec P8, C3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.errors import InvalidValue
from onceq.model.archive_ops import ArchiveManifest, Kind
from onceq.model.client_state import STATES
from onceq.model.element import ElementState, Lane, Role
from onceq.model.ledger import Entry, LastRequest
from onceq.model.names import check_range
from onceq.model.recovery import NONE, Place, Standing, Tags, by_registration, decide, place_of
from onceq.spark.archive.records import all_records
from onceq.spark.archive.sessions import read_table, reading_session
from onceq.spark.arrow import RecordBatch, pa, schema_of
from onceq.spark.recover.ledgers import CLIENT, ENTRY, entries_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STUCK_AFTER_S_MAX: Final = 3_153_600_000
_ELEMENTS: Final = (
    *("registrant", "thread", "rid", "eid", "queue", "role", "is_claimed", "lane", "aborts"),
    *("code", "error", "enqueued_at", "not_before"),
)
_ENDED: Final = ("registrant", "thread", "rid")
_WAITS: Final = f"role in ('{Role.REQUEST}', '{Role.REPLY}') and lane <> {Lane.KEPT}"
_STATE: Final = (
    f"case when role = '{Role.REPLY}' and lane = {Lane.KEPT} then '{ElementState.KEPT}'"
    f" when role = '{Role.REPLY}' then '{ElementState.REPLIED}'"
    f" when lane = {Lane.HELD} then '{ElementState.HELD}' else '{ElementState.QUEUED}' end"
)
_STUCK: Final = {
    "held in an error queue": f"lane = {Lane.HELD} and role = '{Role.FAILED}'",
    "held in its own queue": f"lane = {Lane.HELD}",
    "suspect": f"lane = {Lane.SUSPECT}",
    "reply not collected": f"role = '{Role.REPLY}' and lane = {Lane.REPLY} and since <= {{late}}",
    "executing for long": "is_claimed and since <= {late}",
    "waiting for long": f"role in ('{Role.REQUEST}', '{Role.DATAGRAM}') and since <= {{late}}",
}
"""Why an element is stuck: the first that fits. since: it was enqueued, or became due."""
CLIENTS: Final = (
    "registrant string, thread string, state string, rid string, next_step string,"
    " rests_on string, was string, outstanding bigint, r_rid string, ckpt binary,"
    " has_ledger boolean"
)
_ARROW: Final = schema_of(CLIENTS)


@dataclass(frozen=True, slots=True)
class Recovered:
    """A row for each client, with its state (A to E) and what it should do; and what is stuck.

    Two DataFrames, for use in the block of `recovery`. outstanding: how many requests of the
    client are not acknowledged. State A without a rid: there never was a request.
    """

    clients: DataFrame
    stuck: DataFrame


@contextlib.contextmanager
def recovery(
    session: SparkSession,
    ledgers: DataFrame | None = None,
    url: str | None = None,
    *,
    repository: str = "onceq",
    stuck_after_s: int = 3600,
) -> Generator[Recovered]:
    """Yields where the last request of each client stands, and what is stuck, while the block runs.

    ledgers: a row for each client that keeps one: registrant, thread (may be missing),
    last_request, last_enqueued, last_dequeued, which are rids; or owner, entry and digest, as in
    the tables `onceq_ledger`. They must not be newer than this call. For a client without a
    ledger only the registration tells. stuck_after_s: how long until a request, or a reply that
    nobody collects, counts as stuck. Sets what `onceq.spark.session.REQUIRED_SETTINGS` says. Raises
    InvalidValue (other columns, two ledgers of a client), CannotConnect, SchemaMissing.
    """
    check_range("stuck_after_s", stuck_after_s, 0, STUCK_AFTER_S_MAX)
    with reading_session(session, url, repository) as route, contextlib.ExitStack() as undo:
        seen = _Seen(session, route)
        entries = entries_of(session, ledgers, seen.repository_id).persist()
        undo.callback(entries.unpersist)
        _refuse_doubles(entries)
        for table in (seen.registrations, seen.elements):
            table.persist().count()  # now, and before history
            undo.callback(table.unpersist)
        yield Recovered(_clients(entries, seen), _stuck(seen, stuck_after_s))


class _Seen:
    """What a repository has. now_us: its clock."""

    def __init__(self, session: SparkSession, route: Route) -> None:
        query = (
            "select (extract(epoch from {schema}.now()) * 1000000)::bigint, repository_id::text"
            " from {schema}.repository"
        )
        with spark_driver(route) as driver:
            ((self.now_us, self.repository_id),) = [
                row for rows in driver.rows(query, [], 1) for row in rows
            ]
            manifest = driver.perform(ArchiveManifest(kind=Kind.HISTORY))
        self.registrations = read_table(session, route, "registrations")
        self.elements = read_table(session, route, "elements", _ELEMENTS)
        self.ended = all_records(session, route, manifest, columns=_ENDED)


def _refuse_doubles(entries: DataFrame) -> None:
    twice = entries.groupBy(*CLIENT).count().where("count > 1").limit(1).collect()
    if twice:
        raise InvalidValue(
            f"there are {twice[0]['count']} ledgers of client {twice[0]['registrant']!r}, thread "
            f"{twice[0]['thread']!r}: give the one that it uses"
        )


def _clients(entries: DataFrame, seen: _Seen) -> DataFrame:
    """Returns a row for each client that has a ledger or a registration."""
    waiting = seen.elements.where(_WAITS).groupBy(*CLIENT).agg(sf.count("*").alias("outstanding"))
    joined: Any = (  # its types are partial
        entries.join(seen.registrations, list(CLIENT), "full")
        .join(_places(entries, seen), list(CLIENT), "left")
        .join(waiting, list(CLIENT), "left")
    )
    judged: DataFrame = joined.mapInArrow(_judged, CLIENTS)
    return judged


def _places(entries: DataFrame, seen: _Seen) -> DataFrame:
    """Returns for each client the states in which the rids of its ledger are found."""
    rids = sf.array_distinct(sf.array(*(sf.col(name) for name in ENTRY)))
    wanted = entries.select(*CLIENT, sf.explode(rids).alias("rid")).where("rid is not null")
    found = seen.elements.selectExpr(*CLIENT, "rid", f"{_STATE} as state")
    found = found.unionByName(seen.ended.withColumn("state", sf.lit(ElementState.FINISHED.value)))
    pairs = sf.collect_set(sf.struct("rid", "state")).alias("found")
    return wanted.join(found, [*CLIENT, "rid"]).groupBy(*CLIENT).agg(pairs)


def _judged(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Yields the conclusion about each client; on executors."""
    for batch in batches:
        rows: list[dict[str, Any]] = batch.to_pylist()
        yield pa.RecordBatch.from_pylist([conclude(row) for row in rows], schema=_ARROW)


def conclude(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the conclusion about one client, from all that was seen of it."""
    tags = Tags(
        was=row["was"] or "new", s_rid=row["s_rid"], s_state=row["s_state"], r_rid=row["r_rid"]
    )
    standing = _standing(row, tags)
    letter = standing.letter if standing.letter != NONE else "A"
    return {
        **{name: row[name] for name in (*CLIENT, "r_rid", "ckpt")},
        "was": tags.was,
        "state": letter,
        "rid": standing.rid,
        "next_step": STATES[letter][1],
        "rests_on": standing.why,
        "outstanding": row["outstanding"] or 0,
        "has_ledger": row["is_torn"] is False,
    }


def _standing(row: Mapping[str, Any], tags: Tags) -> Standing:
    if row["is_torn"] is not False:
        letter, why = by_registration(tags)
        torn = "the ledger is torn or corrupt, put it aside; " if row["is_torn"] else ""
        return Standing(letter=letter, why=torn + why, rid=tags.s_rid)
    last = row["last_request"]
    entry = Entry(
        last_request=None if last is None else LastRequest(rid=last),
        last_enqueued=row["last_enqueued"],
        last_dequeued=row["last_dequeued"],
    )
    states: dict[str, set[str]] = {rid: set() for rid in entry.rids}
    for pair in row["found"] or ():
        states[pair["rid"]].add(pair["state"])
    places = {rid: _place(found, rid, tags) for rid, found in states.items()}
    return decide(entry, tags, places)


def _place(found: set[str], rid: str, tags: Tags) -> Place:
    """Returns where a rid was when the queues were read; history was read later.

    A rid that the registration names, and no queue has, is finished, even without history.
    """
    if ElementState.QUEUED in found:
        return Place.REQUEST
    is_tag = rid in {tags.s_rid, tags.r_rid} and ElementState.REPLIED not in found
    return Place.FINISHED if is_tag else place_of(found)


def _stuck(seen: _Seen, stuck_after_s: int) -> DataFrame:
    """Returns a row for each element that is stuck."""
    late = f"timestamp_micros({seen.now_us - stuck_after_s * 1_000_000})"
    cases = " ".join(
        f"when {condition.format(late=late)} then '{reason}'"
        for reason, condition in _STUCK.items()
    )
    since = seen.elements.withColumn("since", sf.greatest("enqueued_at", "not_before"))
    waited = sf.expr(f"({seen.now_us} - unix_micros(since)) / 1000000").alias("waited_s")
    named = ("registrant", "thread", "rid", "eid", "queue", "role", "reason", "since")
    return (
        since.withColumn("reason", sf.expr(f"case {cases} end"))
        .where("reason is not null")
        .select(*named, waited, "aborts", "code", "error")
    )
