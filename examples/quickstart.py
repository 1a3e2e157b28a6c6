"""A request, its handler, its reply: the whole of onceq in one file.

Client and server are usually two programs; here the server is a thread. Run it: it makes a
repository in a temporary directory, prints what happens, and ends.
"""

from __future__ import annotations

import tempfile
import threading

import msgspec
import psycopg

import onceq


class Order(msgspec.Struct):
    """What the client asks for."""

    customer: str
    cents: int


class Receipt(msgspec.Struct):
    """What the client gets."""

    number: int


ORDERS = onceq.Queue("orders", Order, Receipt)  # a value: client and server share it
CREATE = """
create table booked (number bigint generated always as identity, customer text, cents bigint)
"""
INSERT = "insert into booked (customer, cents) values (%s, %s) returning number"


def book(order: Order, context: onceq.Context) -> Receipt:
    """Books an order, in the transaction that also ends the request and holds the reply."""
    row = context.connection.execute(INSERT, (order.customer, order.cents)).fetchone()
    assert row is not None
    return Receipt(number=row[0])


server = onceq.Server([ORDERS.handled_by(book)])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(ORDERS)  # idempotent
            with psycopg.connect(qm.located.conninfo) as db:
                db.execute(CREATE)
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            try:
                with qm.clerk("till-7", ORDERS) as clerk:
                    reply = clerk.transceive("4711", Order("ann", 1999), timeout_s=30)
                    print("receipt", reply.value.number, "for order", reply.rid)
                    again = clerk.rereceive()
                    print("the same again:", again == reply)
            finally:
                server.stop()
                serving.join()


if __name__ == "__main__":
    main()
