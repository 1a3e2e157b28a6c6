"""DBOS: workflows that a dead process left are run again when a process of its name starts.

As it comes: the row is written in a plain step. Safest: in a transaction of its datasource, which
holds the step's checkpoint too.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient, SQLAlchemyDatasource

from bench.workers.postgres import url
from proof.scoreboard.servers.base import EFFECT, HALF_S, Reports, main

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.scoreboard.servers.base import Asked

QUEUE = "board"
CALL = "handle"
POLL_S = 0.1


def _in_step(asked: Asked) -> Callable[[str], None]:
    own = psycopg.connect(asked.conninfo, autocommit=True)

    def write(rid: str) -> None:
        own.execute(EFFECT, (rid,))

    step: Callable[[str], None] = DBOS.step(name="write")(write)
    return step


def _in_transaction(asked: Asked) -> Callable[[str], None]:
    source = SQLAlchemyDatasource.create(url(asked.conninfo, "postgresql+psycopg"))
    statement = sqlalchemy.text("insert into effect (rid) values (:rid)")

    def write(rid: str) -> None:
        source.sql_session().execute(statement, {"rid": rid})

    transaction: Callable[[str], None] = source.transaction(name="write")(write)
    return transaction


class Dbos:
    """The system, for `main`."""

    def prepare(self, asked: Asked) -> None:
        """Make its tables, and a queue whose workflows run one at a time."""
        DBOS.migrate(url(asked.conninfo))
        client = DBOSClient(system_database_url=url(asked.conninfo))
        client.register_queue(QUEUE, worker_concurrency=1, polling_interval_sec=POLL_S)
        client.destroy()

    def send(self, asked: Asked) -> None:
        """Enqueue one by one."""
        client = DBOSClient(system_database_url=url(asked.conninfo))
        for rid in asked.rids:
            client.enqueue({"queue_name": QUEUE, "workflow_name": CALL}, rid)
        client.destroy()

    def serve(self, asked: Asked) -> None:
        """Launch under the same name each time, as whoever is to recover its workflows must be."""
        reports = Reports(asked.reports)
        DBOS(
            config={
                "name": "board",
                "system_database_url": url(asked.conninfo),
                "application_version": "board",
                "executor_id": "server",
                "log_level": "ERROR",
            }
        )
        write = (_in_transaction if asked.is_safest else _in_step)(asked)

        def handle(rid: str) -> None:
            reports.begin(rid)
            time.sleep(HALF_S)
            write(rid)
            time.sleep(HALF_S)

        limit = {} if asked.limit is None else {"max_recovery_attempts": asked.limit}
        DBOS.workflow(name=CALL, **limit)(handle)
        DBOS.launch()
        threading.Event().wait()


if __name__ == "__main__":
    main(Dbos())
