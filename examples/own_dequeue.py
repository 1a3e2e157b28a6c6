"""Dequeue in a transaction of your own: the element goes if, and only if, you commit.

For programs that are not servers. A rollback counts as an abort, a kill makes the commit fail.
Source: spec Q2, G8; BHM90 4.2; docs/adr/0005.
"""

from __future__ import annotations

import contextlib
import tempfile

import psycopg

import onceq

PARCELS = onceq.Queue("parcels", str, str, backoff_ms=0)
CLAIM_LOST = "OQ002"  # the SQLSTATE of a commit that a kill has won against


class DroppedItError(Exception):
    """Rolls a transaction back."""


def deliver(qm: onceq.QueueManager, db: psycopg.Connection) -> onceq.Element:
    """Takes the next parcel in the transaction on `db`, and writes down that it was delivered."""
    element = qm.dequeue("parcels", timeout_s=5, connection=db)
    assert element is not None
    db.execute("insert into delivered (what) values (%s)", (PARCELS.decode_request(element.body),))
    return element


def committed(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.enqueue(PARCELS, "book")
    with psycopg.connect(conninfo) as db:
        deliver(qm, db)
    print("after a commit the queue holds", qm.show("parcels").depth)


def rolled_back(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.enqueue(PARCELS, "vase")
    with contextlib.suppress(DroppedItError), psycopg.connect(conninfo) as db:
        deliver(qm, db)
        raise DroppedItError
    with psycopg.connect(conninfo) as db:
        again = deliver(qm, db)
    print("after a rollback it comes again, with", again.aborts, "abort")


def killed(qm: onceq.QueueManager, conninfo: str) -> None:
    eid = qm.enqueue(PARCELS, "bomb")
    try:
        with psycopg.connect(conninfo) as db:
            deliver(qm, db)
            print("a kill meanwhile:", qm.kill(eid).name)
    except psycopg.Error as error:
        print("the commit then fails:", error.sqlstate == CLAIM_LOST)


def replied(qm: onceq.QueueManager, conninfo: str) -> None:
    """A request owes a reply: it is given in the same transaction."""
    with qm.clerk("sender", PARCELS) as clerk:
        clerk.send("1", "letter")
        with psycopg.connect(conninfo) as db:
            element = deliver(qm, db)
            qm.reply(db, element, PARCELS.encode_reply("signed for"))
        print("the sender gets:", clerk.receive(timeout_s=5).value)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, onceq.open(f"embedded:{directory}/data") as qm:
        qm.declare(PARCELS)
        conninfo = qm.located.conninfo
        with psycopg.connect(conninfo) as db:
            db.execute("create table delivered (what text)")
        committed(qm, conninfo)
        rolled_back(qm, conninfo)
        killed(qm, conninfo)
        replied(qm, conninfo)
        with psycopg.connect(conninfo) as db:
            rows = db.execute("select what from delivered").fetchall()
        print("delivered:", ", ".join(what for (what,) in rows))


if __name__ == "__main__":
    main()
