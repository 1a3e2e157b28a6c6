"""A server that takes up to a hundred waiting requests into one transaction.

The handler is the same as for single requests: it sees one. Each has a savepoint and a fence of its
own, so one that fails, or is killed, costs the others nothing; and all of them share one durable
commit, which is what takes the time. A server never waits for a batch to fill. Source: spec S3.
"""

from __future__ import annotations

import tempfile
import threading

import psycopg

import onceq

BOOKINGS = onceq.Queue("bookings", dict[str, int], str)
SCHEMA = "create table booked (row integer, cents integer, in_transaction text)"
INSERT = "insert into booked values (%s, %s, pg_current_xact_id()::text)"


def book(line: dict[str, int], context: onceq.Context) -> str:
    context.connection.execute(INSERT, (line["row"], line.get("cents", 0)))
    if "cents" not in line:  # its own row is undone; the rest of the batch is not
        raise onceq.Reject(f"row {line['row']} of the file has no amount")
    return "booked"


server = onceq.Server([BOOKINGS.handled_by(book, batch=100)])


def lines() -> list[tuple[str, dict[str, int]]]:
    """Returns the requests: two hundred lines of a file, two of which are wrong."""
    whole = [(str(row), {"row": row, "cents": 100 + row}) for row in range(200)]
    for row in (50, 150):
        del whole[row][1]["cents"]
    return whole


def show(qm: onceq.QueueManager, replies: list[onceq.Reply[str]]) -> None:
    failed = [reply for reply in replies if reply.outcome.value == "failed"]
    print(f"replies: {len(replies)}, of them failed: {len(failed)}")
    for reply in sorted(failed, key=lambda reply: int(reply.rid)):
        print("refused:", reply.text)
    with psycopg.connect(qm.located.conninfo) as db:
        found = db.execute("select in_transaction from booked").fetchall()
    print(f"booked: {len(found)} in fewer than 20 transactions:", len(set(found)) < 20)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(BOOKINGS)
            with psycopg.connect(qm.located.conninfo) as db:
                db.execute(SCHEMA)
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            try:
                with qm.clerk("file", BOOKINGS, window=200) as clerk:
                    clerk.send_many(lines())
                    show(qm, [clerk.receive(timeout_s=30) for _ in range(200)])
            finally:
                server.stop()
                serving.join()


if __name__ == "__main__":
    main()
