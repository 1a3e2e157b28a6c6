"""The verdict of an audit: parts are made and judged, and the findings are counted.

Used by `onceq.spark.audit.auditing`. Source: spec P6.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import functions as sf

from onceq.history import FinalState, Violation
from onceq.history.blame import Facts, Injected, name_of
from onceq.spark.audit.components import eids_of, in_parts, keyed
from onceq.spark.audit.evidence import EFFECT, FAULT, OTHER
from onceq.spark.audit.judging import injected, judged
from onceq.spark.report.findings import choose_buckets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOUND_MAX: Final = 1_000
"""Violations that are kept as values; all of them are saved if asked for."""
PART_ROWS: Final = 200_000
"""Roughly the size of a part: what the checker keeps of it must fit into a task's memory."""
GIVEN: Final = {
    "events": "recorded events",
    "effects": "a ledger of effects",
    "effects each": "how many effects each is to have",
    "abort limit": "an abort limit",
    "aborts": "a record of aborts",
    "executions": "recorded executions",
    "tags": "durable queues only",
    "an end": "a final state",
}
"""What an audit may be given to ask about, in words."""
_DAY_S: Final = 86_400
_COUNTED: Final = ("role", "state", "outcome", "is_archived", "day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """The result of an audit. violations: how many; found: the first of them, at most FOUND_MAX.

    places: rows in which something is or was; archived: how many of those; events: as recorded;
    effects: rows of the ledger. acknowledged: different requests that clients recorded as such.
    counts: of the places, by role, state and outcome; days: what has ended, by day and outcome;
    moments: the same by finer spans of time, if all of it is within a few days: seconds since 1970,
    outcome, count; moment_s: how long each span is. volatile: queues that are not durable: less is
    asked of what was in them. given: which of GIVEN it had. took_s: seconds.
    """

    violations: int
    by_guarantee: dict[str, int]
    found: list[Violation]
    places: int
    archived: int
    events: int
    effects: int
    acknowledged: int
    counts: list[tuple[Any, ...]]
    days: list[tuple[Any, ...]]
    moments: list[tuple[Any, ...]]
    moment_s: int
    given: list[str]
    volatile: list[str]
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is judged. stated: all of the final state but its rows. by_client: as in `keyed`.

    besides: violations that were found in other ways; None: none. has_effects: a ledger was given.
    """

    places: DataFrame
    said: DataFrame
    stated: FinalState
    by_client: bool
    besides: DataFrame | None = None
    volatile: frozenset[str] = frozenset()
    has_effects: bool = False


@contextlib.contextmanager
def kept(frame: DataFrame) -> Generator[DataFrame]:
    """Keeps what was read while the block runs: it is looked at several times."""
    held = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield held
    finally:
        held.unpersist()


def judge(
    session: SparkSession, evidence: Evidence, save: str | Path | None, began: float
) -> Audited:
    """Judges, and saves all violations in a folder as JSON lines, if asked for."""
    is_nameless = sf.expr(f"stage in ({EFFECT}, {OTHER}) and eid is null").cast("int")
    tally = _rows(
        evidence.said.groupBy("stage", "kind", "actor").agg(
            sf.count("*").alias("count"), sf.sum(is_nameless).alias("nameless")
        )
    )
    ends = (sf.min("ended_s").alias("first_s"), sf.max("ended_s").alias("last_s"))
    counted = _rows(evidence.places.groupBy(*_COUNTED).agg(sf.count("*").alias("count"), *ends))
    places, said = sum(one["count"] for one in counted), sum(one["count"] for one in tally)
    count = max(session.sparkContext.defaultParallelism, (places + said) // PART_ROWS)
    session.conf.set("spark.sql.shuffle.partitions", count)  # larger ones are slow
    with contextlib.ExitStack() as held:
        own = keyed(evidence.places, by_client=evidence.by_client)
        parts = in_parts(
            own,
            held.enter_context(kept(eids_of(own))),
            evidence.said,
            nameless=any(one["nameless"] for one in tally),
            count=count,
        )
        facts = _facts(evidence, tally)
        found = judged(parts, evidence.stated, facts)
        if evidence.besides is not None:
            besides = evidence.besides.withColumn("acknowledged", sf.lit(None).cast("bigint"))
            found = found.unionByName(besides)
        sums, first = _concluded(held.enter_context(kept(found)), save)
    by_guarantee = {one[0]: one[1] for one in sums if one[0] is not None}
    effects = sum(one["count"] for one in tally if one["stage"] == EFFECT)
    moments, moment_s = _moments(evidence.places, counted)
    return Audited(
        violations=sum(by_guarantee.values()),
        by_guarantee=by_guarantee,
        found=first,
        counts=_summed(counted, "role", "state", "outcome"),
        days=_summed([one for one in counted if one["day"] is not None], "day", "outcome"),
        moments=moments,
        moment_s=moment_s,
        given=_given(evidence, facts),
        places=places,
        archived=sum(one["count"] for one in counted if one["is_archived"]),
        events=said - effects,
        effects=effects,
        acknowledged=sum(one[2] or 0 for one in sums),
        volatile=sorted(evidence.volatile),
        took_s=time.monotonic() - began,
    )


def _given(evidence: Evidence, facts: Facts) -> list[str]:
    """Returns what there was to ask about, in the words of `GIVEN`."""
    stated = evidence.stated
    there = {
        "events": evidence.by_client,
        "effects": evidence.has_effects,
        "effects each": stated.effects_each is not None or stated.effects_expected,
        "abort limit": stated.abort_limit is not None,
        "aborts": stated.aborts_recorded or facts.starts,
        "executions": facts.executions,
        "tags": evidence.besides is not None,
        "an end": stated.finished,
    }
    return [name for name in GIVEN if there[name]]


def _moments(places: DataFrame, counted: list[Any]) -> tuple[list[tuple[Any, ...]], int]:
    """Returns what has ended by spans of less than a day, and how long they are, in seconds.

    Nothing if days are fine enough for all of it: the days are counted already.
    """
    first = min((one["first_s"] for one in counted if one["first_s"] is not None), default=None)
    if first is None:
        return [], 0
    last = max(one["last_s"] for one in counted if one["last_s"] is not None)
    ends = [dt.datetime.fromtimestamp(one, dt.UTC) for one in (first, last)]
    width_s = round(choose_buckets((ends[0], ends[1])).width.total_seconds())
    if width_s >= _DAY_S:
        return [], 0
    begins = (sf.floor(sf.col("ended_s") / width_s) * width_s).alias("begins_s")
    rows = _rows(places.where("ended_s is not null").groupBy(begins, "outcome").count())
    return sorted((row["begins_s"], row["outcome"], row["count"]) for row in rows), width_s


def _concluded(found: DataFrame, save: str | Path | None) -> tuple[list[Any], list[Violation]]:
    """Returns how many were found and acknowledged by guarantee, and the first; saves all."""
    counted = found.groupBy("guarantee").agg(sf.count("*"), sf.sum("acknowledged"))
    sums = sorted(_rows(counted), key=str)
    broken = found.where("guarantee is not null").select("guarantee", "rid", "text")
    if save is not None:
        broken.write.json(f"file:{Path(save).absolute()}")
    if all(one[0] is None for one in sums):
        return sums, []
    first = _rows(broken.orderBy("guarantee", "rid", "text").limit(FOUND_MAX))
    return sums, [Violation(*row) for row in first]


def _rows(frame: DataFrame) -> list[Any]:
    rows: list[Any] = frame.collect()
    return rows


def _summed(counted: list[Any], *names: str) -> list[tuple[Any, ...]]:
    """Returns the counts by some columns, in order."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for one in counted:
        sums[tuple(one[name] for name in names)] += one["count"]
    return [(*key, count) for key, count in sorted(sums.items(), key=str)]


def _facts(evidence: Evidence, tally: list[Any]) -> Facts:
    """Returns what is known of the whole: who executes, who asks, and which faults struck whom."""
    by_kind: dict[str, set[str]] = {}
    for row in tally:
        by_kind.setdefault(row["kind"], set()).add(row["actor"] or "")
    faults = Injected()
    if any(row["stage"] == FAULT for row in tally):
        payloads = evidence.said.where(f"stage = {FAULT}").select("payload")
        faults = injected(bytes(row["payload"]) for row in _rows(payloads))
        faults.sort(by_kind.get("Executed", ()), _clients(evidence, by_kind, faults))
    return Facts(faults=faults, starts="Started" in by_kind, executions="Executed" in by_kind)


def _clients(evidence: Evidence, by_kind: dict[str, set[str]], faults: Injected) -> set[str]:
    """Returns the clients among the targets of faults."""
    aimed = faults.targets()
    named = sf.substring_index("registrant", " ", -1).isin(sorted(aimed))
    owners = evidence.places.where(named).select("registrant").distinct()
    senders = {one for one in by_kind.get("EnqueueBegun", ()) if name_of(one) in aimed}
    return senders | {row["registrant"] for row in _rows(owners)}
