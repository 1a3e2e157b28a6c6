"""The sessions of the pipelines: the caller's for those that read, one of their own for the others.

Either has the data source, by which `read_table` reads a relation. Source: spec P4, P7.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs] # it has none
from pyspark.errors import PySparkException

from onceq.engine.perform.spark_driver import Route
from onceq.errors import EnvironmentFault
from onceq.spark.given.route import reach_route
from onceq.spark.read.reading import ReadingOptions
from onceq.spark.read.relations import relation_of
from onceq.spark.session import REQUIRED_SETTINGS, activate, is_local, refuse_dead
from onceq.spark.source import OnceqDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_FAILED: Final = (PySparkException, Py4JError, ConnectionError)
SETTINGS: Final = {
    **REQUIRED_SETTINGS,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.debug.maxToStringFields": "1000",  # or it warns that a plan is too long to show
}


@contextlib.contextmanager
def reading_session(session: SparkSession, url: str | None, repository: str) -> Generator[Route]:
    """Makes the caller's session one that reads a repository: REQUIRED_SETTINGS, and the source.

    Yields the repository's route, while the block runs.
    """
    for name, value in REQUIRED_SETTINGS.items():
        session.conf.set(name, value)
    session.dataSource.register(OnceqDataSource)
    with reach_route(url, repository, local=is_local(session)) as route:
        yield route


@contextlib.contextmanager
def own_session(given: SparkSession, lost: str) -> Generator[SparkSession]:
    """Yields a session with settings of its own: its days are UTC.

    lost: what did not happen if Spark fails; the EnvironmentFault says so.
    """
    refuse_dead(given)
    try:
        own = given.newSession()
        for name, value in SETTINGS.items():
            own.conf.set(name, value)
        activate(own)  # otherwise Spark finds the source in one session and refuses it to others
        own.dataSource.register(OnceqDataSource)
        yield own
    except SPARK_FAILED as error:
        raise EnvironmentFault(f"Spark failed, and {lost}: {error}") from error
    finally:
        with contextlib.suppress(*SPARK_FAILED):  # already reported, or the next call reports it
            activate(given)


def read_table(
    session: SparkSession,
    route: Route,
    read: str,
    columns: Sequence[str] | None = None,
    **limits: Any,
) -> DataFrame:
    """Returns a relation of a repository. columns: None: all. limits: as in ReadingOptions."""
    relation = relation_of(read)
    wanted = relation if columns is None else relation.only(columns)
    many = session.sparkContext.defaultParallelism
    options = ReadingOptions(route=route, read=read, partitions=many, **limits)
    reader = session.read.format(OnceqDataSource.name()).schema(wanted.schema)
    return reader.options(**options.to_spark()).load()
