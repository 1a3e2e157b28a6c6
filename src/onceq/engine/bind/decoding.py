"""How rows are read: which columns they have, and what each holds.

Private to the binding.
"""

from __future__ import annotations

import functools
from dataclasses import fields, is_dataclass
from enum import Enum, StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, cast, get_args, get_origin

import msgspec

from onceq.engine.bind.cursors import Unreadable
from onceq.model import admin_ops, ops, trace
from onceq.model.element import (
    ROLES,
    Attempt,
    Charge,
    Element,
    ElementState,
    Members,
    OldRequest,
    RequestOutcome,
    RequestState,
    Role,
    Whereabouts,
    attempts_of,
)
from onceq.model.metric_ops import Measured
from onceq.model.periodic_ops import Ticked, TickState
from onceq.model.queue import Limits, QueueInfo, QueueKind, QueueSettings
from onceq.model.scan import Scanned, ScanOpened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Row = tuple[Any, ...]
E = TypeVar("E", bound=StrEnum)

ELEMENT_COLUMNS = (
    "seq, eid, rid, body, role::text, queue_id, lane, priority, aborts, enqueued_at,"
    " reply_queue_id is not null, outcome::text, registrant_id, send_no, correlation_id,"
    " content_type, properties, not_before, expires_at, code, error"
)
SCANNED_COLUMNS = f"{ELEMENT_COLUMNS}, {{schema}}.state_of(role, lane, claimed_by, not_before)"
QUEUE_COLUMNS = (
    "queue_id, name, kind, abort_limit, backoff_ms, backoff_max_ms, execution_limit_s,"
    " body_bytes_max, tag_bytes_max, durable, keep_body, error_queue, enqueue_started,"
    " dequeue_started, ready, claimed, waiting, suspect, held, created_at, oldest_at, retry_limit,"
    " in_order, depth_max, bytes_max, on_failure, history_days, paused_until"
)

OLD_REQUEST_COLUMNS = (
    "rid, registrant, thread, eid, queue, role, outcome, aborts, code, error, enqueued_at,"
    " started_at, finished_at, server, correlation_id, redriven_as, body, reply"
)
REQUEST_COLUMNS = ", ".join(one.name for one in fields(RequestState))
ATTEMPT_COLUMNS = "ended_at, charge, code, error, server, host, pid, traceback"

WHEREABOUTS_COLUMNS = (
    "rid, state, eid, queue, aborts, sent_at, not_before, server_host, server_pid, begun_at,"
    " finished_at, outcome, code, error"
)

TAKEN_OVER_COLUMNS = (
    "incarnation, process, host, pid, spark_server, returned, suspects, charged, aborted"
)

MEASURED_COLUMNS = ", ".join(one.name for one in fields(Measured))
SERVER_COLUMNS = "slot, incarnation, process, host, pid, backend_pid, started_at, alive, claims"


_STATES: Final = Members(ElementState)
_KINDS: Final = Members(QueueKind)


_NOTHING_KNOWN: Final = (None, None, None)


def _known(found: Any) -> tuple[Any, str | None, str | None]:
    """Returns the properties in a column, the trace context, and why they cannot be read."""
    if isinstance(found, Unreadable):
        return None, None, found.why
    return *trace.parted(found), None


def element(row: Row) -> Element:
    """Returns the element in a row of ELEMENT_COLUMNS."""
    properties, context, why = _NOTHING_KNOWN if row[16] is None else _known(row[16])
    return Element(
        seq=row[0],
        eid=row[1],
        rid=row[2],
        body=row[3],
        role=ROLES[row[4]],
        queue_id=row[5],
        lane=row[6],
        priority=row[7],
        aborts=row[8],
        enqueued_at=row[9],
        owes_reply=row[10],
        outcome=None if row[11] is None else RequestOutcome(row[11]),
        registrant_id=row[12],
        send_no=row[13],
        correlation_id=row[14],
        content_type=row[15],
        properties=properties,
        not_before=row[17],
        expires_at=row[18],
        code=row[19],
        error=row[20],
        unreadable=why,
        trace=context,
    )


def scanned(row: Row) -> Scanned:
    """Returns the element in a row of SCANNED_COLUMNS."""
    one = element(row)
    known = {name.name: getattr(one, name.name) for name in fields(Element)}
    return Scanned(**known, state=_STATES[row[-1]])


def scan_opened(row: Row) -> ScanOpened:
    """Returns what begins a scan."""
    return ScanOpened(queue_id=row[0], kind=_KINDS[row[1]], last=row[2])


def queue_info(row: Row) -> QueueInfo:
    """Returns the queue in a row of QUEUE_COLUMNS."""
    found = _by_name(QUEUE_COLUMNS, row)
    found["kind"] = _KINDS[found["kind"]]
    found["order"] = found.pop("in_order")
    found["limits"] = Limits(depth=found.pop("depth_max"), bytes=found.pop("bytes_max"))
    settings = {one.name: found.pop(one.name) for one in fields(QueueSettings)}
    return QueueInfo(settings=QueueSettings(**settings), **found)


def old_request(row: Row) -> OldRequest:
    """Returns the old request in a row of OLD_REQUEST_COLUMNS."""
    found = _by_name(OLD_REQUEST_COLUMNS, row)
    found["outcome"] = RequestOutcome(found["outcome"])
    found["role"] = ROLES[found["role"]]
    return OldRequest(**found)


def request_state(row: Row) -> RequestState:
    """Returns one place of a rid in a row of REQUEST_COLUMNS."""
    found = _by_name(REQUEST_COLUMNS, row)
    found["role"] = ROLES[found["role"]]
    found["state"] = _STATES[found["state"]]
    return RequestState(**found)


def attempt(row: Row) -> Attempt:
    """Returns the abort in a row of ATTEMPT_COLUMNS."""
    found = _by_name(ATTEMPT_COLUMNS, row)
    found["charge"] = Charge(found["charge"])
    return Attempt(**found)


def taken_over(row: Row) -> ops.TakenOver:
    """Returns the result of a takeover."""
    found = _by_name(TAKEN_OVER_COLUMNS, row)
    found["aborted"] = msgspec.convert(found["aborted"], list[ops.Aborted])
    return ops.TakenOver(**found)


def whereabouts(row: Row) -> Whereabouts:
    """Returns where a request is, from a row of WHEREABOUTS_COLUMNS."""
    found = _by_name(WHEREABOUTS_COLUMNS, row)
    found["state"] = _STATES[found["state"]]
    if found["outcome"] is not None:
        found["outcome"] = RequestOutcome(found["outcome"])
    return Whereabouts(attempts=attempts_of(found.pop("aborts"), found["outcome"]), **found)


def outstanding(row: Row) -> ops.OutstandingRequest:
    """Returns a request that is outstanding."""
    is_replied = row[2] == Role.REPLY
    return ops.OutstandingRequest(rid=row[0], send_no=row[1], replied=is_replied, eid=row[3])


def rates(rows: Sequence[Row]) -> admin_ops.Rates:
    """Returns recent rates. There is at least one row: without a queue, with the time."""
    done = {name: count for _, name, count in rows if name is not None}
    return admin_ops.Rates(at=rows[0][0], per_minute=done)


def measured(rows: Sequence[Row]) -> Measured:
    """Returns what a look at a repository found."""
    return msgspec.convert(_by_name(MEASURED_COLUMNS, rows[0]), Measured)


def sighting(row: Row) -> ops.Sighting:
    """Returns what one session has seen for all of its process."""
    return ops.Sighting(
        missing=row[0],
        numbers=row[1],
        ready=row[2],
        stopped=row[3],
        due_s=row[4],
        seen=ops.Observation(value=row[5], holders=row[6]),
        ticks=row[7],
    )


def ticked(row: Row) -> Ticked:
    """Returns what a tick has done."""
    return Ticked(state=TickState(row[0]), error=row[1], is_news=row[2])


def _by_name(columns: str, row: Row) -> dict[str, Any]:
    """Returns each column's value by name. Not for elements: it takes a quarter longer."""
    return dict(zip(_names(columns), row, strict=True))


@functools.cache
def _names(columns: str) -> tuple[str, ...]:
    return tuple(columns.replace(" ", "").split(","))


RECORDS: Final[dict[Any, tuple[str, Callable[[Row], Any]]]] = {
    Element: (ELEMENT_COLUMNS, element),
    Scanned: (SCANNED_COLUMNS, scanned),
    ScanOpened: ("queue_id, kind, last", scan_opened),
    QueueInfo: (QUEUE_COLUMNS, queue_info),
    OldRequest: (OLD_REQUEST_COLUMNS, old_request),
    Attempt: (ATTEMPT_COLUMNS, attempt),
    RequestState: (REQUEST_COLUMNS, request_state),
    Whereabouts: (WHEREABOUTS_COLUMNS, whereabouts),
    ops.TakenOver: (TAKEN_OVER_COLUMNS, taken_over),
    ops.OutstandingRequest: ("*", outstanding),
    ops.Sighting: ("missing, numbers, ready, stopped, due_s, value, holders, ticks", sighting),
    Ticked: ("state, error, is_news", ticked),
}
"""Answers whose rows are not simply their own fields: which columns, and how a row is read."""


def answer_of(kind: type[ops.Op[Any]]) -> Any:
    """Returns the type of an Op's answer."""
    return next(
        get_args(base)[0] for base in vars(kind)["__orig_bases__"] if get_origin(base) is ops.Op
    )


def columns_of(answer: Any) -> str:
    """Returns the columns of what an answer is, or is a list of."""
    kind = _kind(answer)[0]
    if kind in RECORDS:
        return RECORDS[kind][0]
    return ", ".join(one.name for one in fields(kind)) if is_dataclass(kind) else "*"


def decoder(answer: Any) -> Callable[[Sequence[Row]], Any]:
    """Returns how the rows of a function become an answer of this type."""
    kind, form = _kind(answer)
    make = RECORDS[kind][1] if kind in RECORDS else _maker(kind)
    if form is list:
        return lambda rows: [make(row) for row in rows]
    if form is None and (kind in RECORDS or is_dataclass(kind)):
        return lambda rows: make(rows[0]) if rows else None
    return lambda rows: make(rows[0])


def _kind(answer: Any) -> tuple[Any, Any]:
    """Returns what an answer consists of, and its form: list, None if it may be None, or object."""
    if get_origin(answer) is list:
        return get_args(answer)[0], list
    kind = without_none(answer)
    return kind, object if kind is answer else None


def without_none(of: Any) -> Any:
    """Returns X for `X | None`, and anything else as it is."""
    if get_origin(of) not in (Union, UnionType):
        return of
    (kind,) = (one for one in get_args(of) if one is not type(None))
    return kind


def _maker(kind: Any) -> Callable[[Row], Any]:
    if is_dataclass(kind):
        names, make = tuple(one.name for one in fields(kind)), cast("type[Any]", kind)
        return lambda row: make(**dict(zip(names, row, strict=True)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda row: kind(row[0])
    return (lambda row: row) if get_origin(kind) is tuple else (lambda row: row[0])
