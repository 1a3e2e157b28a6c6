"""What a repository says of itself, as the tables that are judged: its places, and what was said.

Used by `onceq.spark.audit.auditing`. Everything is read as of one moment: the tables on one
snapshot, and the archive's files that were in the manifest then. Aborts and redrives become
events, and a table of the user's becomes the ledger of effects. Never writes. Source: spec P6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from onceq.engine.perform.spark_driver import Route, SparkDriver
from onceq.errors import InvalidValue
from onceq.model.archive_ops import Kind, Manifest
from onceq.model.element import COUNTED, ElementState, Lane, Role
from onceq.model.queue import QueueSettings
from onceq.spark.archive.files import read_files
from onceq.spark.archive.sessions import read_table
from onceq.spark.audit.evidence import EFFECT, OTHER, PLACES_IN_ARROW, SAID_IN_ARROW
from onceq.spark.read.relations import TABLE_OF

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ENDED: Final = "rid registrant thread eid queue role outcome aborts code correlation_id send_no"
_HISTORY: Final = [*_ENDED.split(), "record_no", "finished_at"]
_ELEMENTS: Final = [*_ENDED.split(), "is_claimed", "lane", "is_volatile"]
_ATTEMPTS: Final = ["eid", "charge", "code"]
_TAGS: Final = ["registrant", "thread", "sent_rid", "sent_no", "received_rid"]
_STATE: Final = f"""
case when role = '{Role.REPLY}' then '{ElementState.REPLIED}'
    when lane = {Lane.HELD} then '{ElementState.HELD}'
    when is_claimed then '{ElementState.EXECUTING}'
    when lane = {Lane.DUE} then '{ElementState.WAITING}'
    when lane = {Lane.SUSPECT} then '{ElementState.SUSPECT}' else '{ElementState.QUEUED}' end
"""
_BESIDES: Final = ["day", "ended_s", "send_no", "record_no", "is_archived"]
"""What is counted, or asked by `tags`: the day (as text) and the second of its end."""
_CHARGED: Final = sorted(one.value for one in COUNTED)
_VOLATILE: Final = "select distinct name from {schema}.queue where not durable"
_RETRIES: Final = "select max(retry_limit) from {schema}.queue"
_MANY: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository as of one moment: with a snapshot that the caller holds, and this manifest.

    volatile: the names of queues that are, or were, not durable.
    """

    session: SparkSession
    route: Route
    snapshot: str
    manifest: Manifest
    volatile: frozenset[str]

    @staticmethod
    def volatile_queues(driver: SparkDriver) -> frozenset[str]:
        """Returns the names of queues that are, or were, not durable."""
        found = driver.rows(_VOLATILE, [], _MANY)
        return frozenset(name for rows in found for (name,) in rows)

    @staticmethod
    def retry_limit(driver: SparkDriver, stated: int | None) -> int:
        """Returns what was stated, or the largest retry limit of its queues: the default at least.

        What a queue had before, nobody notes: so one that was lowered to less is not taken for it.
        """
        if stated is not None:
            return stated
        found = [limit for rows in driver.rows(_RETRIES, [], _MANY) for (limit,) in rows]
        return max(QueueSettings().retry_limit, *(limit or 0 for limit in found))

    # --- places -------------------------------------------------------------------------------

    def places(self) -> DataFrame:
        """Returns every place, each row once; with what is judged, and what is counted."""
        tables = self._table("history", _HISTORY, since=self.manifest.archived)
        files = self._files(Kind.HISTORY).select(*_HISTORY)
        ended = files.withColumn("is_archived", sf.expr("true")).unionByName(
            tables.withColumn("is_archived", sf.expr("false"))
        )
        finished = (
            ended.withColumn("state", sf.lit(ElementState.FINISHED.value))
            .withColumn("is_volatile", sf.col("queue").isin(sorted(self.volatile)))
            .withColumn("day", sf.to_date("finished_at").cast("string"))
            .withColumn("ended_s", sf.unix_seconds("finished_at"))
        )
        standing = (
            self._table("elements", _ELEMENTS)
            .withColumn("state", sf.expr(_STATE))
            .withColumn("day", sf.lit(None).cast("string"))
            .withColumn("ended_s", sf.lit(None).cast("bigint"))
            .withColumn("record_no", sf.lit(None).cast("bigint"))
            .withColumn("is_archived", sf.expr("false"))
        )
        columns = [*PLACES_IN_ARROW.names, *_BESIDES]
        return finished.select(*columns).unionByName(standing.select(*columns))

    def tags(self) -> DataFrame:
        """Returns what each client was told last: sent_rid, sent_no, received_rid."""
        return self._table("tags", _TAGS)

    # --- what was said ------------------------------------------------------------------------

    def aborts(self) -> DataFrame:
        """Returns the aborts."""
        tables = self._table("attempts", [*_ATTEMPTS], since=self.manifest.archived)
        every = self._files(Kind.ATTEMPT).select(*_ATTEMPTS).unionByName(tables)
        return _said(
            every,
            OTHER,
            event=sf.lit("Aborted"),
            rid=sf.lit(""),
            eid=sf.col("eid"),
            code=sf.coalesce("code", sf.lit("")),
            excused=~sf.col("charge").isin(*_CHARGED),
        )

    def redrives(self, places: DataFrame) -> DataFrame:
        """Returns the redrives of elements that owed a reply."""
        redrives = self._table("redrives", ["old_eid", "new_eid", "new_rid"])
        old = places.where(f"state = '{ElementState.FINISHED}'").select(
            sf.col("eid").alias("old_eid"), "rid"
        )
        return _said(
            redrives.join(old, "old_eid", "left").distinct(),
            OTHER,
            event=sf.lit("Redriven"),
            rid=sf.coalesce("rid", "old_eid"),
            eid=sf.col("old_eid"),
            new_rid=sf.col("new_rid"),
            new_eid=sf.col("new_eid"),
        )

    def effects(self, driver: SparkDriver, table: str) -> DataFrame:
        """Returns the ledger of effects: a table with an eid. Raises InvalidValue.

        Its columns rid, key and xid are read too, if it has them; without a key, each row is an
        effect of its own.
        """
        quoted, columns = driver.find_table(table)
        if "eid" not in columns:
            raise InvalidValue(
                f"{table} has no column eid: an effect names the eid of its request, "
                "as the handler's context has it"
            )
        there = ["eid", *(one for one in ("rid", "key", "xid") if one in columns)]
        rows = self._table(f"{TABLE_OF}{quoted}", there).where("eid is not null")
        own = sf.concat(sf.lit("row "), sf.monotonically_increasing_id().cast("string"))
        return _said(
            rows,
            EFFECT,
            event=sf.lit("Effect"),
            key=sf.coalesce("key", sf.lit("")) if "key" in there else own,
            rid=sf.coalesce("rid", "eid") if "rid" in there else sf.col("eid"),
            eid=sf.col("eid"),
            xid=sf.coalesce("xid", sf.lit("")) if "xid" in there else sf.lit(""),
        )

    # --- reading ------------------------------------------------------------------------------

    def _table(self, read: str, columns: Sequence[str], since: int | None = None) -> DataFrame:
        limits = {"since": since, "snapshot": self.snapshot}
        return read_table(self.session, self.route, read, columns, **limits)

    def _files(self, kind: Kind) -> DataFrame:
        root = Path(self.manifest.root or "")
        return read_files(self.session, root, kind, self.manifest.files)


def _said(rows: DataFrame, stage: int, **fields: Column) -> DataFrame:
    """Returns rows as events, or effects. fields: of the event, and its kind."""
    given: dict[str, Any] = {
        "stage": sf.lit(stage),
        "kind": fields["event"],
        "rid": fields["rid"],
        "eid": fields["eid"],
        "other": fields.get("new_eid", sf.lit(None)),
        "payload": sf.to_json(sf.struct(*(one.alias(name) for name, one in fields.items()))).cast(
            "binary"
        ),
    }
    absent = sf.lit(None).cast("string")
    return rows.select(*(given.get(name, absent).alias(name) for name in SAID_IN_ARROW.names))
