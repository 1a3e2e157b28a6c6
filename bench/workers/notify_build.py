"""The raw requests and replies, woken by LISTEN and NOTIFY instead of by polling.

How most people would build it: a NOTIFY in each transaction, one LISTEN for each client and server.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from bench.workers.base import BODY, About, serve_commands
from bench.workers.crowd import Shared
from bench.workers.raw import Asking, Connection, Raw, answer_one, connect

WAIT_S = 0.25
"""A missed notification is made up for after this long, at the latest."""


def listen(connection: Connection, channel: str) -> None:
    """Listen to that channel."""
    connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))


def notify(connection: Connection, channel: str) -> None:
    """Notify that channel when this transaction commits."""
    connection.execute("select pg_notify(%s, '')", (channel,))


def wait_notified(connection: Connection) -> None:
    """Wait for a notification, or for WAIT_S."""
    for _ in connection.notifies(timeout=WAIT_S, stop_after=1):
        pass


def serve_notified(index: int, shared: Shared, conninfo: str) -> None:
    """Be one server, woken by the clients."""
    shared.on_stop(lambda: None)
    with connect(conninfo) as connection:
        listen(connection, "request")
        while not shared.is_stopped():
            if answer_one(connection, lambda client: notify(connection, f"reply_{client}")):
                shared.done[index] += 1
            else:
                wait_notified(connection)


class Notified(Asking):
    """A client that waits for its notification."""

    def __init__(self, conninfo: str, number: int) -> None:
        super().__init__(conninfo, number)
        listen(self.connection, f"reply_{number}")

    def round_trip(self) -> None:
        """Send a request, wait to be notified, and take the reply out."""
        with self.connection.transaction():
            self.connection.execute(
                "insert into request (client, body) values (%s, %s)", (self.number, BODY)
            )
            notify(self.connection, "request")
        while self.take() is None:
            wait_notified(self.connection)


class NotifyBuild(Raw):
    """The tables of the raw statements, with notifications."""

    serve_requests = staticmethod(serve_notified)
    asking = Notified

    def about(self) -> About:
        """Return what the first line says."""
        return About(
            system="notify_build",
            version=f"psycopg {psycopg.__version__}",
            weaker="no registration, no same-rid check, no attempts, no error queue, no history",
            how="clients are threads, servers are processes, one LISTEN each;"
            " a NOTIFY in each transaction",
        )


if __name__ == "__main__":
    serve_commands(NotifyBuild)
