"""The binding: how each Op becomes a call of its SQL function, and its rows an answer.

Used by both drivers and by the test that PREPAREs every row of it. An Op says most of that itself:
by its name, by its fields in their order, and by its answer (`statement.bind`). Here is what is
special. To add an Op to the queue manager, add a class in `model.ops` and a function in
`sql/functions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from onceq.engine.bind.decoding import (
    ELEMENT_COLUMNS,
    MEASURED_COLUMNS,
    QUEUE_COLUMNS,
    SERVER_COLUMNS,
    columns_of,
    element,
    measured,
    rates,
)
from onceq.engine.bind.held_binding import HELD_BINDINGS
from onceq.engine.bind.spark_binding import ARCHIVE_BINDINGS
from onceq.engine.bind.statement import NOTHING, bind
from onceq.model import admin_ops, desk_ops, ops, periodic_ops, retention_ops, scan, stream_ops
from onceq.model.archive_ops import ArchiveManifest, ArchiveRedriven, ArchiveSpend
from onceq.model.end_user import end_user_of
from onceq.model.metric_ops import Measure
from onceq.model.ops.base import kinds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onceq.engine.bind.decoding import Row
    from onceq.engine.bind.statement import Binding, Special
    from onceq.model.element import Element

WITHOUT_SQL: Final = frozenset(
    {
        *(ops.Begin, ops.BeginWork, ops.Call, ops.MayGoOn, ops.MayTend),
        *(ops.Commit, ops.Rollback, ops.Act, ops.Post, ops.Posted),
        *(ops.Wait, ops.Sleep, ops.Rouse, ops.Stopping, ops.IsAlive),
    }
)
"""What is done by the driver itself, or by whoever holds it."""


def _each_named(make: Callable[[Row], Any]) -> Callable[[Sequence[Row]], Any]:
    """Decodes the rows whose first column is not null; the others are bells."""
    return lambda rows: [make(row) for row in rows if row[0] is not None]


def _bells_in(column: int) -> Callable[[Sequence[Row]], list[str]]:
    return lambda rows: [row[column] for row in rows if row[column] is not None]


def _unnamed(column: int) -> Callable[[Sequence[Row]], list[str]]:
    return lambda rows: [row[column] for row in rows if row[0] is None and row[column] is not None]


def _finished(rows: Sequence[Row]) -> ops.Finished:
    return ops.Finished(following=_each_named(element)(rows))


def _sent(row: Row) -> ops.Sent:
    return ops.Sent(eid=row[0], state=row[1])


def _bells_of_one(rows: Sequence[Row]) -> list[str]:
    return [one for one in rows[0][21] or () if one is not None]


def _sent_one(rows: Sequence[Row]) -> ops.Sent:
    eid, state, _ = rows[0][0].split(" ", 2)
    return ops.Sent(eid=UUID(eid), state=state)


def _bell_of_one(rows: Sequence[Row]) -> list[str]:
    bell = rows[0][0].split(" ", 2)[2]
    return [bell] if bell else []


def _replies_by_place(rows: Sequence[Row]) -> dict[int, list[Element]]:
    return {row[-1]: [] if row[0] is None else [element(row)] for row in rows}


def _pair(rows: Sequence[Row]) -> tuple[Any, Any] | None:
    return (rows[0][0], rows[0][1]) if rows else None


_SETTINGS = (
    ("queue", "text"),
    ("settings.durable", "boolean"),
    ("settings.abort_limit", "integer"),
    ("settings.backoff_ms", "integer"),
    ("settings.backoff_max_ms", "integer"),
    ("settings.execution_limit_s", "integer"),
    ("settings.body_bytes_max", "integer"),
    ("settings.tag_bytes_max", "integer"),
    ("settings.keep_body", "boolean"),
    ("settings.error_queue", "text"),
    ("settings.retry_limit", "integer"),
    ("settings.order", "text"),
    ("settings.limits.depth", "bigint"),
    ("settings.limits.bytes", "bigint"),
    ("settings.on_failure", "text"),
    ("settings.history_days", "integer"),
)
_CHANGES = (
    ("queue", "text"),
    ("abort_limit", "integer"),
    ("backoff_ms", "integer"),
    ("backoff_max_ms", "integer"),
    ("execution_limit_s", "integer"),
    ("body_bytes_max", "integer"),
    ("tag_bytes_max", "integer"),
    ("keep_body", "boolean"),
    ("enqueue_started", "boolean"),
    ("dequeue_started", "boolean"),
    ("retry_limit", "integer"),
    ("limits.is_given", "boolean"),
    ("limits.depth", "bigint"),
    ("limits.bytes", "bigint"),
    ("on_failure", "text"),
    ("retention.is_given", "boolean"),
    ("retention.history_days", "integer"),
)

_SEND = (
    ("who.registrant_id", "integer"),
    ("who.epoch", "bigint"),
    ("queue", "text"),
    ("request.rid", "text"),
    ("request.body", "bytea"),
    ("send_no", "bigint"),
    ("ack", "text[]"),
    ("request.priority", "smallint"),
    ("request.not_before", "timestamptz"),
    ("request.expires_at", "timestamptz"),
    ("content_type", "text"),
    ("request.properties", "jsonb"),
    ("own_transaction", "boolean"),
    ("sleep", "boolean"),
    ("keep", "integer"),
    ("request.sha256", "bytea"),
)
"""The fields of a request are not beside each other there."""

_WHENCE = (
    ("incarnation", "bigint"),
    ("queue_id", "integer"),
    ("n", "integer"),
    ("turn", "integer"),
    ("alone", "boolean"),
)
_SLEEP = (("sleep", "integer[]"), ("drowsy", "boolean"))
_CLAIM_ONE: Special = {
    "function": "claim_one",
    "parameters": (
        *_WHENCE,
        ("may_lose", "boolean"),
        ("slot", "integer"),
        ("asleep", "integer[]"),
        *_SLEEP,
        *((NOTHING, kind) for kind in ("bigint", "bytea", "text", "text", "boolean")),
    ),
    "decode": _each_named(element),
    "bells": _bells_of_one,
}
_FINISH_ONE: Special = {
    "function": "claim_one",
    "parameters": (
        *_WHENCE,
        (NOTHING, "boolean"),
        ("slot", "integer"),
        (NOTHING, "integer[]"),
        *_SLEEP,
        ("seq", "bigint"),
        ("reply", "bytea"),
        ("content_type", "text"),
        ("token", "text"),
        ("effects", "boolean"),
    ),
    "decode": _finished,
    "bells": _bells_of_one,
}

_READ_COLUMNS: Final = ELEMENT_COLUMNS.replace(
    "registrant_id", "coalesce(registrant_id, failed_of)"
)

SPECIAL: Final[dict[type[ops.Op[Any]], Special]] = {
    ops.CreateQueue: {"parameters": _SETTINGS},
    ops.AlterQueue: {"parameters": _CHANGES},
    ops.ListQueues: {
        "sql": f"select {QUEUE_COLUMNS} from {{schema}}.queues"
        " where (%s::text is null or name = %s::text) order by name",
        "parameters": (("queue", "text"),) * 2,
    },
    ops.Enqueue: {"bells": _bells_in(1)},
    ops.EnqueueMany: {"decode": _each_named(lambda row: row[0]), "bells": _unnamed(1)},
    ops.StopWaiting: {"function": "dequeuer_wakes"},
    ops.ReadElement: {"columns": _READ_COLUMNS},
    ops.ReadTagged: {"columns": _READ_COLUMNS},
    ops.Redrive: {
        "sql": "select eid, rid from {schema}.redrive({marks}) where eid is not null",
        "decode": _pair,
    },
    ops.ListAttempts: {"function": "attempts_of"},
    ops.EnqueueTagged: {"function": "enqueue_with_tag", "bells": _bells_in(1)},
    ops.Send: {
        "sql": "select {schema}.send_one({marks})",
        "parameters": _SEND,
        "decode": _sent_one,
        "bells": _bell_of_one,
    },
    ops.SendMany: {"decode": lambda rows: [_sent(row) for row in rows], "bells": _bells_in(2)},
    ops.Threads: {"columns": "*"},
    ops.AlertLate: {"decode": _each_named(lambda row: row[0]), "bells": _unnamed(1)},
    ops.LastUser: {"function": "end_user", "decode": lambda rows: end_user_of(rows[0][0])},
    ops.FindMissing: {"function": "missing"},
    ops.ListTakenOver: {"function": "taken_back"},
    ops.Claim: {
        "columns": ELEMENT_COLUMNS,
        "decode": _each_named(element),
        "bells": _unnamed(2),
        "plain": _CLAIM_ONE,
        "is_plain": lambda op: op.n == 1 and not op.everything,
    },
    ops.Finish: {
        "columns": ELEMENT_COLUMNS,
        "decode": _finished,
        "bells": _unnamed(2),
        "plain": _FINISH_ONE,
        "is_plain": lambda op: len(op.seqs) == 1 and op.n <= 1 and not op.batch,
    },
    ops.AbortElement: {"function": "abort"},
    desk_ops.SendEach: {
        "decode": lambda rows: {row[0]: ops.Sent(eid=row[1], state="new") for row in rows},
        "bells": _bells_in(2),
    },
    desk_ops.ReceiveEach: {
        "sql": f"select {ELEMENT_COLUMNS}, place"
        " from (select (x.reply).*, x.place from {schema}.receive_each({marks}) x) e",
        "decode": _replies_by_place,
    },
    desk_ops.AcknowledgeEach: {"decode": dict},
    admin_ops.ListServers: {
        "sql": f"select {SERVER_COLUMNS} from {{schema}}.servers order by slot",
    },
    admin_ops.ListSessions: {
        "sql": f"select {columns_of(list[admin_ops.SessionLoad])} from {{schema}}.server_load"
        " order by host, pid, slot",
    },
    admin_ops.MeasureQueues: {
        "sql": f"select {columns_of(list[admin_ops.QueueLoad])} from {{schema}}.queue_load"
        " order by queue",
    },
    admin_ops.MeasureRates: {"function": "rates", "decode": rates},
    periodic_ops.Now: {"sql": "select {schema}.now()"},
    Measure: {"columns": MEASURED_COLUMNS, "decode": measured},
    admin_ops.Identify: {"sql": "select repository_id from {schema}.repository"},
    admin_ops.RidRange: {
        "sql": "select min(rid), max(rid) from ("
        "select rid from {schema}.element where registrant_id = %s::integer and rid ^@ %s::text"
        " union all "
        "select rid from {schema}.history where registrant_id = %s::integer and rid ^@ %s::text"
        ") used having count(*) > 0",
        "parameters": (("registrant_id", "integer"), ("prefix", "text")) * 2,
        "decode": _pair,
    },
}
"""What `bind` is told beside the Op."""


BINDINGS: Final[dict[type[ops.Op[Any]], Binding]] = (
    {
        kind: bind(kind, SPECIAL.get(kind, {}))
        for module in (ops, admin_ops, desk_ops, periodic_ops, retention_ops, scan, stream_ops)
        for kind in kinds_of(module)
        if kind not in WITHOUT_SQL
    }
    | {Measure: bind(Measure, SPECIAL[Measure])}
    | HELD_BINDINGS
    | {kind: ARCHIVE_BINDINGS[kind] for kind in (ArchiveManifest, ArchiveRedriven, ArchiveSpend)}
)
