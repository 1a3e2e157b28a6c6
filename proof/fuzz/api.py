"""Rubbish for the public API: queues, the queue manager and clerks, whatever answers their Ops.

The same inputs go to the memory driver and to PostgreSQL.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from onceq.clerk.clerk import Clerk
from onceq.engine.embedded.locate import Located
from onceq.manager.queue_manager import QueueOperations
from onceq.model import ops
from onceq.model.queue import Queue
from proof.fuzz import legal

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
    "on_failure": "hold",
    "history_days": 7,
}


class OpenQueueManager(QueueOperations):
    """A queue manager on an existing link."""

    def __init__(self, link: Any) -> None:
        super().__init__(Located("", None), "onceq")
        self._link = link


class Place:
    """A repository: a queue manager, a clerk, a registration. link: what performs their Ops."""

    def __init__(self, link: Any, name: str) -> None:
        self.link = link
        self.qm = OpenQueueManager(_Kept(link))
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
        self._link = link
        self.repository: str = getattr(link, "repository", "memory")  # there it has no name

    def run(self, program: Any, wait_s: float | None = None) -> Any:
        """Runs a Program; wait_s: as `Links` has it."""
        del wait_s
        return self._link.run(program)

    def perform(self, op: Any, wait_s: float | None = None) -> Any:
        """Performs an Op; wait_s: as `Links` has it."""
        del wait_s
        return self._link.perform(op)

    def bounded(self, patience: object) -> contextlib.AbstractContextManager[None]:
        """A block like any other."""
        del patience
        return contextlib.nullcontext()

    def reconnect(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


OPTIONS: dict[str, Any] = {
    "batch": 3,
    "isolation": "serializable",
    "effects": True,
    "abort_limit": 3,
    "error_queue": "review",
}
"""Of a handler."""


def make_queue(place: Place, r: Rubbish) -> Any:
    """A queue as a value; and declared, if it is one."""
    settings = r.keywords(SETTINGS | {"unknown": 1} if r.likely(0.05) else SETTINGS)
    name = r.either("scratch")
    r.legal = legal.both(legal.queue_name_of_ours(name), legal.settings(settings))
    queue: Queue[Any, Any] = Queue(name, bytes, bytes, **settings)
    place.qm.create(queue)
    return place.qm.destroy(queue.name)


def handle_queue(place: Place, r: Rubbish) -> Any:
    """Options of a handler."""
    del place
    options = r.keywords(OPTIONS)
    r.legal = legal.options(options)
    handler: Any = print  # it takes anything
    return ORDERS.handled_by(handler, **options)


def alter(place: Place, r: Rubbish) -> None:
    """Settings of a queue that is there."""
    beside = {"durable", "error_queue", "history_days"}  # the last one is a part of `retention`
    changes = r.keywords({key: SETTINGS[key] for key in SETTINGS if key not in beside})
    name = r.either("typed")
    started: Any = r.keywords({"enqueue_started": True, "dequeue_started": True}, 0.9)
    given = {key: value for key, value in changes.items() if value is not None}
    flags = all(legal.optional(one, legal.flag) for one in started.values())
    one_by_one = [legal.settings(legal.DEFAULT_BACKOFF_MS_MAX | {k: given[k]}) for k in given]
    if not (legal.queue_name(name) and flags and all(one_by_one)):
        r.legal = False
    place.qm.alter(ops.AlterQueue(queue=name, **changes, **started))
    place.qm.alter(
        ops.AlterQueue(
            queue="typed",
            abort_limit=5,
            body_bytes_max=legal.TYPED_BYTES,
            tag_bytes_max=65_536,
            on_failure="fail",
        )
    )


def name_queue(place: Place, r: Rubbish) -> Any:
    """A queue's name."""
    calls: list[Callable[[Any], Any]] = [place.qm.show, place.qm.start, place.qm.destroy]
    call, name = r.chance.choice(calls), r.value()
    r.legal = legal.queue_name(name)
    return call(name)


def enqueue(place: Place, r: Rubbish) -> Any:
    """A body and attributes."""
    given = attributes(r)
    if r.likely(0.5):
        body = r.sized(b"x", legal.BODY_BYTES, 0.7)
        r.legal = _sent(body=legal.octets(body, legal.BODY_BYTES), given=given)
        return place.qm.enqueue(ORDERS, body, **given)
    value = r.either({"a": 1}, 0.3)
    r.legal = _sent(body=legal.typed(value), given=given)
    return place.qm.enqueue(TYPED, value, **given)


def _sent(*, body: bool | None, given: dict[str, Any]) -> bool | None:
    """Whether body and attributes are legal; texts of properties are PostgreSQL's to judge."""
    unjudged = None if {"properties", "not_before", "expires_at"} & given.keys() else True
    return legal.both(body, legal.attributes(given), unjudged)


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
    r.legal = legal.several(many) and all(legal.octets(one, legal.BODY_BYTES) for one in many)
    return place.qm.enqueue_many(ORDERS, many)


def dequeue(place: Place, r: Rubbish) -> Any:
    """What to dequeue, and how long to wait."""
    timeout = r.chance.choice((0, 0.0, -1, -1e9, 0.0))
    queue, eid = r.either("orders"), r.either(None)
    r.legal = legal.both(legal.queue_name(queue), legal.optional(eid, legal.eid))
    return place.qm.dequeue(queue, eid=eid, timeout_s=timeout)


def name_element(place: Place, r: Rubbish) -> Any:
    """An eid."""
    calls: list[Callable[[Any], Any]] = [
        place.qm.read,
        place.qm.kill,
        place.qm.redrive,
        place.qm.resolve,
    ]
    call, eid = r.chance.choice(calls), r.either(r.eid(), 0.2)
    r.legal = legal.eid(eid) or (None if call == place.qm.resolve else False)
    return call(eid)


def look_up(place: Place, r: Rubbish) -> Any:
    """What to look for."""
    likely = {"rid": "1", "eid": r.eid(), "registrant": "x", "state": "queued", "queue": "orders"}
    search = r.keywords(likely | {"limit": 3})
    r.legal = legal.search({**dict.fromkeys(likely), "limit": 1, **search})
    return place.qm.lookup(**search)


def register(place: Place, r: Rubbish) -> Any:
    """Who registers."""
    options = r.keywords({"thread": "t", "stable": True}, 0.6)
    queue, name = r.either("orders", 0.8), r.either("someone", 0.3)
    thread = options.get("thread", "")
    r.legal = legal.both(
        legal.queue_name(queue),
        legal.identifier(name),
        thread == "" or legal.identifier(thread),
        legal.flag(options.get("stable", True)),
    )
    return place.qm.register(queue, name, **options)


def tagged(place: Place, r: Rubbish) -> Any:
    """Tags and bodies of a registration."""
    queue, body = r.either("orders", 0.8), r.either(b"x")
    tag = r.sized(b"tag", legal.TAG_BYTES)
    named = legal.queue_name(queue)
    of_tag = legal.optional(tag, lambda v: legal.octets(v, legal.TAG_BYTES))
    of_body = legal.octets(body, legal.BODY_BYTES)
    eid = r.either(r.eid(), 0.8)
    of_eid = legal.both(named, of_tag, legal.eid(eid))
    calls: list[tuple[bool | None, Callable[[], Any]]] = [
        (
            legal.both(named, of_body, of_tag),
            lambda: place.qm.enqueue_tagged(queue, place.handle, body, tag),
        ),
        (
            legal.both(named, of_tag),
            lambda: place.qm.dequeue_tagged(queue, place.handle, tag),
        ),
        (
            of_eid,
            lambda: place.qm.read_tagged(queue, place.handle, eid, tag),
        ),
        (
            of_eid,
            lambda: place.qm.kill_tagged(queue, place.handle, eid, tag),
        ),
        (named, lambda: place.qm.read_last(queue, place.handle)),
    ]
    r.legal, call = r.chance.choice(calls)
    return call()


def connect(place: Place, r: Rubbish) -> Any:
    """A client's name, its thread and its window."""
    name, options = r.either("someone", 0.2), r.keywords({"thread": "t", "window": 2}, 0.7)
    thread = options.get("thread", "")
    r.legal = legal.both(
        legal.identifier(name),
        thread == "" or legal.identifier(thread),
        legal.whole(options.get("window", 1), 1, 1) or None,
    )
    link: Any = _Kept(place.link)
    return Clerk(link, name, ORDERS, **options).connect()


def send(place: Place, r: Rubbish) -> Any:
    """A rid, a body, attributes."""
    clerk = place.clerk
    if r.likely(0.2):
        first: Any = (r.either("1"), r.either(b"x"), r.either(None, 0.8))
        requests: Any = r.either([first, (r.text(), b"y")], 0.8)
        r.legal = legal.several(requests) and all(map(_is_sendable, requests))
        return clerk.send_many(requests)
    chosen = {k: v for k, v in attributes(r).items() if k not in {"rid", "correlation_id"}}
    rid, body = r.either(r.text(), 0.7), r.sized(b"x", legal.BODY_BYTES, 0.8)
    r.legal = _sent(body=_is_sendable((rid, body)), given=chosen)
    return clerk.send(rid, body, **chosen)


def _is_sendable(request: Any) -> bool:
    return (
        legal.outgoing(request)
        and legal.identifier(request[0])
        and legal.octets(request[1], legal.BODY_BYTES)
        and (len(request) == 2 or request[2] is None)
    )


def receive(place: Place, r: Rubbish) -> Any:
    """Checkpoints, rids, limits."""
    clerk = place.clerk
    checkpoint, rid = r.sized(b"c", legal.TAG_BYTES), r.either(None)
    limit = r.either(3)
    of_checkpoint = legal.optional(checkpoint, lambda v: legal.octets(v, legal.TAG_BYTES))
    calls: list[tuple[bool | None, Callable[[], Any]]] = [
        (
            legal.both(of_checkpoint, legal.optional(rid, legal.identifier)),
            lambda: clerk.receive(checkpoint, timeout_s=0.0, rid=rid),
        ),
        (
            legal.both(of_checkpoint, legal.whole(limit, 1, 1000) or None),
            lambda: clerk.receive_many(limit, checkpoint=checkpoint, timeout_s=0.0),
        ),
        (None, lambda: clerk.acknowledge(r.either(["1"]), checkpoint=checkpoint)),
        (None, lambda: clerk.recover(r.either("1"), acknowledged=r.likely(0.5))),
        (None, clerk.cancel_last_request),
        (None, clerk.rereceive),
        (None, clerk.disconnect),
        (None, clerk.connect),
    ]
    r.legal, call = r.chance.choice(calls)
    return call()


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
