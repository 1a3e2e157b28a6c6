"""What the tests of files share: a queue of JSON objects, a ledger of effects, files of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onceq
from tests.parts import plain, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.parts import Cli

ORDERS = onceq.Queue("orders", dict[str, Any], dict[str, Any], abort_limit=1)


def book(order: dict[str, Any], context: onceq.Context) -> dict[str, Any]:
    """Counts its executions in the ledger; refuses what is marked."""
    repository = context.connection.execute(
        "select current_setting('onceq_test.ledger')"
    ).fetchone()
    assert repository is not None
    context.connection.execute(
        f"insert into {repository[0]}.effects values (%s)".encode(), [context.rid]
    )
    if order.get("refuse") == "yes":
        raise onceq.Reject('refused,\n"as marked"')
    return {"number": order["id"], "total": "1.10"}


def make_ledger(cli: Cli) -> str:
    """Makes the table of effects; returns the URL whose sessions know where it is."""
    with plain(cli.url) as connection:
        connection.execute(f"create table {cli.repository}.effects (rid text)".encode())
    return f"{cli.url} options='-c onceq_test.ledger={cli.repository}'"


def effects(cli: Cli) -> list[tuple[str, int]]:
    """Returns how often each rid was executed."""
    query = f"select rid, count(*) from {cli.repository}.effects group by rid order by rid"
    return [(rid, count) for rid, count in rows(cli.url, query)]


def sent_rids(cli: Cli) -> list[str]:
    """Returns the rid of every request that is queued, oldest first."""
    query = f"select rid from {cli.repository}.element where role = 'request' order by seq"
    return [rid for (rid,) in rows(cli.url, query)]


def bodies(cli: Cli) -> list[bytes]:
    """Returns the body of every request that is queued, oldest first."""
    query = f"select body from {cli.repository}.element where role = 'request' order by seq"
    return [bytes(body) for (body,) in rows(cli.url, query)]


def write_csv(path: Path, count: int, *, refuse: int = 0) -> Path:
    """Writes a file of orders, ids from 1; every refuse-th is to be refused."""
    lines = [
        f"{n},customer {n % 7},{'yes' if refuse and n % refuse == 0 else 'no'}"
        for n in range(1, count + 1)
    ]
    path.write_text("\n".join(["id,customer,refuse", *lines]) + "\n")
    return path


def end_sessions(cli: Cli) -> None:
    """Ends the sessions that bear the name of this test's repository."""
    with plain(cli.url) as connection:
        connection.execute(
            b"select pg_terminate_backend(pid, 60000) from pg_stat_activity"
            b" where application_name = %s",
            [cli.repository],
        )
