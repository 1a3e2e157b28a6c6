"""The oracle's answers about periodic requests.

Private to the oracle; the twin of `periodic.sql`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq import errors
from onceq.model import ops
from onceq.model.element import Role
from onceq.model.periodic import PeriodicInfo
from onceq.model.periodic_ops import (
    AlterPeriodic,
    CreatePeriodic,
    DueTick,
    DueTicks,
    HoldTick,
    ListPeriodics,
    Now,
    PausePeriodic,
    RemovePeriodic,
    Tick,
    Ticked,
    TickState,
)
from onceq.model.queue import QueueKind
from proof.oracle import queues
from proof.oracle.rows import PeriodicRow, Transaction
from proof.oracle.state import State, find_queue

if TYPE_CHECKING:
    from uuid import UUID

REFUSALS = (errors.QueueNotFound, errors.QueueStopped, errors.QueueFull, errors.TooLarge)
AGAIN_S = 1.0


def now(state: State, tx: Transaction, op: Now) -> datetime:
    """Answers Now."""
    del tx, op
    return state.now()


def _named(
    state: State, tx: Transaction, name: str, revision: UUID | None = None
) -> PeriodicRow | None:
    for row in state.periodics.seen(tx):
        if row.name == name and revision in {None, row.revision}:
            return row
    return None


def _is_under_way(state: State, tx: Transaction, eid: UUID | None) -> bool:
    return any(one.eid == eid and one.role != Role.FAILED for one in state.elements.seen(tx))


def _open(state: State, tx: Transaction, name: str, body: bytes) -> None:
    queue = find_queue(state, tx, name)
    state.lock(tx, "queue", queue.queue_id, exclusive=False)
    if queue.kind is not QueueKind.REQUEST:
        raise errors.IllegalState(f"queue {name!r} is of kind {queue.kind}")
    if len(body) > queue.settings.body_bytes_max:
        raise errors.TooLarge(f"the body has {len(body)} bytes")


def create_periodic(state: State, tx: Transaction, op: CreatePeriodic) -> bool:
    """Answers CreatePeriodic."""
    _open(state, tx, op.queue, op.body)
    if _named(state, tx, op.name) is not None:
        return False
    key = state.periodics.new_key()
    row = PeriodicRow(
        key=key,
        name=op.name,
        revision=state.new_eid(),
        queue=op.queue,
        body=op.body,
        content_type=op.content_type,
        schedule=op.schedule,
        zone=op.zone,
        missed=op.missed,
        overlap=op.overlap,
        next_at=op.next_at,
        look_at=op.next_at,
        created_at=state.now(),
    )
    state.periodics.put(tx, key, row)
    return True


def _changeable(
    state: State, tx: Transaction, op: AlterPeriodic | PausePeriodic
) -> PeriodicRow | None:
    """Returns the row, if it is of that revision, and has not sent that tick yet."""
    row = _named(state, tx, op.name, op.revision)
    is_sent = row is not None and row.ticked_at is not None and row.ticked_at >= op.next_at
    return None if is_sent else row


def _changed(state: State, tx: Transaction, row: PeriodicRow, next_at: datetime) -> bool:
    new = replace(row, next_at=next_at, look_at=next_at, error=None, revision=state.new_eid())
    state.periodics.put(tx, row.key, new)
    return True


def alter_periodic(state: State, tx: Transaction, op: AlterPeriodic) -> bool:
    """Answers AlterPeriodic."""
    _open(state, tx, op.queue, op.body)
    row = _changeable(state, tx, op)
    if row is None:
        return False
    new = replace(
        row,
        queue=op.queue,
        body=op.body,
        content_type=op.content_type,
        schedule=op.schedule,
        zone=op.zone,
        missed=op.missed,
        overlap=op.overlap,
    )
    return _changed(state, tx, new, op.next_at)


def pause_periodic(state: State, tx: Transaction, op: PausePeriodic) -> bool:
    """Answers PausePeriodic."""
    row = _changeable(state, tx, op)
    if row is None:
        return False
    return _changed(state, tx, replace(row, is_paused=op.paused), op.next_at)


def remove_periodic(state: State, tx: Transaction, op: RemovePeriodic) -> bool:
    """Answers RemovePeriodic."""
    row = _named(state, tx, op.name)
    if row is not None:
        state.periodics.put(tx, row.key, None)
    return row is not None


def list_periodics(state: State, tx: Transaction, op: ListPeriodics) -> list[PeriodicInfo]:
    """Answers ListPeriodics."""
    rows = [row for row in state.periodics.seen(tx) if op.name in {None, row.name}]
    return [_info(state, tx, row) for row in sorted(rows, key=lambda row: row.name)]


def _info(state: State, tx: Transaction, row: PeriodicRow) -> PeriodicInfo:
    late = (state.now() - row.next_at).total_seconds()
    return PeriodicInfo(
        name=row.name,
        revision=row.revision,
        queue=row.queue,
        body=row.body,
        content_type=row.content_type,
        schedule=row.schedule,
        zone=row.zone,
        missed=row.missed,
        overlap=row.overlap,
        is_paused=row.is_paused,
        next_at=row.next_at,
        ticked_at=row.ticked_at,
        eid=row.eid,
        is_under_way=_is_under_way(state, tx, row.eid),
        error=row.error,
        lag_s=0.0 if row.is_paused else max(0.0, late),
        created_at=row.created_at,
    )


def due_ticks(state: State, tx: Transaction, op: DueTicks) -> list[DueTick]:
    """Answers DueTicks."""
    del op
    time = state.now()
    due = [
        row
        for row in state.periodics.seen(tx)
        if not row.is_paused
        and row.look_at <= time
        and (row.overlap or not _is_under_way(state, tx, row.eid))
    ]
    return [
        DueTick(
            name=row.name,
            revision=row.revision,
            schedule=row.schedule,
            zone=row.zone,
            missed=row.missed,
            next_at=row.next_at,
            now=time,
        )
        for row in sorted(due, key=lambda row: (row.look_at, row.name))
    ]


def tick(state: State, tx: Transaction, op: Tick) -> Ticked:
    """Answers Tick."""
    row = _named(state, tx, op.name, op.revision)
    is_due = max(op.next_at, op.tick_at or op.next_at) <= state.now()
    if row is None or row.is_paused or row.next_at != op.next_at or not is_due:
        return Ticked(state=TickState.GONE, error=None, is_news=False)
    if not row.overlap and _is_under_way(state, tx, row.eid):
        return Ticked(state=TickState.UNDER_WAY, error=None, is_news=False)
    eid = None
    if op.tick_at is not None:
        enqueue = ops.Enqueue(
            queue=row.queue,
            body=row.body,
            rid=f"{row.name}@{op.tick_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            content_type=row.content_type,
        )
        mark = len(tx.log)
        try:
            eid = queues.enqueue(state, tx, enqueue)
        except REFUSALS as error:
            tx.undo(mark)
            is_news = _held(state, tx, row, (str(error), AGAIN_S))
            return Ticked(state=TickState.REFUSED, error=str(error), is_news=is_news)
    new = replace(
        row,
        next_at=op.to,
        look_at=op.to,
        error=None,
        ticked_at=op.tick_at or row.ticked_at,
        eid=eid or row.eid,
    )
    state.periodics.put(tx, row.key, new)
    done = TickState.SKIPPED if op.tick_at is None else TickState.SENT
    return Ticked(state=done, error=None, is_news=False)


def hold_tick(state: State, tx: Transaction, op: HoldTick) -> bool:
    """Answers HoldTick."""
    row = _named(state, tx, op.name, op.revision)
    if row is None or row.next_at != op.next_at:
        return False
    return _held(state, tx, row, (op.error, op.after_s))


def _held(state: State, tx: Transaction, row: PeriodicRow, why: tuple[str, float]) -> bool:
    """Puts a tick off, for a reason, for so many seconds; returns whether that is news."""
    error, after_s = why
    look_at = state.now() + timedelta(seconds=after_s)
    state.periodics.put(tx, row.key, replace(row, error=error, look_at=look_at))
    return row.error != error
