"""A handler and an outside service: the database work once, the call in a step of its own.

The first handler books the order and enqueues the charge, in one transaction. The second one
only calls the service, with the eid as idempotency key. Here it dies once after the call, and
the service recognises the repetition. See docs/outside-services.md.
"""

from __future__ import annotations

import tempfile
import threading

import psycopg

import onceq

ORDERS = onceq.Queue("orders", int, str)
CHARGES = onceq.Queue("charges", int, type(None), backoff_ms=10)


class CardService:
    """Stands for a service elsewhere. It recognises a key that it has seen."""

    def __init__(self) -> None:
        self.calls = 0
        self.charged: dict[str, int] = {}

    def charge(self, cents: int, *, idempotency_key: str) -> None:
        self.calls += 1
        self.charged.setdefault(idempotency_key, cents)


service = CardService()
done = threading.Event()


def book(cents: int, context: onceq.Context) -> str:
    """Step 1: exactly once, the enqueue included."""
    context.connection.execute("insert into booked (cents) values (%s)", (cents,))
    onceq.enqueue(context.connection, CHARGES, cents)
    return "booked"


def charge(cents: int, context: onceq.Context) -> None:
    """Step 2: at least once; the key makes it once."""
    service.charge(cents, idempotency_key=str(context.eid))
    if context.attempt == 1:
        raise ConnectionError("the answer of the service was lost")
    done.set()


server = onceq.Server([ORDERS.handled_by(book), CHARGES.handled_by(charge)])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(ORDERS)
            with psycopg.connect(qm.located.conninfo) as db:
                db.execute("create table booked (cents bigint)")
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            try:
                with qm.clerk("till-7", ORDERS) as clerk:
                    print(clerk.transceive("4711", 1999, timeout_s=30).value)
                done.wait(30)
            finally:
                server.stop()
                serving.join()
            with psycopg.connect(qm.located.conninfo) as db:
                print("bookings:", db.execute("select cents from booked").fetchall())
            print("calls:", service.calls, "charges:", list(service.charged.values()))


if __name__ == "__main__":
    main()
