"""What people write wrong, and what they are told: what, where, and what to do instead.

One table for both: each use is tried on what `onceq.open` returns, and awaited on what
`onceq.open_async` returns.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import sys
import uuid
from typing import Any, Final

import msgspec
import psycopg
import pytest

import onceq
from onceq import errors


class Order(msgspec.Struct):
    customer: str
    cents: int


class Receipt(msgspec.Struct):
    number: int


class Plain:
    """Says nothing of its fields."""


ORDERS = onceq.Queue("orders", Order, Receipt)
ORDER = Order("ann", 100)


def nested() -> list[Any]:
    """Returns what nobody can write out: Python gives up."""
    made: list[Any] = []
    for _ in range(sys.getrecursionlimit()):
        made = [made]
    return made


def book(order: Order, context: onceq.Context) -> Receipt:
    del order, context
    return Receipt(1)


async def book_later(reply: object) -> None:
    del reply


VALUE: Final = "InvalidValue"
NAME: Final = "InvalidName"
CLOSED: Final = "CannotConnect"
PYTHON: Final = "TypeError"

USES: Final = (
    # queues
    ("onceq.Queue(5, Order, Receipt)", NAME, "a queue name is a str, not int"),
    ("onceq.Queue('a b', Order, Receipt)", NAME, "1 to 63 of A-Z a-z 0-9 _ . -"),
    ("onceq.Queue(NESTED, Order, Receipt)", NAME, "a queue name is a str, not list"),
    ("onceq.Queue('q', Order)", PYTHON, "reply_type"),
    ("onceq.Queue('q', Order, Receipt, onceq.QueueSettings())", PYTHON, "positional"),
    ("onceq.Queue('q', 5, Receipt)", VALUE, "the requests of queue 'q': 5 is no type"),
    ("onceq.Queue('q', 'Order', Receipt)", VALUE, "give the class or type itself"),
    ("onceq.Queue('q', ORDER, Receipt)", VALUE, "is no type that JSON can be read into"),
    ("onceq.Queue('q', Order, Plain)", VALUE, "the replies of queue 'q': the class Plain"),
    ("onceq.Queue('q', list[Plain], bytes)", VALUE, "use a msgspec.Struct, a dataclass"),
    ("onceq.Queue('q', Order, Receipt, abort_limt=3)", VALUE, "'abort_limit' was meant?"),
    ("onceq.Queue('q', Order, Receipt, abort_limit=3.0)", VALUE, "an int from 1 to 1000, not 3.0"),
    ("onceq.Queue('q', Order, Receipt, abort_limit=True)", VALUE, "an int from 1 to 1000"),
    ("qm.declare('orders')", VALUE, "declare: the queue is an onceq.Queue, not 'orders': give"),
    ("qm.declare(None)", VALUE, "declare: the queue is an onceq.Queue, not None"),
    ("qm.declare(onceq.Queue)", VALUE, "not the class Queue"),
    ("qm.declare([ORDERS])", VALUE, "not a value of class list"),
    ("qm.create('orders')", VALUE, "create: the queue is an onceq.Queue, not 'orders'"),
    ("qm.alter('orders')", VALUE, "write alter(onceq.AlterQueue(queue='orders', abort_limit=3))"),
    ("qm.alter('orders', abort_limit=3)", PYTHON, "abort_limit"),
    (
        "qm.alter(onceq.AlterQueue(queue='orders', abort_limit=True))",
        VALUE,
        "abort_limit is an int",
    ),
    ("qm.show(ORDERS)", NAME, "a queue name is a str, not Queue: give its name"),
    ("qm.start(ORDERS)", NAME, "give its name"),
    ("qm.stop('orders', enqueue=1)", VALUE, "enqueue is True or False, not 1"),
    ("qm.start('orders', dequeue='no')", VALUE, "dequeue is True or False, not 'no'"),
    ("qm.destroy(ORDERS)", NAME, "give its name"),
    ("qm.rates('60')", VALUE, "a number of seconds"),
    # servers
    ("onceq.Server([ORDERS])", VALUE, "Server: what is served is a queue with its handler"),
    ("onceq.Server([book])", VALUE, "write Server([queue.handled_by(handler)])"),
    ("onceq.Server(ORDERS.handled_by(book))", VALUE, "in a list, not a value of class Handled"),
    ("onceq.Server(ORDERS)", VALUE, "Server: what is served are a list, not a Queue"),
    ("onceq.Server(book)", VALUE, "in a list, not a value of class function"),
    ("onceq.Server('orders')", VALUE, "are a list, not a str"),
    ("onceq.Server(None)", VALUE, "in a list, not None"),
    ("onceq.Server([])", VALUE, "at least one queue.handled_by(handler)"),
    ("onceq.Server([ORDERS.handled_by(book)] * 2)", VALUE, "handled twice"),
    ("onceq.Server([ORDERS.handled_by(book)], stop_timeout_s='5')", VALUE, "from 0 to 1e+09, not"),
    ("onceq.Server([ORDERS.handled_by(book)], stop_timeout_s=-5)", VALUE, "stop_timeout_s is a"),
    ("onceq.Server([ORDERS.handled_by(book)], concurrency=True)", VALUE, "concurrency is an int"),
    ("onceq.Server([ORDERS.handled_by(book)], on_error=5)", VALUE, "on_error"),
    ("onceq.Server([ORDERS.handled_by(book)]).run(qm)", VALUE, "a URL is text"),
    ("ORDERS.handled_by(5)", VALUE, "a handler is a function (request, context), not 5"),
    ("ORDERS.handled_by(book, batc=5)", VALUE, "'batch' was meant?"),
    # elements
    ("qm.enqueue('orders', ORDER)", VALUE, "enqueue: the queue is an onceq.Queue, not 'orders'"),
    ("qm.enqueue(ORDERS)", PYTHON, "request"),
    ("qm.enqueue(ORDERS, None)", VALUE, "the request for queue 'orders' is not a"),
    ("qm.enqueue(ORDERS, ORDER, prority=5)", VALUE, "enqueue has no keyword 'prority'; 'priority'"),
    ("qm.enqueue(ORDERS, ORDER, priority='5')", VALUE, "priority is an int from 0 to 9"),
    ("qm.enqueue(ORDERS, ORDER, rid=5)", NAME, "a rid is a str, not int"),
    ("qm.enqueue(ORDERS, ORDER, not_before=5)", VALUE, "a datetime with a time zone"),
    ("qm.enqueue(ORDERS, ORDER, expires_at=dt.timedelta(1))", VALUE, "a datetime with a time zone"),
    ("qm.enqueue(ORDERS, ORDER, properties=[1])", VALUE, "properties are a mapping, not list"),
    ("qm.enqueue(ORDERS, ORDER, connection='x')", VALUE, "give a psycopg 3 connection"),
    ("qm.enqueue_many('orders', [ORDER])", VALUE, "enqueue_many: the queue is an onceq.Queue"),
    ("qm.enqueue_many(ORDERS, ORDER)", VALUE, "requests are a list, not a Order"),
    ("qm.enqueue_many(ORDERS, 'abc')", VALUE, "requests are a list, not a str"),
    ("enqueue(conn, 'orders', ORDER)", VALUE, "enqueue: the queue is an onceq.Queue"),
    ("enqueue(ORDERS, ORDER)", PYTHON, "request"),
    ("enqueue('x', ORDERS, ORDER)", VALUE, "str is not a connection"),
    ("enqueue(qm, ORDERS, ORDER)", VALUE, "give a psycopg 3 connection"),
    ("enqueue(conn, ORDERS, ORDER, prority=5)", VALUE, "'priority' was meant?"),
    ("qm.dequeue(ORDERS)", NAME, "give its name"),
    ("qm.dequeue('orders', timeout_s='5')", VALUE, "a timeout is a number of seconds, not '5'"),
    ("qm.dequeue('orders', eid='x')", VALUE, "an eid is a UUID, not str"),
    ("qm.kill('x')", VALUE, "an eid is a UUID, not str"),
    ("qm.kill(NESTED)", VALUE, "an eid is a UUID, not list"),
    ("qm.clerk(NESTED, ORDERS)", NAME, "a registrant is a str, not list"),
    ("qm.kill(EID, timeout_s='x')", VALUE, "a timeout is a number of seconds"),
    ("qm.redrive(None)", VALUE, "an eid is a UUID, not NoneType"),
    ("qm.lookup(EID)", NAME, "a rid is a str, not UUID"),
    ("qm.lookup(limit=0)", VALUE, "limit is an int from 1"),
    ("qm.find(ridd='x')", VALUE, "find has no keyword 'ridd'; 'rid' was meant?"),
    ("qm.find(outcome='done')", VALUE, "outcome is of class RequestOutcome"),
    ("qm.find(since='2026-01-01')", VALUE, "since is a datetime with a time zone"),
    ("qm.attempts('x')", VALUE, "an eid is a UUID"),
    ("qm.resolve(5)", NAME, "a rid is a str, not int"),
    # registrations
    ("qm.register(ORDERS, 'x')", NAME, "give its name"),
    ("qm.register('orders', 'x', life='y')", VALUE, "register: the handle is what `register`"),
    ("qm.deregister('orders', None)", VALUE, "deregister: the handle is what `register` returned"),
    ("qm.deregister('orders', [])", VALUE, "write (handle, *_) = register(queue, registrant)"),
    ("qm.enqueue_tagged('orders', 'x', b'')", VALUE, "enqueue_tagged: the handle is"),
    ("qm.dequeue_tagged('orders', None)", VALUE, "dequeue_tagged: the handle is"),
    ("qm.read_tagged('orders', 'x', EID)", VALUE, "read_tagged: the handle is"),
    ("qm.kill_tagged('orders', 'x', EID)", VALUE, "kill_tagged: the handle is"),
    ("qm.read_last('orders', 5)", VALUE, "read_last: the handle is"),
    # clerks
    ("qm.clerk('c', 'orders')", VALUE, "the clerk of client 'c': the queue is an onceq.Queue, not"),
    ("qm.clerk('c', Order)", VALUE, "not the class Order: give the value that"),
    ("qm.clerk(ORDERS, 'c')", NAME, "a registrant is a str, not Queue"),
    ("qm.clerk(5, ORDERS)", NAME, "a registrant is a str, not int"),
    ("qm.clerk('c', ORDERS, window='5')", VALUE, "window is an int from 1"),
    ("qm.clerk('c', ORDERS, windw=5)", VALUE, "client 'c' has no keyword 'windw'; 'window'"),
    ("qm.clerk('c', ORDERS, ledger='file')", VALUE, "a ledger is an onceq.SqliteLedger"),
    ("qm.clerk('c', ORDERS, ledger=onceq.SqliteLedger)", VALUE, "not the class SqliteLedger"),
    ("qm.clerk('c', ORDERS, ledger=LEDGER, windw=5)", VALUE, "'window' was meant?"),
    ("qm.clerk('c', 'orders', ledger=LEDGER)", VALUE, "the queue is an onceq.Queue"),
    ("closed.send('1', ORDER)", CLOSED, "the clerk of client 'till' is not connected: connect()"),
    ("closed.receive(timeout_s=0)", CLOSED, "the clerk of client 'till' is not connected"),
    ("qm.clerk('new', ORDERS).send('1', ORDER)", CLOSED, "the clerk of client 'new' is not"),
    ("clerk.send(1, ORDER)", NAME, "a rid is a str, not int"),
    ("clerk.send(ORDER, '1')", NAME, "a rid is a str, not Order"),
    ("clerk.send('', ORDER)", NAME, "a rid has 1 to 200 bytes, not 0"),
    ("clerk.send('1', {'customer': 'x'})", VALUE, "missing required field `cents`"),
    ("clerk.send('1', ORDER, prority=1)", VALUE, "send has no keyword 'prority'; 'priority' was"),
    ("clerk.send('1', ORDER, rid='2')", PYTHON, "rid"),
    ("clerk.send('1', ORDER, end_user='bob')", VALUE, "an end user is an EndUser, not a str"),
    ("clerk.send('1', ORDER, timeout_s='1')", VALUE, "a timeout is a number of seconds"),
    ("clerk.send_many({'1': ORDER})", VALUE, "requests are a list, not a dict"),
    (
        "clerk.send_many([ORDER])",
        VALUE,
        "a request is (rid, value) or (rid, value, end_user), not a Order",
    ),
    ("clerk.receive('ckpt')", VALUE, "a checkpoint is bytes, not str"),
    ("clerk.receive(rid=5)", NAME, "a rid is a str, not int"),
    ("clerk.receive(timeout_s=float('nan'))", VALUE, "a number of seconds, not nan"),
    ("clerk.receive(on_timeout=5)", VALUE, "on_timeout is a function, not 5"),
    ("clerk.stream([], on_timeout='x')", VALUE, "on_timeout is a function, not 'x'"),
    ("clerk.stream('abc')", VALUE, "requests are a list, not a str"),
    ("clerk.receive_many('5')", VALUE, "limit is an int from 1"),
    ("clerk.acknowledge('1')", VALUE, "rids are a list, not a str"),
    ("clerk.rereceive(5)", NAME, "a rid is a str, not int"),
    ("clerk.process(None, POLICY.repeat())", VALUE, "the handler of replies is a function, not"),
    ("clerk.process(5, POLICY.repeat())", VALUE, "the handler of replies is a function, not 5"),
    ("clerk.process(print, 'repeat')", VALUE, "a policy is a ReplyPolicy, not str"),
    ("clerk.recover('1', acknowledged='yes')", VALUE, "acknowledged is True or False, not 'yes'"),
    ("clerk.recover(by='x')", VALUE, "by is one of"),
    ("clerk.alert_late(ORDERS, late_s=1)", NAME, "give its name"),
    ("clerk.alert_late('late', late_s=None)", VALUE, "late_s is a number of seconds"),
    ("clerk.alert_late('late', late_s=-1)", VALUE, "late_s is a number of seconds from 0"),
    ("clerk.cancel_last_request(timeout_s='x')", VALUE, "a timeout is a number of seconds"),
    # repositories
    ("onceq.open(5)", VALUE, "a URL is text"),
    ("onceq.open(URL, repository=5)", NAME, "a repository name is a str, not int"),
    ("onceq.open('embedded:')", VALUE, "needs a path, as in embedded:./data"),
)
ONLY_SYNC: Final = (
    (
        "clerk.process(book_later, POLICY.repeat())",
        VALUE,
        "make it a plain def, or use an AsyncClerk",
    ),
    ("clerk.process(print, POLICY.undo(book_later))", VALUE, "`act` of policy 'undo' is async"),
    ("clerk.process(print, POLICY.ask(book_later))", VALUE, "`act` of policy 'ask' is async"),
    ("clerk.receive(on_timeout=book_later)", VALUE, "on_timeout is async"),
)
KNOWN: Final[dict[str, Any]] = {
    "EID": uuid.uuid4(),
    "LEDGER": onceq.QueueLedger(),
    "ORDER": ORDER,
    "ORDERS": ORDERS,
    "NESTED": nested(),
    "Order": Order,
    "POLICY": onceq.ReplyPolicy,
    "Plain": Plain,
    "Receipt": Receipt,
    "book": book,
    "book_later": book_later,
    "dt": dt,
    "onceq": onceq,
}


def tried(text: str, scene: dict[str, Any]) -> Any:
    return eval(text, {}, {**KNOWN, **scene})  # the tables above


def refusal(text: str, scene: dict[str, Any]) -> Exception | None:
    try:
        tried(text, scene)
    except (errors.OnceqError, TypeError) as error:
        return error
    return None


async def refusal_awaited(text: str, scene: dict[str, Any]) -> Exception | None:
    try:
        answer = tried(text, scene)
        if inspect.isawaitable(answer):
            await answer
    except (errors.OnceqError, TypeError) as error:
        return error
    return None


def is_told(use: tuple[str, str, str], error: Exception | None) -> bool:
    return type(error).__name__ == use[1] and use[2] in str(error)


def test_there_are_at_least_sixty_wrong_uses() -> None:
    assert len({text for text, _, _ in USES}) >= 60


def test_a_wrong_use_is_told_what_is_wrong_and_what_to_do(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    qm.declare(ORDERS)
    with (
        qm.clerk("clerk", ORDERS) as clerk,
        qm.clerk("till", ORDERS) as closed,
        psycopg.connect(conninfo) as conn,
    ):
        closed.close()
        scene: dict[str, Any] = {"enqueue": onceq.enqueue, "URL": conninfo}
        scene |= {"qm": qm, "clerk": clerk, "closed": closed, "conn": conn}
        found = [(use, refusal(use[0], scene)) for use in (*USES, *ONLY_SYNC)]
        assert clerk.state is onceq.ClientState.CONNECTED
    assert [(use, error) for use, error in found if not is_told(use, error)] == []


def test_a_wrong_use_is_told_the_same_where_it_is_awaited(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    qm.declare(ORDERS)

    async def find() -> list[tuple[tuple[str, str, str], Exception | None]]:
        async with (
            onceq.open_async(conninfo, repository=qm.repository) as manager,
            manager.clerk("clerk", ORDERS) as clerk,
            manager.clerk("till", ORDERS) as closed,
            await psycopg.AsyncConnection.connect(conninfo) as conn,
        ):
            await closed.close()
            scene: dict[str, Any] = {"enqueue": onceq.enqueue_async, "URL": conninfo}
            scene |= {"qm": manager, "clerk": clerk, "closed": closed, "conn": conn}
            return [(use, await refusal_awaited(use[0], scene)) for use in USES]

    found = asyncio.run(find())
    assert [(use, error) for use, error in found if not is_told(use, error)] == []


def test_what_open_async_returns_can_be_awaited(qm: onceq.QueueManager, conninfo: str) -> None:
    async def use() -> None:
        manager = await onceq.open_async(conninfo, repository=qm.repository)
        assert await manager.declare(ORDERS)
        await manager.close()
        with pytest.raises(errors.CannotConnect):
            await manager.show("orders")

    asyncio.run(use())
