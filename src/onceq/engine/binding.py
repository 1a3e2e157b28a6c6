"""The binding: one table from Op class to SQL function, parameters and decoder.

Used by both drivers and by the test that PREPAREs every row of it. To add an Op to the queue
manager, add a class in `model.ops`, a function in `sql/functions`, and a row here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.engine.decoding import (
    ATTEMPT_COLUMNS,
    CLIENT_COLUMNS,
    ELEMENT_COLUMNS,
    FORGOTTEN_COLUMNS,
    OLD_REQUEST_COLUMNS,
    QUEUE_COLUMNS,
    REQUEST_COLUMNS,
    SERVER_COLUMNS,
    TAKEN_OVER_COLUMNS,
    attempt,
    client_info,
    connection,
    element,
    forgotten,
    old_request,
    outstanding,
    queue_info,
    rates,
    registered,
    request_state,
    server_info,
    taken_over,
    thread_tags,
    whereabouts,
)
from onceq.engine.statement import Binding, Row, call
from onceq.model import admin_ops, ops
from onceq.model.element import Fate, KillAnswer
from onceq.model.end_user import end_user_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _scalar(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def _one(make: Callable[[Row], Any]) -> Callable[[Sequence[Row]], Any]:
    return lambda rows: make(rows[0])


def _first(make: Callable[[Row], Any]) -> Callable[[Sequence[Row]], Any]:
    return lambda rows: make(rows[0]) if rows else None


def _each(make: Callable[[Row], Any]) -> Callable[[Sequence[Row]], Any]:
    return lambda rows: [make(row) for row in rows]


def _each_named(make: Callable[[Row], Any]) -> Callable[[Sequence[Row]], Any]:
    """Decodes the rows whose first column is not null; the others are bells."""
    return lambda rows: [make(row) for row in rows if row[0] is not None]


def _bells_in(column: int) -> Callable[[Sequence[Row]], list[str]]:
    return lambda rows: [row[column] for row in rows if row[column] is not None]


def _unnamed(column: int) -> Callable[[Sequence[Row]], list[str]]:
    return lambda rows: [row[column] for row in rows if row[0] is None and row[column] is not None]


def _finished(rows: Sequence[Row]) -> ops.Finished:
    return ops.Finished(
        following=[element(row) for row in rows if row[0] is not None],
        lost=sum(row[13] for row in rows if row[0] is None and row[2] is None),
    )


def _sighting(row: Row) -> ops.Sighting:
    return ops.Sighting(
        missing=row[0],
        numbers=row[1],
        ready=row[2],
        stopped=row[3],
        due_s=row[4],
        seen=ops.Observation(value=row[5], holders=row[6]),
    )


def _value(row: Row) -> Any:
    return row[0]


_WHO = "registrant_id integer, epoch bigint, "
_ELEMENTS = _each(element)
_SENT = "rid text, body bytea, send_no bigint, ack text[], priority smallint,"
_ATTRIBUTES = "not_before timestamptz, expires_at timestamptz,"

BINDINGS: dict[type[ops.Op[Any]], Binding] = {
    ops.CreateQueue: call(
        "create_queue",
        "queue text, settings.durable boolean, settings.abort_limit integer,"
        " settings.backoff_ms integer, settings.backoff_max_ms integer,"
        " settings.execution_limit_s integer, settings.body_bytes_max integer,"
        " settings.tag_bytes_max integer, settings.keep_body boolean, settings.error_queue text,"
        " settings.retry_limit integer",
        _scalar,
    ),
    ops.AlterQueue: call(
        "alter_queue",
        "queue text, abort_limit integer, backoff_ms integer, backoff_max_ms integer,"
        " execution_limit_s integer, body_bytes_max integer, tag_bytes_max integer,"
        " keep_body boolean, enqueue_started boolean, dequeue_started boolean, retry_limit integer",
        _scalar,
    ),
    ops.DestroyQueue: call("destroy_queue", "queue text", _scalar),
    ops.ListQueues: Binding(
        sql=f"select {QUEUE_COLUMNS} from {{schema}}.queues"
        " where (%s::text is null or name = %s::text) order by name",
        parameters=(("queue", "text"), ("queue", "text")),
        decode=_each(queue_info),
    ),
    ops.Enqueue: call(
        "enqueue",
        f"queue text, body bytea, rid text, priority smallint, {_ATTRIBUTES}"
        " correlation_id text, content_type text, properties jsonb, own_transaction boolean",
        _scalar,
        bells=_bells_in(1),
    ),
    ops.EnqueueMany: call(
        "enqueue_many",
        "queue text, bodies bytea[], content_type text, own_transaction boolean",
        _each_named(_value),
        bells=_unnamed(1),
    ),
    ops.Dequeue: call(
        "dequeue",
        "queue text, eid uuid, registrant_id integer, epoch bigint, tag bytea, sleep boolean",
        _first(element),
        ELEMENT_COLUMNS,
    ),
    ops.NextDue: call("next_due", "queue text", _scalar),
    ops.StopWaiting: call("dequeuer_wakes", "", _scalar),
    ops.ReadElement: call(
        "read_element",
        "eid uuid",
        _first(element),
        ELEMENT_COLUMNS.replace("registrant_id", "coalesce(registrant_id, failed_of)"),
    ),
    ops.Take: call("take", "seq bigint, incarnation bigint", _scalar),
    ops.AbortTaken: call(
        "abort_taken",
        "seq bigint, incarnation bigint, xid bigint",
        lambda rows: Fate(rows[0][0]),
    ),
    ops.ReplyTaken: call(
        "reply_taken", "seq bigint, incarnation bigint, reply bytea, content_type text", _scalar
    ),
    ops.Kill: call(
        "kill", "eid uuid, timeout_s double precision", lambda rows: KillAnswer(rows[0][0])
    ),
    ops.Redrive: Binding(
        sql="select eid, rid from {schema}.redrive(%s::uuid) where eid is not null",
        parameters=(("eid", "uuid"),),
        decode=_first(lambda row: (row[0], row[1])),
    ),
    ops.Settle: call("settle", "", _scalar),
    ops.LookUp: call(
        "look_up",
        "rid text, eid uuid, registrant text, state text, queue text, limit integer",
        _each(request_state),
        REQUEST_COLUMNS,
    ),
    ops.FindRequests: call(
        "find_requests",
        "rid text, registrant text, queue text, outcome text, since timestamptz, until timestamptz,"
        " after_at timestamptz, after_eid uuid, limit integer",
        _each(old_request),
        OLD_REQUEST_COLUMNS,
    ),
    ops.ListAttempts: call("attempts_of", "eid uuid", _each(attempt), ATTEMPT_COLUMNS),
    ops.Register: call(
        "register",
        "queue text, name text, thread text, stable boolean, epoch bigint",
        _each(registered),
    ),
    ops.Deregister: call("deregister", f"{_WHO} queue text", _scalar),
    ops.EnqueueTagged: call(
        "enqueue_with_tag",
        f"{_WHO} queue text, body bytea, tag bytea, own_transaction boolean",
        _scalar,
        bells=_bells_in(1),
    ),
    ops.ReadLast: call(
        "read_last",
        f"{_WHO} queue text",
        _first(lambda row: ops.LastOperation(kind=row[0], eid=row[1], tag=row[2], body=row[3])),
    ),
    ops.Connect: call("connect", "name text, thread text, keep integer", _one(connection)),
    ops.Disconnect: call(
        "disconnect",
        f"{_WHO} received text[], r_rid text, ckpt bytea, s_rid text, s_no bigint",
        _scalar,
    ),
    ops.Send: call(
        "send",
        f"{_WHO} queue text, {_SENT} {_ATTRIBUTES} content_type text, properties jsonb,"
        " own_transaction boolean, sleep boolean, keep integer",
        _one(lambda row: ops.Sent(eid=row[0], state=row[1])),
        bells=_bells_in(2),
    ),
    ops.SendMany: call(
        "send_many",
        f"{_WHO} queue text, rids text[], bodies bytea[], send_no bigint, ack text[],"
        " content_type text, own_transaction boolean, keep integer",
        _each(lambda row: ops.Sent(eid=row[0], state=row[1])),
        bells=_bells_in(2),
    ),
    ops.Receive: call(
        "receive",
        f"{_WHO} rid text, skip text[], limit integer, ckpt bytea, s_rid text, s_no bigint,"
        " asleep boolean, sleep boolean, after bigint",
        _ELEMENTS,
        ELEMENT_COLUMNS,
    ),
    ops.NextExpiry: call("next_expiry", _WHO, _scalar),
    ops.Acknowledge: call(
        "acknowledge",
        f"{_WHO} rids text[], ckpt bytea, s_rid text, s_no bigint, keep integer",
        _scalar,
    ),
    ops.Outstanding: call("outstanding", _WHO, _each(outstanding)),
    ops.Threads: call(
        "threads",
        "name text, registrant_id integer, epoch bigint",
        _each(thread_tags),
    ),
    ops.WhereIs: call("where_is", f"{_WHO} rid text", _first(whereabouts)),
    ops.AlertLate: call(
        "alert_late",
        f"{_WHO} rid text, late_s double precision, queue text",
        _each_named(_value),
        bells=_unnamed(1),
    ),
    ops.LastUser: call("end_user", f"{_WHO} rid text", lambda rows: end_user_of(rows[0][0])),
    ops.BeginReply: call("begin_reply", f"{_WHO} rid text, s_rid text, s_no bigint", _scalar),
    ops.TakeReply: call(
        "take_reply", f"{_WHO} rid text, ckpt bytea, s_rid text, s_no bigint", _scalar
    ),
    ops.SettleReply: call(
        "settle_reply",
        f"{_WHO} rid text, xid bigint, counts boolean, s_rid text, s_no bigint",
        lambda rows: Fate(rows[0][0]),
    ),
    ops.CountOutstanding: call("count_outstanding", _WHO, _scalar),
    ops.CancelRequest: call(
        "cancel_request",
        f"{_WHO} rid text, timeout_s double precision",
        lambda rows: KillAnswer(rows[0][0]),
    ),
    ops.OpenIncarnation: call(
        "open_incarnation",
        "process uuid, host text, pid integer, former bigint, identity text",
        _one(lambda row: ops.Incarnation(slot=row[0], incarnation=row[1], backend_pid=row[2])),
    ),
    ops.CloseIncarnation: call("close_incarnation", "incarnation bigint", _scalar),
    ops.TakeOver: call("take_over", "process uuid", _scalar),
    ops.FindMissing: call(
        "missing",
        "",
        _each(lambda row: ops.Missing(process=row[0], identity=row[1])),
    ),
    ops.ListTakenOver: call("taken_back", "", _each(taken_over), TAKEN_OVER_COLUMNS),
    ops.Judge: call("judge", "process uuid, verdict text", _scalar),
    ops.Claim: call(
        "claim",
        "incarnation bigint, queue_id integer, n integer, turn integer, alone boolean,"
        " everything boolean, may_lose boolean, slot integer, asleep integer[], sleep integer[],"
        " drowsy boolean",
        _each_named(element),
        ELEMENT_COLUMNS,
        bells=_unnamed(2),
    ),
    ops.Attend: call("attend", "slot integer, queue_ids integer[]", _scalar),
    ops.Sweep: call(
        "sweep",
        "queue_ids integer[], value bigint, holders text[]",
        _one(lambda row: ops.Observation(value=row[0], holders=row[1])),
    ),
    ops.Survey: call(
        "survey",
        "process uuid, queues text[], everything boolean, tidy boolean, value bigint,"
        " holders text[]",
        _one(_sighting),
        "missing, numbers, ready, stopped, due_s, value, holders",
    ),
    ops.ClaimEid: call(
        "claim_eid",
        "incarnation bigint, queue_id integer, eid uuid",
        _first(element),
        ELEMENT_COLUMNS,
    ),
    ops.Finish: call(
        "finish",
        "seqs bigint[], incarnation bigint, replies bytea[], content_type text, token text,"
        " must integer, effects boolean, queue_id integer, n integer, turn integer, alone boolean,"
        " slot integer, sleep integer[], drowsy boolean",
        _finished,
        ELEMENT_COLUMNS,
        bells=_unnamed(2),
    ),
    ops.AbortElement: call(
        "abort",
        "seq bigint, incarnation bigint, charge text, code text, error text, traceback text,"
        " after_s double precision",
        lambda rows: Fate(rows[0][0]),
    ),
    admin_ops.ListServers: Binding(
        sql=f"select {SERVER_COLUMNS} from {{schema}}.servers order by slot",
        parameters=(),
        decode=_each(server_info),
    ),
    admin_ops.MeasureRates: call("rates", "over_s double precision", rates),
    admin_ops.ListClients: call("list_clients", "name text", _each(client_info), CLIENT_COLUMNS),
    admin_ops.ForgetClient: call(
        "forget_client",
        "name text, thread text, forced boolean, timeout_s double precision",
        _each(forgotten),
        FORGOTTEN_COLUMNS,
    ),
    admin_ops.Identify: Binding(
        sql="select repository_id from {schema}.repository",
        parameters=(),
        decode=_scalar,
    ),
    admin_ops.RidRange: Binding(
        sql="select min(rid), max(rid) from ("
        "select rid from {schema}.element where registrant_id = %s::integer and rid ^@ %s::text"
        " union all "
        "select rid from {schema}.history where registrant_id = %s::integer and rid ^@ %s::text"
        ") used having count(*) > 0",
        parameters=(("registrant_id", "integer"), ("prefix", "text")) * 2,
        decode=_first(lambda row: (row[0], row[1])),
    ),
}
