"""Fire and forget, in the caller's own transaction: enqueued if, and only if, that commits.

No clerk, no reply. A lookup finds the outcome. The connection is the caller's: one of
psycopg's, or of SQLAlchemy's over it. Source: spec Q2, C16.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading

import psycopg
import sqlalchemy

import onceq

MAILS = onceq.Queue("mails", dict[str, str], type(None))


class ChangedMyMindError(Exception):
    """Rolls a transaction back."""


def send_mail(mail: dict[str, str], context: onceq.Context) -> None:
    """Handles what was enqueued; there is nobody to reply to."""
    context.connection.execute("insert into sent (address) values (%s)", (mail["to"],))


server = onceq.Server([MAILS.handled_by(send_mail)])


def with_psycopg(conninfo: str) -> None:
    with psycopg.connect(conninfo) as db:
        db.execute("create table customer (name text)")
        db.execute("create table sent (address text)")
    with psycopg.connect(conninfo) as db:
        db.execute("insert into customer values ('ann')")
        onceq.enqueue(db, MAILS, {"to": "ann"}, rid="welcome ann")
    # here both are committed, or, had anything raised, neither


def with_sqlalchemy(conninfo: str) -> None:
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(conninfo)
    )
    with contextlib.suppress(ChangedMyMindError), engine.begin() as db:
        db.execute(sqlalchemy.text("insert into customer values ('bob')"))
        onceq.enqueue(db, MAILS, {"to": "bob"}, rid="welcome bob")
        raise ChangedMyMindError
    with engine.begin() as db:
        onceq.enqueue(db, MAILS, {"to": "cleo"}, rid="welcome cleo")
    engine.dispose()


def wait_until_empty(qm: onceq.QueueManager) -> None:
    for _ in range(600):  # 30 s
        if not qm.show("mails").depth:
            return
        threading.Event().wait(0.05)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(MAILS)
            with_psycopg(qm.located.conninfo)
            with_sqlalchemy(qm.located.conninfo)
            print("waiting:", qm.show("mails").ready)
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            wait_until_empty(qm)
            server.stop()
            serving.join()
            for who in ("ann", "bob", "cleo"):
                found = qm.lookup(f"welcome {who}")
                print(who, [(one.state, one.outcome) for one in found])


if __name__ == "__main__":
    main()
