"""What the tests of the Spark server share: a repository, a client, what must hold at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.engine.schema import migrate
from onceq.model import ops
from onceq.model.queue import QueueSettings

if TYPE_CHECKING:
    import psycopg

QUEUE = "orders"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of a test, with a client connected to it."""

    conninfo: str
    name: str
    driver: SparkDriver
    client: ops.Connection
    opened: list[psycopg.Connection[Any]] = field(default_factory=list)

    def close(self) -> None:
        for connection in [self.driver.connection, *self.opened]:
            connection.close()

    def send(self, count: int, first: int = 0, **body: Any) -> list[str]:
        """Send requests: {"customer": "a0".., "cents": n}; return their rids."""
        rids = [f"r{n}" for n in range(first, first + count)]
        bodies = [
            msgspec.json.encode({"customer": f"a{n % 3}", "cents": n, **body})
            for n in range(first, first + count)
        ]
        self.driver.perform(
            ops.SendMany(
                who=self.client.who,
                queue=QUEUE,
                rids=rids,
                bodies=bodies,
                send_no=first + 1,
                ack=[],
            )
        )
        return rids

    def ask(self, text: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run a query; `{}.` in it stands for the repository."""
        query = text.replace("{}", self.name).encode()
        return self.driver.connection.execute(query, arguments or None).fetchall()

    def do(self, text: str) -> None:
        """Run a statement; `{}.` in it stands for the repository."""
        self.driver.connection.execute(text.replace("{}", self.name).encode())

    def replies(self) -> dict[str, tuple[str, bytes]]:
        """Return outcome and body of every reply, by rid; two for one rid is an error."""
        rows = self.ask("select rid, outcome::text, body from {}.element where role = 'reply'")
        found = {rid: (outcome, bytes(body)) for rid, outcome, body in rows}
        assert len(found) == len(rows)
        return found

    def totals(self) -> dict[str, Any]:
        return dict(self.ask("select customer, cents from {}.totals"))

    def booked(self) -> list[tuple[Any, ...]]:
        return self.ask("select rid, customer, cents from {}.booked order by cents")

    def eids(self) -> dict[str, Any]:
        return dict(self.ask("select rid, eid from {}.element where role = 'request'"))

    def seqs_left(self) -> int:
        (row,) = self.ask("select count(*) from {}.element where role = 'request'")
        return int(row[0])


def make_repository(conninfo: str, name: str, **settings: Any) -> Repository:
    """Create a repository with a queue, two tables of the user and a client."""
    connection: psycopg.Connection[Any] = connect(conninfo)
    migrate.apply(connection, name)
    driver = SparkDriver(connection, name)
    chosen = QueueSettings(backoff_ms=0, backoff_max_ms=0, **settings)
    driver.perform(ops.CreateQueue(queue=QUEUE, settings=chosen))
    made = Repository(conninfo, name, driver, driver.perform(ops.Connect(name="till")))
    made.do("create table {}.booked (rid text unique, customer text not null, cents bigint)")
    made.do("create table {}.totals (customer text primary key, cents numeric not null)")
    return made
