"""The process that archives, restores and enqueues with Spark, armed for each task it is given.

Used by proof/pipelinepoints/part.py. Starting Spark costs seconds, so this one lives on from trial
to trial: it is struck by an exception, or by the loss of a connection. If a task of Spark's
meets the point, a kill -9 ends the Python process of that task.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Final

import onceq
from onceq.engine import faultpoints
from onceq.engine.perform.driver import PostgresDriver
from onceq.errors import OnceqError
from onceq.spark import build_session, writing
from onceq.spark.archive.sessions import SPARK_FAILED
from onceq.spark.pipelines import archive, restore
from onceq.spark.source import OnceqDataSource
from proof.archive.runs import Told
from proof.harness.processes import say_into, start

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from pyspark.sql import SparkSession

    from proof.fault_ground import Ground

QUEUE: Final = onceq.Queue("bulk", str, str)
REGISTRANT: Final = "bulk"
EACH_BATCH: Final = ("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
"""How many rows make a transaction: a task reaches its points more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueuing:
    """Rows of a DataFrame that are to be enqueued: rids of these numbers."""

    url: str
    repository: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What is to be done. armed: for `arm`."""

    what: Told | Enqueuing
    armed: str


@contextlib.contextmanager
def living(ground: Ground) -> Generator[Callable[[Errand], str]]:
    """Starts the process; yields a function that gives it an errand, and returns how that failed.

    Its death is EOFError, or ConnectionResetError.
    """
    ours, theirs = Pipe()
    process = start(live, theirs, ground.place / "said")
    theirs.close()

    def ask(errand: Errand) -> str:
        ours.send(errand)
        return str(ours.recv())

    try:
        yield ask
    finally:
        ours.close()
        process.join()


def live(asked: Connection, log: Path) -> None:
    """Does what it is told until nobody is left to tell it anything."""
    say_into(log)
    os.environ["TMPDIR"] = str(log.parent)
    session = build_session("fault points of pipelines")
    session.conf.set(*EACH_BATCH)
    with contextlib.suppress(EOFError):
        while True:  # until the other end is closed
            asked.send(_failure(session, asked.recv()))
    session.stop()


def _failure(session: SparkSession, errand: Errand) -> str:
    """Does an errand; returns how it failed, or nothing."""
    _arm(session, errand)
    try:
        _do(session, errand.what)
    except (faultpoints.PlannedFault, OnceqError, *SPARK_FAILED) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _arm(session: SparkSession, errand: Errand) -> None:
    """Arms this process, and the Python processes that Spark begins for the tasks of an enqueue.

    Processes that are not struck are not begun anew.
    """
    environment = session.sparkContext.environment
    environment.pop(faultpoints.VARIABLE, None)
    if isinstance(errand.what, Enqueuing) and not errand.armed.startswith(faultpoints.NOWHERE):
        environment[faultpoints.VARIABLE] = errand.armed
    faultpoints.arm(errand.armed)
    faultpoints.pointed(PostgresDriver)


def _do(session: SparkSession, what: Told | Enqueuing) -> None:
    if isinstance(what, Enqueuing):
        _enqueue(session, what)
    elif what.days is not None:
        since, until = what.days
        restore(what.url, since=since, until=until, repository=what.repository)
    else:
        archive(
            what.root,
            what.url,
            repository=what.repository,
            keep_days=what.keep_days,
            compact=what.compact,
            spark=session,
        )


def _enqueue(session: SparkSession, what: Enqueuing) -> None:
    rids = session.range(what.first, what.last + 1, numPartitions=2)
    rows = rids.selectExpr("cast(id as string) as rid", "concat('word ', id) as body")
    session.dataSource.register(OnceqDataSource)
    with writing(QUEUE, what.url, registrant=REGISTRANT, repository=what.repository) as options:
        rows.write.format("onceq").mode("append").options(**options).save()
