"""When and in which order: priority, not before, and expiry.

Without them elements are served in the order in which they were enqueued. Order is relaxed: an
element that comes back after an abort is served later than its neighbours. Source: spec Q8, Q9.
"""

from __future__ import annotations

import tempfile
import threading
from datetime import UTC, datetime, timedelta

import psycopg

import onceq

ERRANDS = onceq.Queue("errands", str, str)


def run_errand(what: str, context: onceq.Context) -> str:
    context.connection.execute("insert into done (what) values (%s)", (what,))
    return what


server = onceq.Server([ERRANDS.handled_by(run_errand)])


def send_all(clerk: onceq.Clerk[str, str]) -> None:
    now = datetime.now(UTC)  # examples may: the clock of the database decides
    clerk.send("1", "post a letter")
    clerk.send("2", "call the doctor", priority=9)  # 0 to 9, 4 unless said otherwise
    clerk.send("3", "fetch the cake", not_before=now + timedelta(seconds=1))
    clerk.send("4", "catch the ferry", expires_at=now - timedelta(seconds=1))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(ERRANDS)
            with psycopg.connect(qm.located.conninfo) as db:
                db.execute(
                    "create table done (number bigint generated always as identity, what text)"
                )
            with qm.clerk("me", ERRANDS, window=4) as clerk:
                send_all(clerk)
                serving = threading.Thread(target=server.run, args=(url,))
                serving.start()
                try:
                    for rid in "1234":
                        reply = clerk.receive(rid=rid, timeout_s=30)
                        print(rid, reply.outcome.value)
                finally:
                    server.stop()
                    serving.join()
            with psycopg.connect(qm.located.conninfo) as db:
                done = db.execute("select what from done order by number").fetchall()
            print("in the order of:", ", ".join(what for (what,) in done))


if __name__ == "__main__":
    main()
