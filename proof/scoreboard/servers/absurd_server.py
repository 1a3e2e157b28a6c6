"""Absurd: a claim is a lease, after which another execution begins.

Safest: the row is written in a step, whose checkpoint keeps a later execution from repeating it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import absurdctl
import psycopg
from absurd_sdk import Absurd

from proof.scoreboard.servers.base import EFFECT, HALF_S, LEASE_S, Reports, main

if TYPE_CHECKING:
    from proof.scoreboard.servers.base import Asked

QUEUE = "board"
CALL = "handle"


class AbsurdSystem:
    """The system, for `main`."""

    def prepare(self, asked: Asked) -> None:
        """Apply the schema that comes with it, and make the queue."""
        with psycopg.connect(asked.conninfo, autocommit=True) as connection:
            connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
            Absurd(connection, queue_name=QUEUE).create_queue(QUEUE)

    def send(self, asked: Asked) -> None:
        """Spawn one by one."""
        with psycopg.connect(asked.conninfo, autocommit=True) as connection:
            client = Absurd(connection, queue_name=QUEUE)
            for rid in asked.rids:
                client.spawn(CALL, {"rid": rid}, max_attempts=asked.limit, queue=QUEUE)

    def serve(self, asked: Asked) -> None:
        """Run its server, one at a time."""
        reports = Reports(asked.reports)
        with (
            psycopg.connect(asked.conninfo, autocommit=True) as connection,
            psycopg.connect(asked.conninfo, autocommit=True) as own,
        ):
            server = Absurd(connection, queue_name=QUEUE)

            def handle(parameters: dict[str, str], context: Any) -> None:
                rid = parameters["rid"]
                reports.begin(rid)
                time.sleep(HALF_S)
                if asked.is_safest:
                    context.step("write", lambda: _write(own, rid))
                else:
                    _write(own, rid)
                time.sleep(HALF_S)

            server.register_task(CALL)(handle)
            server.start_worker(claim_timeout=LEASE_S)


def _write(own: psycopg.Connection[Any], rid: str) -> None:
    own.execute(EFFECT, (rid,))


if __name__ == "__main__":
    main(AbsurdSystem())
