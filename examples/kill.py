"""Kill: cancel a waiting request, a running one, and one that is done.

KILLED: no effect ever commits, and one cancelled reply exists. TOO_LATE: it took effect. The
database decides, so it is never a guess. Source: spec G8, Q6; BHM90 7.
"""

from __future__ import annotations

import tempfile
import threading

import psycopg

import onceq

SLEEPS = onceq.Queue("sleeps", str, str)
running = threading.Event()
go_on = threading.Event()


def sleep(how: str, context: onceq.Context) -> str:
    context.connection.execute("insert into slept (rid) values (%s)", (context.rid,))
    if how == "long":
        running.set()
        go_on.wait(30)
    return "slept"


server = onceq.Server([SLEEPS.handled_by(sleep)])


def show(what: str, clerk: onceq.Clerk[str, str]) -> None:
    reply = clerk.receive(timeout_s=30)
    try:
        print(f"{what}: the reply is {reply.value!r}")
    except onceq.Cancelled as cancelled:
        print(f"{what}: the reply says {cancelled.code}")


def kill_while_queued(clerk: onceq.Clerk[str, str]) -> None:
    clerk.send("queued", "short")  # no server is running yet
    print("queued:", clerk.cancel_last_request().name)
    show("queued", clerk)


def kill_while_running(qm: onceq.QueueManager, clerk: onceq.Clerk[str, str]) -> None:
    sent = clerk.send("running", "long")
    running.wait(30)
    print("running:", qm.kill(sent.eid).name, "and again:", qm.kill(sent.eid).name)
    go_on.set()  # the handler goes on; its insert will be rolled back
    show("running", clerk)


def kill_when_done(clerk: onceq.Clerk[str, str]) -> None:
    clerk.send("done", "short")
    show("done", clerk)
    print("done:", clerk.cancel_last_request().name)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(SLEEPS)
            with psycopg.connect(qm.located.conninfo) as db:
                db.execute("create table slept (rid text)")
            serving = threading.Thread(target=server.run, args=(url,))
            with qm.clerk("sleeper", SLEEPS) as clerk:
                kill_while_queued(clerk)
                serving.start()
                try:
                    kill_while_running(qm, clerk)
                    kill_when_done(clerk)
                finally:
                    server.stop()
                    serving.join()
            with psycopg.connect(qm.located.conninfo) as db:
                print("effects:", db.execute("select rid from slept").fetchall())


if __name__ == "__main__":
    main()
