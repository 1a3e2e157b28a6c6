"""Rows that have not ended, by history and by the archive: what a bulk enqueue may still send.

Public through `onceq.spark.pipelines`. A queue manager knows a rid by queues and history; only
the archive knows what was trimmed. Never writes. Source: spec P3, finding 3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from onceq.engine.perform.spark_driver import spark_driver
from onceq.model.archive_ops import ArchiveManifest, Kind
from onceq.model.queue import Queue
from onceq.spark.archive.records import all_records
from onceq.spark.archive.sessions import reading_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS: Final = ("rid", "registrant", "thread", "eid")


@contextlib.contextmanager
def unsent(
    rows: DataFrame,
    queue: Queue[Any, Any],
    url: str | None = None,
    *,
    registrant: str | None,
    repository: str = "onceq",
) -> Generator[DataFrame]:
    """Yields the rows whose rid has not ended, archived or not, while the block runs.

    Write them in the block, as `onceq.spark.writing` says, with the same queue and registrant.
    It misses what is trimmed meanwhile if it was not archived before: keep history for longer than
    the block lasts. Content is not compared. Sets `onceq.spark.session.REQUIRED_SETTINGS`.
    Raises InvalidValue, CannotConnect, SchemaMissing.
    """
    session = rows.sparkSession
    with reading_session(session, url, repository) as route:
        with spark_driver(route) as driver:
            manifest = driver.perform(ArchiveManifest(kind=Kind.HISTORY))
            query = "select repository_id::text from {schema}.repository"
            (((repository_id,),),) = driver.rows(query, [], 1)
        ended = all_records(session, route, manifest, columns=_COLUMNS)
        if registrant is not None:
            mine = (sf.col("registrant") == registrant) & (sf.col("thread") == "")
            yield rows.join(ended.where(mine).select("rid"), "rid", "left_anti")
        else:
            known = ended.where("registrant is null").select(sf.replace("eid", sf.lit("-")))
            eid = sf.md5(sf.concat_ws("\x1f", sf.lit(repository_id), sf.lit(queue.name), "rid"))
            yield rows.join(known.toDF("eid"), eid == sf.col("eid"), "left_anti")
