"""Spark serves three queues by three kinds of handler: per request, per Arrow batch, per DataFrame.

A function for a request is the simplest, and the slowest. One for an Arrow batch computes by
column. One for DataFrames may use all of Spark. Two of them fill a table, in the transaction that
answers the requests. Source: spec P1, P2; docs/spark.md.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf

import onceq
from onceq import spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EACH = onceq.Queue("each", dict[str, int], str)
ARROW = onceq.Queue("arrow", bytes, bytes)
FRAME = onceq.Queue("frame", bytes, bytes)
TABLES = {"seen": spark.insert()}


def greet(request: dict[str, int], context: spark.RequestContext) -> str:
    """Handles one request: it returns the reply, and an error fails only this request."""
    if request["age"] < 0:
        raise onceq.Reject(f"{context.rid} is not born yet")
    return f"{context.rid} is {request['age']}"


def measure(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Handles some requests at once: columns in, columns out."""
    sizes = pc.call_function("binary_length", [batch.column("body")])
    rows = pa.StructArray.from_arrays([batch.column("rid"), sizes], ["rid", "size"])
    columns = [batch.column("eid"), sizes.cast(pa.string()), rows]
    return pa.RecordBatch.from_arrays(columns, ["eid", "reply", "seen"])


def shout(requests: DataFrame) -> DataFrame:
    """Handles a whole micro-batch: a DataFrame in, a DataFrame out."""
    text = sf.col("body").cast("string")
    row = sf.struct("rid", sf.length(text).alias("size"))
    return requests.select("eid", sf.upper(text).alias("reply"), row.alias("seen"))


RETURNS = "eid string, reply string, seen struct<rid: string, size: int>"
SERVERS = [
    spark.Server(EACH, batch=spark.each(greet)),
    spark.Server(ARROW, batch=spark.vectorised(measure, returns=RETURNS), tables=TABLES),
    spark.Server(FRAME, batch=shout, tables=TABLES),
]
REQUESTS: dict[onceq.Queue[Any, Any], list[tuple[str, Any]]] = {
    EACH: [("ann", {"age": 44}), ("bob", {"age": -1})],
    ARROW: [("cleo", b"four"), ("dan", b"seven..")],
    FRAME: [("eve", b"hello"), ("fay", b"you")],
}


def show(clerk: onceq.Clerk[Any, Any], count: int) -> None:
    for reply in sorted((clerk.receive() for _ in range(count)), key=lambda reply: reply.rid):
        print(reply.rid, reply.outcome.value, reply.text or reply.value)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm, psycopg.connect(qm.located.conninfo) as db:
            db.execute("create table seen (rid text, size integer)")
            db.commit()
            for server, (queue, requests) in zip(SERVERS, REQUESTS.items(), strict=True):
                qm.declare(queue)
                with qm.clerk(f"client of {queue.name}", queue, window=2) as clerk:
                    clerk.send_many(requests)
                    server.run(url, once=True)
                    show(clerk, len(requests))
            print("seen:", db.execute("select rid, size from seen order by rid").fetchall())


if __name__ == "__main__":
    main()
