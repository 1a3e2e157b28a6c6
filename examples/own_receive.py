"""Receive a reply in a transaction of your own: it goes with your own writes, or comes again.

No printer, no checkpoint, no question after a crash: if what a client does with a reply is SQL
in the same database, one commit is enough. A reply that can never be processed is held aside.
Source: spec C15; docs/exactly-once-output.md.
"""

from __future__ import annotations

import tempfile
import threading

import psycopg

import onceq

PRICES = onceq.Queue("prices", str, int)


def price(what: str, _context: onceq.Context) -> int:
    """The server's side."""
    return len(what)


server = onceq.Server([PRICES.handled_by(price)])


def note(clerk: onceq.Clerk[str, int], db: psycopg.Connection) -> None:
    """Receives a reply and writes it down, in the transaction on `db`, which commits or not."""
    with db.transaction():
        reply = clerk.receive(connection=db, timeout_s=30)
        db.execute("insert into noted (rid, price) values (%s, %s)", (reply.rid, reply.value))


def client(clerk: onceq.Clerk[str, int], db: psycopg.Connection) -> None:
    clerk.send("1", "a fair price")
    note(clerk, db)
    print("noted:", db.execute("select rid, price from noted").fetchall())

    clerk.send("2", "far too long for the table that it is to be noted in")
    refused = 0
    try:
        while True:
            try:
                note(clerk, db)
            except psycopg.errors.CheckViolation:
                refused += 1
    except onceq.ReplyHeld as held:
        print("request", held.rid, "was refused", refused, "times, and is held")

    clerk.send("3", "another")
    note(clerk, db)
    print("noted:", db.execute("select rid, price from noted order by rid").fetchall())


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, onceq.open(f"embedded:{directory}/data") as qm:
        qm.declare(PRICES)
        conninfo = qm.located.conninfo
        serving = threading.Thread(target=server.run, args=(f"embedded:{directory}/data",))
        serving.start()
        try:
            with (
                qm.clerk("shop", PRICES) as clerk,
                psycopg.connect(conninfo, autocommit=True) as db,
            ):
                db.execute("create table noted (rid text, price integer check (price < 20))")
                client(clerk, db)
        finally:
            server.stop()
            serving.join()
        (row,) = qm.lookup("2", state="held")
        print("it is in", row.queue, "and its request is", row.outcome)


if __name__ == "__main__":
    main()
