"""Registering a Spark server: where its repository is, without a password, and a life of it.

Used by `onceq.spark.Server`; also, through `register`, by programs that build their own pipeline.
Executors connect by what is given here, and many people can see Spark's options. A password in the
URL therefore goes to a file on this machine that only this user may read; on a cluster it must be
where libpq finds it on every machine (a passfile, PGPASSWORD in the executors' environment).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceq.engine.embedded.locate import locate
from onceq.engine.perform.spark_driver import Place, has_password, spark_driver, without_password
from onceq.engine.schema.migrate import verify_with
from onceq.errors import InvalidValue
from onceq.model.names import check_id, check_repository
from onceq.model.queue import content_type_of
from onceq.model.spark_ops import SparkClose, SparkOpen
from onceq.spark.handlers import told
from onceq.spark.options import ServingOptions
from onceq.spark.session import is_local_here
from onceq.spark.tables import TableChange, check_tables

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from onceq.engine.embedded.locate import Located
    from onceq.model.queue import Queue

__all__ = ["EXECUTOR_URL", "find_place", "reach", "register"]

EXECUTOR_URL: Final = "ONCEQ_EXECUTOR_URL"
WHERE_PASSWORDS_GO: Final = (
    "and Spark shows what it sends to executors: put it into a passfile on every machine, and give "
    "a URL without it"
)


@contextlib.contextmanager
def reach(url: str | None, repository: str) -> Generator[Located]:
    """Finds a repository, and keeps its embedded server in use while the block runs.

    Without Spark, which takes seconds to start, so that errors show at once. Raises
    CannotConnect, SchemaMissing: nothing happened.
    """
    check_repository(repository)
    with contextlib.closing(locate(url)) as located:
        verify_with(located.conninfo, repository)
        yield located


@contextlib.contextmanager
def find_place(located: Located, repository: str, *, local: bool) -> Generator[Place]:
    """Yields what Spark's processes may be told of a database, while the block runs.

    local: the executors run on this machine. If they reach the database by another URL than the
    driver, as from a network of their own, ONCEQ_EXECUTOR_URL gives it. Raises InvalidValue: a
    password, and executors elsewhere.
    """
    executors = os.environ.get(EXECUTOR_URL, "")
    with contextlib.ExitStack() as undo:
        conninfo = located.conninfo
        if has_password(executors):
            raise InvalidValue(f"{EXECUTOR_URL} holds a password, {WHERE_PASSWORDS_GO}")
        if has_password(conninfo):
            if not local:
                raise InvalidValue(f"the URL holds a password, {WHERE_PASSWORDS_GO}")
            directory = undo.enter_context(tempfile.TemporaryDirectory(prefix="onceq-spark-"))
            conninfo = without_password(conninfo, Path(directory) / "passfile")
        shown = located.url if located.embedded is not None else ""
        yield Place(url=shown, conninfo=conninfo, repository=repository, executors=executors)


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
        reach(url, repository) as located,
        find_place(located, repository, local=is_local_here()) as place,
        spark_driver(place) as driver,
    ):
        life = driver.perform(SparkOpen(name=name, queue=queue.name))
        options = ServingOptions(
            place=place,
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
