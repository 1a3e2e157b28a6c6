"""Clients' ledgers as a table: from columns that name rids, or from what ledgers store.

Used by `onceq.spark.recover.recovering`. Source: BN09 figure 4.6; spec C4, P8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as sf

from onceq.errors import InvalidValue
from onceq.model.ledger import Owner, decode_entry
from onceq.spark.arrow import RecordBatch, pa, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLIENT: Final = ("registrant", "thread")
ENTRY: Final = ("last_request", "last_enqueued", "last_dequeued")
KEPT: Final = ("owner", "entry", "digest")
"""The columns of a table `onceq_ledger`."""
_SCHEMA: Final = f"{', '.join(f'{name} string' for name in (*CLIENT, *ENTRY))}, is_torn boolean"


def entries_of(session: SparkSession, ledgers: DataFrame | None, repository_id: str) -> DataFrame:
    """Returns a row for each ledger. is_torn: what it holds is not what was written.

    Raises InvalidValue: there are other columns. A ledger of another repository fails the query.
    """
    if ledgers is None:
        return session.createDataFrame([], _SCHEMA)  # pyright: ignore[reportUnknownMemberType] # its types are partial
    found = set(ledgers.columns)
    if found >= set(KEPT):
        texts = (sf.col(name).cast("string") for name in KEPT)
        kept: Any = ledgers.select(*texts)  # its types are partial
        decoded: DataFrame = kept.mapInArrow(_decoding(repository_id), _SCHEMA)
        return decoded
    missing = [name for name in ("registrant", *ENTRY) if name not in found]
    if missing:
        raise InvalidValue(
            f"the ledgers have no column {missing[0]!r}: they have registrant, perhaps thread, and "
            f"{', '.join(ENTRY)}; or {', '.join(KEPT)}"
        )
    thread = sf.col("thread").cast("string") if "thread" in found else sf.lit(None)
    texts = (sf.col(name).cast("string").alias(name) for name in ("registrant", *ENTRY))
    return ledgers.select(
        *texts,
        sf.coalesce(thread, sf.lit("")).alias("thread"),
        sf.lit(0).cast("boolean").alias("is_torn"),
    )


def _decoding(repository_id: str) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    """Returns a function that decodes ledgers, on executors."""

    def decoded(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            rows = [_decoded(row, repository_id) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=schema_of(_SCHEMA))

    return decoded


def _decoded(row: dict[str, Any], repository_id: str) -> dict[str, Any]:
    try:
        owner = msgspec.json.decode(row["owner"] or "", type=Owner)
    except msgspec.MsgspecError as error:
        raise InvalidValue(f"{row['owner']!r} is no owner of a ledger: {error}") from None
    if str(owner.repository_id) != repository_id:
        raise InvalidValue(
            f"the ledger of {owner.registrant!r} is of repository {owner.repository!r} "
            f"({owner.repository_id}), and this one is {repository_id}: leave it out"
        )
    entry = decode_entry(row["entry"] or "", row["digest"] or "")
    last = None if entry is None else entry.last_request
    return {
        "registrant": owner.registrant,
        "thread": owner.thread,
        "last_request": None if last is None else last.rid,
        "last_enqueued": None if entry is None else entry.last_enqueued,
        "last_dequeued": None if entry is None else entry.last_dequeued,
        "is_torn": entry is None,
    }
