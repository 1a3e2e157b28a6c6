"""The oracle's answers to servers that claim.

Private to the oracle; the twin of `server.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from msgspec.structs import replace

from onceq.errors import IllegalState
from onceq.model import ops
from onceq.model.element import Element, Lane
from onceq.model.periodic_ops import DueTicks
from onceq.model.queue import QueueKind
from proof.oracle import periodics
from proof.oracle.ends import expire
from proof.oracle.order import refuse_in_order
from proof.oracle.rows import ElementRow, Transaction
from proof.oracle.state import (
    SERVED_ROLES,
    State,
    find_queue,
    is_open,
    to_element,
)
from proof.oracle.takeover import row_of, take_over_missing

SUSPECT_PATIENCE = timedelta(seconds=1)
GROUPS_IN_TURN = (
    ("suspect waiting", "due", "fresh", "suspect"),
    ("fresh", "due", "suspect"),
    ("due", "suspect waiting", "fresh", "suspect"),
    ("fresh", "due", "suspect"),
)
"""The groups of lanes that a claim looks at, by its turn modulo 4."""
SUSPECTS_FIRST = ("suspect", "due", "fresh")
"""The same, for turn -1."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a claim looks at. alone: suspects too."""

    queue_id: int
    n: int
    turn: int
    alone: bool


def mark(state: State, tx: Transaction, incarnation: int, seq: int) -> None:
    """Sets the started marker of an incarnation's slot at once, whatever becomes of `tx`."""
    row = row_of(state, tx, incarnation)
    if row is not None:
        state.markers[row.slot] = seq


# --- claims ---------------------------------------------------------------------------------------


def _free_in(state: State, tx: Transaction, queue_id: int) -> list[ElementRow]:
    """Returns the elements of a queue that nobody holds."""
    return [
        row
        for row in state.elements.seen(tx)
        if row.queue_id == queue_id
        and row.claimed_by is None
        and not state.elements.is_locked(tx, row.seq)
    ]


def _pick(state: State, free: list[ElementRow], group: str) -> list[ElementRow]:
    """Returns the elements to claim next from a lane group, of those that nobody holds."""
    if group == "fresh":
        fresh = [row for row in free if row.lane <= Lane.FRESH]
        return sorted(fresh, key=lambda row: (row.lane, row.seq))
    now = state.now()
    lane = Lane.DUE if group == "due" else Lane.SUSPECT
    latest = now - SUSPECT_PATIENCE if group == "suspect waiting" else now
    due = [(row.not_before or now, row.seq, row) for row in free if row.lane == lane]
    return [row for _, _, row in sorted(item for item in due if item[0] <= latest)]


def _is_open(state: State, tx: Transaction, queue_id: int) -> bool:
    """Returns whether a queue may be claimed from. IllegalState: it is a client's own."""
    queue = state.queues.get(tx, queue_id)
    if queue is None or not is_open(state, queue):
        return False
    if queue.kind is QueueKind.REPLY:
        raise IllegalState(f"queue {queue.name!r} is a client's own")
    return True


def _may_claim_suspect(state: State, tx: Transaction, incarnation: int) -> bool:
    """Returns whether no other server of the repository runs a suspect, or is claiming one."""
    servers = {row.incarnation for row in state.servers.seen(tx) if row.charges is None}
    servers -= {incarnation}
    return not any(
        row.claimed_by in servers or state.elements.is_locked(tx, row.seq)
        for row in state.elements.seen(tx)
        if row.lane == Lane.SUSPECT
    )


def claim_rows(state: State, tx: Transaction, incarnation: int, what: Turn) -> list[ElementRow]:
    """Claims for an incarnation, and returns what it got; anything expired gets its reply here."""
    if not _is_open(state, tx, what.queue_id):
        return []
    queue = state.queues.get(tx, what.queue_id)
    if queue is not None and queue.settings.order is not None:
        return _claim_in_order(state, tx, incarnation, what)
    with_suspects = what.alone and _may_claim_suspect(state, tx, incarnation)
    claimed: list[ElementRow] = []
    wanted = what.n
    free = _free_in(state, tx, what.queue_id)
    groups = GROUPS_IN_TURN[what.turn % 4] if what.turn >= 0 else SUSPECTS_FIRST
    for group in groups if free else ():
        if group.startswith("suspect") and (wanted < what.n or not with_suspects):
            continue
        picked = _pick(state, free, group)
        if group.startswith("suspect"):
            taken = _take_suspects(state, tx, incarnation, picked, wanted=wanted)
            wanted = 0 if taken else wanted
        else:
            taken = _take(state, tx, incarnation, picked, wanted=wanted)
            wanted -= len(taken)
        claimed += taken
    return claimed


def _claim_in_order(
    state: State, tx: Transaction, incarnation: int, what: Turn
) -> list[ElementRow]:
    """Claims the next element of a strict queue, unless one has begun and has not ended."""
    if what.n < 1 or state.begun.is_locked(tx, what.queue_id):
        return []
    while True:
        row = _next_in_order(state, tx, what.queue_id)
        if row is None or row.claimed_by is not None or state.elements.is_locked(tx, row.seq):
            return []
        if row.lane >= Lane.HELD:
            return []
        if row.lane > Lane.FRESH and (row.not_before or state.now()) > state.now():
            return []
        is_suspect = row.lane == Lane.SUSPECT
        if is_suspect and not (what.alone and _may_claim_suspect(state, tx, incarnation)):
            return []
        taken = _take(state, tx, incarnation, [row], wanted=1)
        if taken:
            state.begun.put(tx, what.queue_id, row.seq)
            return taken


def _next_in_order(state: State, tx: Transaction, queue_id: int) -> ElementRow | None:
    """Returns the element that began and has not ended; else one redriven, else the first sent."""
    begun = state.elements.get(tx, state.begun.get(tx, queue_id) or 0)
    if begun is not None and begun.queue_id == queue_id and begun.role in SERVED_ROLES:
        return begun
    there = [row for row in state.elements.seen(tx) if row.queue_id == queue_id]
    return min(there, key=lambda row: (row.lane != Lane.DUE, row.seq), default=None)


def _take_suspects(
    state: State, tx: Transaction, incarnation: int, picked: list[ElementRow], *, wanted: int
) -> list[ElementRow]:
    """Claims the first, and of those with which it may run together so many as fit."""
    taken = _take(state, tx, incarnation, picked, wanted=min(wanted, 1))
    most = min(wanted, taken[0].together or 1) if taken else 0
    others = [
        row
        for row in picked
        if taken and row.seq != taken[0].seq and row.together == taken[0].together
    ]
    return taken + _take(state, tx, incarnation, others, wanted=max(0, most - 1))


def _take(
    state: State, tx: Transaction, incarnation: int, picked: list[ElementRow], *, wanted: int
) -> list[ElementRow]:
    """Claims the first picked elements that are neither stale nor expired."""
    taken: list[ElementRow] = []
    for candidate in picked:
        if len(taken) == wanted:
            break
        row = replace(candidate, claimed_by=incarnation)
        is_there = state.elements.get(tx, row.seq) is candidate  # not expired in another group
        if is_there and _is_usable(state, tx, row):
            state.elements.put(tx, row.seq, row)
            taken.append(row)
    return taken


def _is_usable(state: State, tx: Transaction, row: ElementRow) -> bool:
    """Returns whether to hand out a claimed element; removes it if it is stale or expired."""
    if row.life is not None and row.life < state.current_life(tx):
        state.elements.put(tx, row.seq, None)
        return False
    if row.expires_at is not None and row.expires_at <= state.now():
        expire(state, tx, row)
        return False
    return True


def claim(state: State, tx: Transaction, op: ops.Claim) -> list[Element]:
    """Answers Claim."""
    what = Turn(op.queue_id, op.n, op.turn, op.alone)
    return [to_element(row) for row in claim_rows(state, tx, op.incarnation, what)]


def claim_row(state: State, tx: Transaction, op: ops.ClaimEid) -> ElementRow | None:
    """Claims the element of a queue with an eid, if nobody holds it and it is due."""
    queue = state.queues.get(tx, op.queue_id)
    if queue is None or not is_open(state, queue):
        return None
    refuse_in_order(queue, "gives no element out of turn")
    now = state.now()
    picked = [
        row
        for row in _free_in(state, tx, op.queue_id)
        if row.eid == op.eid
        and row.role in SERVED_ROLES
        and (row.lane <= Lane.FRESH or (row.lane < Lane.HELD and (row.not_before or now) <= now))
    ]
    taken = _take(state, tx, op.incarnation, picked, wanted=1)
    return taken[0] if taken else None


def still_claimed(state: State, tx: Transaction, op: ops.StillClaimed) -> list[int]:
    """Answers StillClaimed."""
    found = (state.elements.get(tx, seq) for seq in sorted(op.seqs))
    return [row.seq for row in found if row is not None and row.claimed_by == op.incarnation]


def claim_eid(state: State, tx: Transaction, op: ops.ClaimEid) -> Element | None:
    """Answers ClaimEid."""
    row = claim_row(state, tx, op)
    return None if row is None else to_element(row)


def _expire_held(state: State, tx: Transaction, queue_ids: list[int]) -> None:
    """Expires what queues hold themselves and whose time is over."""
    for row in state.elements.seen(tx):
        is_held = row.lane == Lane.HELD and row.role in SERVED_ROLES and row.queue_id in queue_ids
        is_over = row.expires_at is not None and row.expires_at <= state.now()
        if is_held and is_over and not state.elements.is_locked(tx, row.seq):
            expire(state, tx, row)


def survey(state: State, tx: Transaction, op: ops.Survey) -> ops.Sighting:
    """Answers Survey. There are no low-water marks here."""
    missing = take_over_missing(state, tx, op.process)
    known = {row.name: row.queue_id for row in state.queues.seen(tx) if not row.destroyed}
    numbers = [known.get(name, 0) for name in op.queues]
    _expire_held(state, tx, numbers)
    due = [one for queue_id in numbers if (one := _due_in(state, tx, queue_id)) is not None]
    return ops.Sighting(
        missing=missing,
        numbers=numbers,
        ready=[_is_ready(state, tx, queue_id) for queue_id in numbers],
        stopped=[
            queue is not None and not queue.dequeue_started
            for queue in (state.queues.get(tx, queue_id) for queue_id in numbers)
        ],
        due_s=min(due, default=None),
        seen=ops.Observation(value=op.value or 0, holders=[]),
        ticks=bool(periodics.due_ticks(state, tx, DueTicks())),
    )


def next_due(state: State, tx: Transaction, op: ops.NextDue) -> float | None:
    """Answers NextDue."""
    return _due_in(state, tx, find_queue(state, tx, op.queue).queue_id)


def _waiting_in(state: State, tx: Transaction, queue_id: int) -> list[ElementRow]:
    """Returns the unclaimed elements of a queue that servers may claim from, locked or not."""
    queue = state.queues.get(tx, queue_id)
    if queue is None or not is_open(state, queue) or queue.kind is QueueKind.REPLY:
        return []
    return [
        row
        for row in state.elements.seen(tx)
        if row.queue_id == queue_id and row.claimed_by is None and row.lane <= Lane.SUSPECT
    ]


def _is_ready(state: State, tx: Transaction, queue_id: int) -> bool:
    """Returns whether a claim would find something now; for suspects, whether one may run."""
    now = state.now()
    waiting = [
        row
        for row in _waiting_in(state, tx, queue_id)
        if row.lane <= Lane.FRESH or (row.not_before or now) <= now
    ]
    queue = state.queues.get(tx, queue_id)
    if queue is not None and queue.settings.order is not None:
        head = _next_in_order(state, tx, queue_id)
        waiting = [row for row in waiting if row is head]
    if any(row.lane != Lane.SUSPECT for row in waiting):
        return True
    return bool(waiting) and _may_claim_suspect(state, tx, 0)


def _due_in(state: State, tx: Transaction, queue_id: int) -> float | None:
    """Returns in how many seconds the next element is due; None: none waits for its time."""
    now = state.now()
    queue = state.queues.get(tx, queue_id)
    if queue is not None and queue.dequeue_started and (queue.paused_until or now) > now:
        return ((queue.paused_until or now) - now).total_seconds()
    later = [
        row.not_before
        for row in _waiting_in(state, tx, queue_id)
        if row.lane > Lane.FRESH and row.not_before is not None and row.not_before > now
    ]
    return (min(later) - now).total_seconds() if later else None


# --- what only affects time, and means nothing here -----------------------------------------------


def attend(state: State, tx: Transaction, op: ops.Attend) -> bool:
    """Answers Attend: nobody is rung here, sleepers look by themselves."""
    del state, tx, op
    return True


def sweep(state: State, tx: Transaction, op: ops.Sweep) -> ops.Observation:
    """Answers Sweep: there are no low-water marks here, every claim looks at everything."""
    _expire_held(state, tx, op.queue_ids)
    return ops.Observation(value=op.value or 0, holders=[])
