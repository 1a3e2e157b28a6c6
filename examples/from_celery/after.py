"""The same orders with onceq. The client's answer gets lost too: it finds it, and books nothing."""

from __future__ import annotations

import tempfile
import threading

import msgspec
import psycopg

import onceq


class Order(msgspec.Struct):
    cents: int


class Receipt(msgspec.Struct):
    number: int


ORDERS = onceq.Queue("orders", Order, Receipt)
CREATE = "create table booked (number bigint generated always as identity, rid text)"
INSERT = "insert into booked (rid) values (%s) returning number"


def book(order: Order, context: onceq.Context) -> Receipt:
    if order.cents < 0:
        raise onceq.Reject("negative amount")
    row = context.connection.execute(INSERT, [context.rid]).fetchone()
    assert row is not None
    return Receipt(number=row[0])


server = onceq.Server([ORDERS.handled_by(book)])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(ORDERS)
            with psycopg.connect(qm.located.conninfo) as db:
                db.execute(CREATE)
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            try:
                trade(qm)
            finally:
                server.stop()
                serving.join()
            with psycopg.connect(qm.located.conninfo) as db:
                print("booked", len(db.execute("select from booked").fetchall()), "time")


def trade(qm: onceq.QueueManager) -> None:
    with qm.clerk("till-7", ORDERS) as clerk:
        clerk.send("4711", Order(1999))  # the client dies before the answer comes, say
    with qm.clerk("till-7", ORDERS) as clerk:  # it is started again
        match clerk.recover():
            case onceq.Submitted() | onceq.ReplyWaiting():
                reply = clerk.receive(timeout_s=30)
            case _:
                reply = clerk.transceive("4711", Order(1999), timeout_s=30)
        print("receipt", reply.value.number)
        try:
            print(clerk.transceive("4712", Order(-1), timeout_s=30).value)
        except onceq.RequestFailed as error:
            print("4712:", error.text)


if __name__ == "__main__":
    main()
