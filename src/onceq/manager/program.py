"""The queue manager's Programs, such as declare, dequeue with a wait, take over; and checked Ops.

Used by QueueManager and AsyncQueueManager; servers, and `submit`, run some of the Programs.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import asdict, replace

from onceq import errors
from onceq.manager.metrics import Metrics, look
from onceq.manager.ticking import tend_at_times
from onceq.model import admin_ops, names, ops
from onceq.model.arguments import check_kind
from onceq.model.element import Element, OldRequest, Places, RequestOutcome, Search
from onceq.model.explaining import Asked
from onceq.model.queue import (
    ON_FAILURE,
    RANGES,
    Queue,
    QueueInfo,
    QueueKind,
    QueueSettings,
    check_limits,
    content_type_of,
)
from onceq.model.reserved import attributes_of
from onceq.model.retention import Retention
from onceq.model.send_attributes import EnqueueAttributes
from onceq.model.terms import Terms, check_terms

T = TypeVar("T")


def declare(queue: Queue[Any, Any]) -> ops.Program[bool]:
    """Creates the queue if it does not exist; SettingsDiffer if it exists with other settings."""
    if (yield from create_op(queue, "declare")):
        return True
    info = yield from show(queue.name)
    different = [
        f"{field.name} is {getattr(info.settings, field.name)!r}, "
        f"declared {getattr(queue.settings, field.name)!r}"
        for field in fields(queue.settings)
        if _differs(field.name, info.settings, queue.settings)
    ]
    if different or info.kind is not QueueKind.REQUEST:
        what = "; ".join(different) or f"it is a {info.kind} queue"
        raise errors.SettingsDiffer(
            f"queue {queue.name!r} exists with other settings: {what}; "
            "declare it as it is, or change it with `onceq queue alter`"
        )
    return False


def create_op(queue: Queue[Any, Any], where: str = "create") -> ops.CreateQueue:
    """Returns the checked Op that creates a queue. InvalidValue."""
    check_kind(Queue, where, queue)
    return ops.CreateQueue(queue=queue.name, settings=queue.settings)


def _differs(name: str, there: QueueSettings, declared: QueueSettings) -> bool:
    wanted = getattr(declared, name)
    if name == "error_queue" and wanted is None:
        return False
    return bool(getattr(there, name) != wanted)


def load() -> ops.Program[admin_ops.Load]:
    """Returns what queues have to do, and what servers do."""
    queues = yield from admin_ops.MeasureQueues()
    servers = yield from admin_ops.ListSessions()
    return admin_ops.Load(queues=queues, servers=servers)


def take_over(process: UUID) -> ops.Program[bool]:
    """Takes over from the processes that are missing, and records what this machine knows of them.

    Returns whether there was any.
    """
    missing = yield from ops.TakeOver(process=process)
    if missing:
        yield from judge_missing()
    return missing > 0


def judge_missing() -> ops.Program[None]:
    """Records what this machine knows of the processes that are missing."""
    for missing in (yield from ops.FindMissing()):
        alive = yield from ops.IsAlive(identity=missing.identity)
        if alive is not None:
            verdict = ops.Verdict.LIVES if alive else ops.Verdict.ENDED
            yield from ops.Judge(process=missing.process, verdict=verdict)


def show(queue: str) -> ops.Program[QueueInfo]:
    """Returns a queue as it is now. QueueNotFound."""
    found = yield from ops.ListQueues(queue=names.check_queue(queue))
    if not found:
        raise errors.QueueNotFound(f"queue {queue!r} does not exist: create or declare it first")
    return found[0]


def on_terms(op: ops.Dequeue, terms: Terms, connection: object) -> ops.Dequeue:
    """Returns the checked Op of a dequeue on these terms. InvalidName, InvalidValue."""
    names.check_keywords("dequeue", terms, Terms)
    check_terms(op.queue, terms.get("abort_limit"), terms.get("error_queue"))
    op = replace(op, **terms)
    if op.has_terms and connection is None:
        raise errors.InvalidValue(
            "abort_limit and error_queue are for a dequeue with connection=: outside of a "
            "transaction the element is gone at once, and no dequeue is ever aborted"
        )
    return op


SHORT_WAITS = 3
"""After this many waits a dequeue waits longer: it asks when the next element is due."""


def dequeue(
    op: ops.Dequeue, timeout_s: float | None, *, rings: bool = True
) -> ops.Program[Element | None]:
    """Dequeues, waiting up to timeout_s for an element; None when none came.

    rings: whoever waits may be rung. Not if it waits for one certain element: it would swallow a
    ring for another.
    """
    rings = rings and op.eid is None
    key = "dequeue" if rings else "claim"
    waits = 0
    try:
        while (element := (yield from replace(op, sleep=rings and waits > 0))) is None:
            due_s = None
            if rings and waits >= SHORT_WAITS:
                due_s = yield from ops.NextDue(queue=op.queue)
                yield from tend_at_times()
            wait = ops.Wait(key=key, first=waits == 0, timeout_s=timeout_s, within_s=due_s)
            if not (yield from wait):
                break
            waits += 1
    except errors.UsageError:
        if rings:
            yield from ops.StopWaiting()
        raise
    if element is None and rings and waits > 0:
        yield from ops.StopWaiting()
    return element


def claim(
    incarnation: int, queue: str, *, eid: UUID | None, turn: int
) -> ops.Program[Element | None]:
    """Claims the next element of a queue, or the one with this eid; None if there is none now."""
    info = yield from show(queue)
    if eid is not None:
        return (yield from ops.ClaimEid(incarnation=incarnation, queue_id=info.queue_id, eid=eid))
    claimed = yield from ops.Claim(
        incarnation=incarnation, queue_id=info.queue_id, n=1, turn=turn, alone=True
    )
    return claimed[0] if claimed else None


def enqueue_op(
    queue: Queue[T, Any], request: T, attributes: EnqueueAttributes, *, own_transaction: bool
) -> ops.Enqueue:
    """Returns the checked Op of an enqueue. InvalidName, InvalidValue."""
    check_kind(Queue, "enqueue", queue)
    names.check_keywords("enqueue", attributes, EnqueueAttributes)
    sent = attributes_of(attributes)
    names.check_attributes(sent)
    content_type = content_type_of(queue.request_type, sent.pop("content_type", None))
    return ops.Enqueue(
        queue=queue.name,
        body=queue.encode_request(request),
        content_type=content_type,
        own_transaction=own_transaction,
        **sent,
    )


def enqueue_many_op(queue: Queue[T, Any], requests: list[T]) -> ops.EnqueueMany:
    """Returns the checked Op that enqueues many. InvalidValue."""
    check_kind(Queue, "enqueue_many", queue)
    return ops.EnqueueMany(
        queue=queue.name,
        bodies=[queue.encode_request(one) for one in names.check_each("requests", requests)],
        content_type=content_type_of(queue.request_type),
    )


def start_op(queue: str, *, enqueue: bool, dequeue: bool, to: bool) -> ops.AlterQueue:
    """Returns the checked Op that starts or stops a queue. InvalidName, InvalidValue."""
    return ops.AlterQueue(
        queue=names.check_queue(queue),
        enqueue_started=to if names.check_flag("enqueue", enqueue) else None,
        dequeue_started=to if names.check_flag("dequeue", dequeue) else None,
    )


def checked_change(change: ops.AlterQueue) -> ops.AlterQueue:
    """Returns a change of a queue's settings. InvalidName, InvalidValue."""
    names.check_queue(check_kind(ops.AlterQueue, "alter", change).queue)
    for name, (_, most) in RANGES.items():  # the database knows the least: it depends on others
        if getattr(change, name) is not None:
            names.check_range(name, getattr(change, name), 0, most)
    for name in ("keep_body", "enqueue_started", "dequeue_started"):
        if getattr(change, name) is not None:
            names.check_flag(name, getattr(change, name))
    if change.limits is not None:
        check_limits(change.limits)
    if change.on_failure is not None:
        names.check_choice("on_failure", change.on_failure, ON_FAILURE)
    _of_kind(Retention, "retention", change.retention)
    return change


def kill_op(eid: UUID, timeout_s: float) -> ops.Kill:
    """Returns the checked Op of a kill. InvalidValue."""
    wait_s = names.check_timeout(timeout_s)
    return ops.Kill(
        eid=names.check_eid(eid), timeout_s=names.TIMEOUT_S_MAX if wait_s is None else wait_s
    )


def rates_op(over_s: float) -> admin_ops.MeasureRates:
    """Returns the checked Op that measures rates. InvalidValue."""
    window_s = names.check_timeout(over_s)
    if not window_s:
        raise errors.InvalidValue(f"over_s is a number of seconds above 0, not {over_s!r}")
    return admin_ops.MeasureRates(over_s=window_s)


def metrics(after: Metrics | None) -> ops.Program[Metrics]:
    """Returns the Program of a look for metrics, its argument checked. InvalidValue."""
    return look(_of_kind(Metrics, "after", after))


def forget_op(
    name: str, thread: str | None, *, forced: bool, timeout_s: float
) -> admin_ops.ForgetClient:
    """Returns the checked Op that forgets a client. InvalidName, InvalidValue."""
    wait_s = names.check_timeout(timeout_s)
    return admin_ops.ForgetClient(
        name=names.check_id("registrant", name),
        thread=names.check_id("thread", thread) if thread else thread,
        forced=names.check_flag("forced", forced),
        timeout_s=names.TIMEOUT_S_MAX if wait_s is None else wait_s,
    )


def close_op(name: str, *, forced: bool, timeout_s: float) -> admin_ops.CloseClient:
    """Returns the checked Op that closes a client's name. InvalidName, InvalidValue."""
    op = forget_op(name, None, forced=forced, timeout_s=timeout_s)
    return admin_ops.CloseClient(name=op.name, forced=op.forced, timeout_s=op.timeout_s)


def lookup_op(rid: str | None, search: Places) -> ops.LookUp:
    """Returns the checked Op of a lookup. InvalidName, InvalidValue."""
    names.check_keywords("lookup", search, Places)
    op = ops.LookUp(rid=rid, **search)
    names.check_search(asdict(op))
    return op


def asked(registrant: str | None, rid: str | None, eid: UUID | None, *, archive: bool) -> Asked:
    """Returns which request is to be explained, checked. InvalidName, InvalidValue."""
    if eid is None and None not in {registrant, rid}:
        names.check_id("registrant", registrant)
        names.check_id("rid", rid)
    elif eid is not None and {registrant, rid} == {None}:
        names.check_eid(eid)
    else:
        raise errors.InvalidValue("explain takes a client's name and a rid, or an eid alone")
    return Asked(
        registrant=registrant, rid=rid, eid=eid, archive=names.check_flag("archive", archive)
    )


def _of_kind(kind: type[T], name: str, value: object) -> T | None:
    if value is None or isinstance(value, kind):
        return value
    raise errors.InvalidValue(f"{name} is of class {kind.__name__}, not {names.shown(value)}")


def find_op(search: Search) -> ops.FindRequests:
    """Returns the checked Op of a search in ended requests. InvalidName, InvalidValue."""
    names.check_keywords("find", search, Search)
    names.check_search({"state": None, "eid": None, "limit": 100, **_WHERE, **search})
    for name in ("since", "until"):
        names.check_moment(name, search.get(name))
    outcome = _of_kind(RequestOutcome, "outcome", search.get("outcome"))
    after = _of_kind(OldRequest, "after", search.get("after"))
    return ops.FindRequests(
        rid=search.get("rid"),
        registrant=search.get("registrant"),
        queue=search.get("queue"),
        outcome=None if outcome is None else outcome.value,
        since=search.get("since"),
        until=search.get("until"),
        after_at=None if after is None else after.finished_at,
        after_eid=None if after is None else after.eid,
        limit=search.get("limit", 100),
    )


_WHERE = dict.fromkeys(("rid", "registrant", "queue"))


def resolve_op(eid_or_rid: UUID | str) -> ops.LookUp:
    """Returns the checked Op that looks for an eid or a rid. InvalidName."""
    if isinstance(eid_or_rid, UUID):
        return ops.LookUp(eid=eid_or_rid)
    return ops.LookUp(rid=names.check_id("rid", eid_or_rid))
