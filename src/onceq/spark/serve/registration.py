"""Registering a Spark server for a pipeline of your own: a life of it, and the options of its ends.

Public through `onceq.spark`. `onceq.spark.Server` begins its lives itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

from onceq.engine.perform.spark_driver import spark_driver
from onceq.model.names import check_id
from onceq.model.queue import Queue, content_type_of
from onceq.model.spark_ops import SparkClose, SparkOpen
from onceq.spark.given.options import ServingOptions
from onceq.spark.given.route import reach_route
from onceq.spark.given.tables import TableChange, check_tables
from onceq.spark.serve.handlers import told
from onceq.spark.session import is_local_here


@contextlib.contextmanager
def register(
    queue: Queue[Any, Any],
    url: str | None = None,
    *,
    name: str,
    repository: str = "onceq",
    tables: Mapping[str, TableChange] | None = None,
    batch_rows: int = 50_000,
) -> Generator[dict[str, str]]:
    """Begins a life of a Spark server for a pipeline of your own; yields the options of its ends.

    `spark.readStream.format("onceq").options(**options)`, and the same for `writeStream`, after
    `spark.dataSource.register(onceq.spark.source.OnceqDataSource)`. Of two such streams in one
    session, each needs a source of its own name, a subclass with another `name()`: Spark keeps
    one environment for a name, and two queries that begin at once can break it. A newer life of
    this name fences this one: its query then fails with Fenced. When the block ends, what is
    still claimed goes back to the queue, uncharged; stop the query first. Not for a query that
    keeps a state: its requests could be killed, or taken over; `Server` has a setting for that.
    Raises InvalidName, InvalidValue (a password, and executors elsewhere; a request type that
    workers cannot import), CannotConnect, SchemaMissing.
    """
    check_id("Spark server", name)
    changes = check_tables(tables or {})
    requests = told(queue)
    with (
        reach_route(url, repository, local=is_local_here()) as route,
        spark_driver(route) as driver,
    ):
        life = driver.perform(SparkOpen(name=name, queue=queue.name))
        options = ServingOptions(
            route=route,
            server_id=life.server_id,
            epoch=life.epoch,
            batch_rows=batch_rows,
            content_type=content_type_of(queue.reply_type),
            requests=requests,
            tables=changes,
        )
        try:
            yield options.to_spark()
        finally:
            driver.perform(SparkClose(server_id=life.server_id, epoch=life.epoch))
