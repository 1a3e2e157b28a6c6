"""onceq: a native server at its defaults; the row is written with the connection it is given.

Outside: the row is written with another connection, as a control: then a kill must double it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg

import onceq
from onceq.engine.schema.migrate import apply_with
from proof.scoreboard.servers.base import EFFECT, HALF_S, Reports, main

if TYPE_CHECKING:
    from proof.scoreboard.servers.base import Asked


def queue(asked: Asked) -> onceq.Queue[bytes, bytes]:
    """Return the queue, with its default limit unless it is given another."""
    if asked.limit is None:
        return onceq.Queue("orders", bytes, bytes)
    return onceq.Queue("orders", bytes, bytes, abort_limit=asked.limit)


def prepare(asked: Asked) -> None:
    """Make the schema and declare the queue."""
    apply_with(asked.conninfo, "onceq")
    with onceq.open(asked.conninfo) as qm:
        qm.declare(queue(asked))


def send(asked: Asked) -> None:
    """Send all requests as one client with a window."""
    with onceq.open(asked.conninfo) as qm:
        clerk = qm.clerk("till", queue(asked), window=len(asked.rids))
        clerk.connect()
        clerk.send_many([(rid, b"an order") for rid in asked.rids])


def serve(asked: Asked) -> None:
    """Serve with one session."""
    reports = Reports(asked.reports)
    own = psycopg.connect(asked.conninfo, autocommit=True)

    def handle(body: bytes, context: onceq.Context) -> bytes:
        reports.begin(context.rid)
        time.sleep(HALF_S)
        given = own if asked.setting == "outside" else context.connection
        given.execute(EFFECT, (context.rid,))
        time.sleep(HALF_S)
        return body

    onceq.Server([queue(asked).handled_by(handle)]).run(asked.conninfo)


class Onceq:
    """The system, for `main`."""

    prepare = staticmethod(prepare)
    send = staticmethod(send)
    serve = staticmethod(serve)


if __name__ == "__main__":
    main(Onceq())
