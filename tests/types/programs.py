"""Programs as people write them: each line that is called wrong is, and no other is.

Nothing here is run. `test_programs.py` takes these words away and asks the type checkers.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

import msgspec

import onceq


class Order(msgspec.Struct):
    customer: str
    cents: int


class Receipt(msgspec.Struct):
    number: int


ORDERS = onceq.Queue("orders", Order, Receipt, abort_limit=3, durable=False, error_queue="lost")
ALERTS = onceq.Queue("alerts", str, type(None))
ANYTHING = onceq.Queue[Any, Any]("anything", dict, dict)


def book(order: Order, context: onceq.Context) -> Receipt:
    context.connection.execute("select 1")
    return Receipt(order.cents)


async def book_async(order: Order, context: onceq.AsyncContext) -> Receipt:
    await context.connection.execute("select 1")
    return Receipt(order.cents)


class Desk:
    def book(self, order: Order, _: onceq.Context, *, careless: bool = False) -> Receipt:
        return Receipt(order.cents if careless else 0)

    def __call__(self, order: Order, _: onceq.Context) -> Receipt:
        return Receipt(order.cents)


class AsyncDesk:
    async def __call__(self, order: Order, _: onceq.AsyncContext) -> Receipt:
        return Receipt(order.cents)


def alert(_text: str, _context: onceq.Context) -> None: ...


def untyped(request: Any, _: Any) -> Any:
    return request


def of_a_str(_order: str, _context: onceq.Context) -> Receipt:
    return Receipt(1)


def gives_a_str(_order: Order, _context: onceq.Context) -> str:
    return ""


def gives_nothing(_order: Order, _context: onceq.Context) -> None: ...


def of_one(order: Order) -> Receipt:
    return Receipt(order.cents)


def of_three(order: Order, _: onceq.Context, extra: int) -> Receipt:
    return Receipt(order.cents + extra)


def with_async_context(_order: Order, _context: onceq.AsyncContext) -> Receipt:
    return Receipt(1)


async def with_sync_context(_order: Order, _context: onceq.Context) -> Receipt:
    return Receipt(1)


async def gives_a_str_async(_order: Order, _context: onceq.AsyncContext) -> str:
    return ""


def awaits_nothing(_order: Order, context: onceq.Context) -> Receipt:
    context.connection.colour()  # type: ignore[attr-defined] # wrong
    return Receipt(int(context.rid + 1))  # type: ignore[operator] # wrong


def right_handlers() -> list[Any]:
    return [
        ORDERS.handled_by(book),
        ORDERS.handled_by(book_async),
        ORDERS.handled_by(Desk().book),
        ORDERS.handled_by(Desk()),
        ORDERS.handled_by(AsyncDesk()),
        ORDERS.handled_by(partial(of_three, extra=1)),
        ORDERS.handled_by(lambda order, context: Receipt(order.cents + context.attempt)),
        ORDERS.handled_by(book, isolation="serializable", batch=10, effects=False),
        ORDERS.handled_by(untyped),
        ALERTS.handled_by(alert),
        ANYTHING.handled_by(untyped),
        onceq.Server([ORDERS.handled_by(book), ALERTS.handled_by(alert)], concurrency=4),
    ]


def wrong_handlers() -> None:
    ORDERS.handled_by(5)  # type: ignore[call-overload] # wrong
    ORDERS.handled_by(of_a_str)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(gives_a_str)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(gives_nothing)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(of_one)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(of_three)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(with_async_context)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(with_sync_context)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(gives_a_str_async)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(Receipt)  # type: ignore[arg-type] # wrong
    ORDERS.handled_by(lambda order, _: Receipt(order.price))  # type: ignore[attr-defined] # wrong
    ORDERS.handled_by(book, isolation="serialisable")  # type: ignore[call-overload] # wrong
    ORDERS.handled_by(book, batches=10)  # type: ignore[call-overload] # wrong
    ORDERS.handled_by(book, batch="10")  # type: ignore[call-overload] # wrong
    ALERTS.handled_by(book)  # type: ignore[arg-type] # wrong


def wrong_queues() -> None:
    onceq.Queue("q", Order, Receipt, abort_limt=3)  # type: ignore[call-arg] # wrong
    onceq.Queue("q", Order, Receipt, abort_limit="3")  # type: ignore[arg-type] # wrong
    onceq.Queue("q", Order, Receipt, 3)  # type: ignore[call-arg] # wrong
    onceq.Queue("q", Order)  # type: ignore[call-arg] # wrong
    onceq.Queue("q", Order, 5)  # type: ignore[arg-type] # wrong
    onceq.Queue(b"q", Order, Receipt)  # type: ignore[arg-type] # wrong
    onceq.QueueSettings(abort_limt=3)  # type: ignore[call-arg] # wrong


def wrong_servers() -> None:
    onceq.Server([ORDERS])  # type: ignore[list-item] # wrong
    onceq.Server(ORDERS.handled_by(book))  # type: ignore[arg-type] # wrong
    onceq.Server([ORDERS.handled_by(book)], concurency=4)  # type: ignore[call-arg] # wrong


def right_client(qm: onceq.QueueManager) -> int:
    qm.declare(ORDERS)
    qm.enqueue(ORDERS, Order("ann", 5), priority=9)
    with qm.clerk("till", ORDERS, window=10) as clerk:
        clerk.send("1", Order("ann", 5), priority=3)
        return clerk.receive(timeout_s=5).value.number


def right_client_with_a_ledger(qm: onceq.QueueManager) -> int:
    with qm.clerk("till", ORDERS, ledger=onceq.SqliteLedger("till.ledger")) as clerk:
        clerk.recover(policy="resubmit")
        with clerk.transaction() as work:
            work.send("1", Order("ann", 5), end_user=onceq.EndUser("7"))
        return work.connection.total_changes


def wrong_client_with_a_ledger(
    clerk: onceq.LedgerClerk[Order, Receipt, sqlite3.Connection], any_clerk: onceq.Clerk[Order, int]
) -> None:
    any_clerk = clerk  # type: ignore[assignment] # wrong
    any_clerk.recover(policy="guess")  # type: ignore[arg-type] # wrong
    with clerk.transaction() as work:
        work.send("1", "ann")  # type: ignore[arg-type] # wrong
        work.connection.colour()  # type: ignore[attr-defined] # wrong


def wrong_client(qm: onceq.QueueManager, clerk: onceq.Clerk[Order, Receipt]) -> None:
    qm.declare("orders")  # type: ignore[arg-type] # wrong
    qm.clerk("till", "orders")  # type: ignore[call-overload] # wrong
    qm.clerk("till", ORDERS, windw=10)  # type: ignore[call-overload] # wrong
    qm.enqueue(ORDERS, "ann")  # type: ignore[misc] # wrong
    qm.enqueue(ORDERS, Order("ann", 5), prority=9)  # type: ignore[call-arg] # wrong
    qm.enqueue_many(ORDERS, ["ann"])  # type: ignore[misc] # wrong
    qm.show(ORDERS)  # type: ignore[arg-type] # wrong
    qm.kill("1")  # type: ignore[arg-type] # wrong
    clerk.send(1, Order("ann", 5))  # type: ignore[arg-type] # wrong
    clerk.send("1", "ann")  # type: ignore[arg-type] # wrong
    clerk.send("1", Order("ann", 5), prority=9)  # type: ignore[call-arg] # wrong
    clerk.receive(timeout_s="5")  # type: ignore[arg-type] # wrong
    clerk.receive().value.colour()  # type: ignore[attr-defined] # wrong
    raise onceq.Reject(code=5)  # type: ignore[call-arg] # wrong


async def right_async_client(qm: onceq.AsyncQueueManager) -> int:
    await qm.declare(ORDERS)
    async with qm.clerk("till", ORDERS) as clerk:
        await clerk.send("1", Order("ann", 5))
        return (await clerk.receive()).value.number


async def wrong_async_client(
    qm: onceq.AsyncQueueManager, clerk: onceq.AsyncClerk[Order, Receipt]
) -> None:
    await qm.declare("orders")  # type: ignore[arg-type] # wrong
    qm.declare(ORDERS).colour()  # type: ignore[attr-defined] # wrong
    await clerk.send("1", "ann")  # type: ignore[arg-type] # wrong
    clerk.receive().value.colour()  # type: ignore[attr-defined] # wrong
    with qm.clerk("till", ORDERS):  # type: ignore[attr-defined] # wrong
        pass
