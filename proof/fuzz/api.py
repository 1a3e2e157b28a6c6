"""Rubbish over the public API: queues, the queue manager and clerks, on whatever answers their Ops.

The same inputs go to the memory driver and to PostgreSQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.clerk.clerk import Clerk
from onceq.engine.locate import Located
from onceq.manager.queue_manager import QueueOperations
from onceq.model import ops
from onceq.model.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.fuzz.rubbish import Rubbish

ORDERS: Queue[bytes, bytes] = Queue("orders", bytes, bytes)
TYPED: Queue[Any, Any] = Queue("typed", dict[str, Any], dict[str, Any])
SETTINGS = {
    "abort_limit": 3,
    "backoff_ms": 10,
    "backoff_max_ms": 100,
    "execution_limit_s": 60,
    "body_bytes_max": 1000,
    "tag_bytes_max": 100,
    "durable": True,
    "keep_body": True,
    "error_queue": "all.error",
}


class OpenQueueManager(QueueOperations):
    """A queue manager on a link that is made already."""

    def __init__(self, link: Any) -> None:
        super().__init__(Located("", None), "onceq")
        self._link = link


class Place:
    """A repository: a queue manager, a clerk, a registration. link: what performs their Ops."""

    def __init__(self, link: Any, name: str) -> None:
        self.link = link
        self.qm = OpenQueueManager(link)
        self.name = name
        for queue in (ORDERS, TYPED):
            self.qm.declare(queue)
        self.clerk = self.clerk_of(name, 3)
        self.handle = self.qm.register(ORDERS.name, f"{name}-tags")[0]
        self.eid = self.qm.enqueue(ORDERS, b"one")

    def clerk_of(self, name: Any, window: Any) -> Clerk[bytes, bytes]:
        """Returns a connected clerk."""
        return Clerk(_Kept(self.link), name, ORDERS, window=window).connect()  # type: ignore[arg-type] # like a Link


class _Kept:
    """A link that stays open."""

    def __init__(self, link: Any) -> None:
        self.run = link.run
        self.perform = link.perform

    def reconnect(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def make_queue(place: Place, r: Rubbish) -> Any:
    """A queue as a value; and declared when it is one."""
    settings = r.keywords(SETTINGS | {"unknown": 1} if r.likely(0.05) else SETTINGS)
    queue: Queue[Any, Any] = Queue(r.either("scratch"), bytes, bytes, **settings)
    place.qm.create(queue)
    return place.qm.destroy(queue.name)


def handle_queue(place: Place, r: Rubbish) -> Any:
    """Options of a handler."""
    del place
    options = r.keywords({"batch": 3, "isolation": "serializable", "effects": True})
    return ORDERS.handled_by(print, **options)


def alter(place: Place, r: Rubbish) -> None:
    """Settings of a queue that is there."""
    changes = r.keywords(
        {key: SETTINGS[key] for key in SETTINGS if key not in {"durable", "error_queue"}}
    )
    name = r.either("typed")
    started: Any = r.keywords({"enqueue_started": True, "dequeue_started": True}, 0.9)
    place.qm.alter(ops.AlterQueue(queue=name, **changes, **started))
    place.qm.alter(
        ops.AlterQueue(queue="typed", abort_limit=5, body_bytes_max=65_536, tag_bytes_max=65_536)
    )


def name_queue(place: Place, r: Rubbish) -> Any:
    """A queue's name."""
    calls: list[Callable[[Any], Any]] = [place.qm.show, place.qm.start, place.qm.destroy]
    return r.chance.choice(calls)(r.value())


def enqueue(place: Place, r: Rubbish) -> Any:
    """A body and attributes."""
    if r.likely(0.5):
        return place.qm.enqueue(ORDERS, r.either(b"x", 0.7), **attributes(r))
    return place.qm.enqueue(TYPED, r.either({"a": 1}, 0.3), **attributes(r))


def attributes(r: Rubbish) -> Any:
    """How it is enqueued."""
    return r.keywords(
        {
            "priority": 9,
            "not_before": r.time(),
            "expires_at": r.time(),
            "properties": {"a": r.value()},
            "rid": "name",
            "correlation_id": "other",
        },
        0.6,
    )


def enqueue_many(place: Place, r: Rubbish) -> Any:
    """Many bodies."""
    many: Any = r.either([r.either(b"x", 0.8) for _ in range(3)], 0.8)
    return place.qm.enqueue_many(ORDERS, many)


def dequeue(place: Place, r: Rubbish) -> Any:
    """What to dequeue, and how long to wait."""
    timeout = r.chance.choice((0, 0.0, -1, -1e9, 0.0))
    return place.qm.dequeue(r.either("orders"), eid=r.either(None), timeout_s=timeout)


def name_element(place: Place, r: Rubbish) -> Any:
    """An eid."""
    calls: list[Callable[[Any], Any]] = [
        place.qm.read,
        place.qm.kill,
        place.qm.redrive,
        place.qm.resolve,
    ]
    return r.chance.choice(calls)(r.either(r.eid(), 0.2))


def look_up(place: Place, r: Rubbish) -> Any:
    """What to look for."""
    likely = {"rid": "1", "eid": r.eid(), "registrant": "x", "state": "queued", "queue": "orders"}
    return place.qm.lookup(**r.keywords(likely | {"limit": 3}))


def register(place: Place, r: Rubbish) -> Any:
    """Who registers."""
    options = r.keywords({"thread": "t", "stable": True}, 0.6)
    return place.qm.register(r.either("orders", 0.8), r.either("someone", 0.3), **options)


def tagged(place: Place, r: Rubbish) -> Any:
    """Tags and bodies of a registration."""
    queue = r.either("orders", 0.8)
    calls: list[Callable[[], Any]] = [
        lambda: place.qm.enqueue_tagged(queue, place.handle, r.either(b"x"), r.either(b"tag")),
        lambda: place.qm.dequeue_tagged(queue, place.handle, r.either(b"tag")),
        lambda: place.qm.read_last(queue, place.handle),
    ]
    return r.chance.choice(calls)()


def connect(place: Place, r: Rubbish) -> Any:
    """A client's name, its thread and its window."""
    name, options = r.either("someone", 0.2), r.keywords({"thread": "t", "window": 2}, 0.7)
    link: Any = _Kept(place.link)
    return Clerk(link, name, ORDERS, **options).connect()


def send(place: Place, r: Rubbish) -> Any:
    """A rid, a body, attributes."""
    clerk = place.clerk
    if r.likely(0.2):
        pairs: Any = r.either([(r.either("1"), r.either(b"x")), (r.text(), b"y")], 0.8)
        return clerk.send_many(pairs)
    chosen = {k: v for k, v in attributes(r).items() if k not in {"rid", "correlation_id"}}
    return clerk.send(r.either(r.text(), 0.7), r.either(b"x", 0.8), **chosen)


def receive(place: Place, r: Rubbish) -> Any:
    """Checkpoints, rids, limits."""
    clerk = place.clerk
    calls: list[Callable[[], Any]] = [
        lambda: clerk.receive(r.either(None), timeout_s=0.0, rid=r.either(None)),
        lambda: clerk.receive_many(r.either(3), checkpoint=r.either(b"c"), timeout_s=0.0),
        lambda: clerk.acknowledge(r.either(["1"]), checkpoint=r.either(b"c")),
        lambda: clerk.recover(r.either("1"), acknowledged=r.likely(0.5)),
        clerk.cancel_last_request,
        clerk.rereceive,
        clerk.disconnect,
        clerk.connect,
    ]
    return r.chance.choice(calls)()


CALLS: tuple[Callable[[Place, Rubbish], Any], ...] = (
    make_queue,
    handle_queue,
    alter,
    name_queue,
    enqueue,
    enqueue,
    enqueue_many,
    dequeue,
    name_element,
    look_up,
    register,
    tagged,
    connect,
    send,
    send,
    receive,
)
