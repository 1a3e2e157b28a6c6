"""What the oracle answers to servers: incarnations, claims, finishes, aborts, takeovers.

Private to the oracle; the twin of `server.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.errors import IllegalState
from onceq.model import ops
from onceq.model.element import Charge, Element
from onceq.model.oracle.rows import (
    FRESH_LANES_END,
    SUSPECT_LANE,
    WAITING_LANE,
    ElementRow,
    ServerRow,
    Transaction,
)
from onceq.model.oracle.state import (
    SERVED_ROLES,
    State,
    expire,
    return_element,
    to_element,
)

if TYPE_CHECKING:
    from uuid import UUID

SUSPECT_PATIENCE = timedelta(seconds=1)
GROUPS_IN_TURN = (
    ("suspect waiting", "due", "fresh", "suspect"),
    ("fresh", "due", "suspect"),
    ("due", "suspect waiting", "fresh", "suspect"),
    ("fresh", "due", "suspect"),
)
"""The groups of lanes that a claim looks at, by its turn modulo 4."""

Charges = dict[int, Charge]


@dataclass(frozen=True, slots=True)
class Turn:
    """What a claim looks at. alone: suspects too."""

    queue_id: int
    n: int
    turn: int
    alone: bool


def _row_of(state: State, tx: Transaction, incarnation: int | None) -> ServerRow | None:
    for row in state.servers.seen(tx):
        if row.incarnation == incarnation:
            return row
    return None


def mark(state: State, tx: Transaction, incarnation: int, seq: int) -> None:
    """Sets the started marker of an incarnation's slot: at once, whatever becomes of `tx`."""
    row = _row_of(state, tx, incarnation)
    if row is not None:
        state.markers[row.slot] = seq


# --- incarnations and takeover --------------------------------------------------------------------


def open_incarnation(state: State, tx: Transaction, op: ops.OpenIncarnation) -> ops.Incarnation:
    """Answers OpenIncarnation."""
    former = _row_of(state, tx, op.former)
    if former is not None:
        _take_over_slot(state, tx, former, _broken_by(state, tx, former))
    _take_over_dead(state, tx, op.process)
    slot = 1
    while not _free(state, tx, slot) or state.servers.get(tx, slot) is not None:
        slot += 1
    state.slots[slot] = tx.backend
    state.markers[slot] = 0
    incarnation = state.next_incarnation()
    row = ServerRow(
        slot=slot,
        incarnation=incarnation,
        process=op.process,
        host=op.host,
        pid=op.pid,
        boot=state.boot,
        backend=tx.backend,
        started_at=state.now(),
    )
    state.servers.put(tx, slot, row)
    return ops.Incarnation(slot=slot, incarnation=incarnation, backend_pid=tx.backend)


def _free(state: State, tx: Transaction, slot: int) -> bool:
    return state.slots.get(slot) in {None, tx.backend}


def close_incarnation(state: State, tx: Transaction, op: ops.CloseIncarnation) -> bool:
    """Answers CloseIncarnation."""
    row = _row_of(state, tx, op.incarnation)
    if row is None:
        revoke(state, tx, op.incarnation, {})
        return False
    _take_over_slot(state, tx, row, {})
    if row.backend == tx.backend:
        state.slots.pop(row.slot, None)
    return True


def _take_over_slot(state: State, tx: Transaction, row: ServerRow, charges: Charges) -> None:
    """Takes back what an incarnation holds; its row stays while a ghost of it lives."""
    if revoke(state, tx, row.incarnation, charges) and _free(state, tx, row.slot):
        state.servers.put(tx, row.slot, None)


def revoke(state: State, tx: Transaction, incarnation: int, charges: Charges) -> bool:
    """Returns what an incarnation holds, charged as told; False when locked rows were left."""
    left = False
    for row in state.elements.seen(tx):
        if row.claimed_by != incarnation:
            continue
        if state.elements.is_locked(tx, row.seq):
            left = True
            continue
        charge = charges.get(row.seq, Charge.RELEASE)
        text = f"incarnation {incarnation} ended while it ran"
        failure = (None, None) if charge is Charge.RELEASE else ("server_died", text)
        return_element(state, tx, row, charge, failure=failure)
    return not left


def take_over(state: State, tx: Transaction, op: ops.TakeOver) -> int:
    """Answers TakeOver."""
    return _take_over_dead(state, tx, op.process)


def _take_over_dead(state: State, tx: Transaction, process: UUID) -> int:
    """Takes over this process's broken sessions, and the processes that died (G7); how many."""
    for row in state.servers.seen(tx):
        if row.process == process and row.backend != tx.backend and _free(state, tx, row.slot):
            _take_over_slot(state, tx, row, _broken_by(state, tx, row))
    by_process: dict[UUID, list[ServerRow]] = {}
    for row in state.servers.seen(tx):
        if row.process != process:
            by_process.setdefault(row.process, []).append(row)
    taken = 0
    for dead in by_process.values():
        if not all(_free(state, tx, row.slot) for row in dead):
            continue
        charges = _started_by(state, tx, dead)
        for row in dead:
            _take_over_slot(state, tx, row, charges)
        taken += 1
    return taken


def _claims(state: State, tx: Transaction, incarnation: int) -> list[int]:
    return [row.seq for row in state.elements.seen(tx) if row.claimed_by == incarnation]


def _started_by(state: State, tx: Transaction, dead: list[ServerRow]) -> Charges:
    """Returns what the dead had started: one is charged, several are suspects (G7).

    When the database went down, all are suspects, and what was one already is charged.
    """
    started: list[int] = []
    held: Charges = {}
    survived = True
    unclear = False
    for row in dead:
        marker = state.markers.get(row.slot)
        claims = _claims(state, tx, row.incarnation)
        survived = survived and marker is not None and row.boot == state.boot
        batch = _batch_of(marker, claims)
        unclear = unclear or bool(batch)
        started += batch or [seq for seq in claims if seq == marker]
        held |= _after_crash(state, tx, row.incarnation)
    if not survived:
        return held
    unclear = unclear or len(started) > 1
    return dict.fromkeys(started, Charge.SUSPECT if unclear else Charge.CHARGE)


def _after_crash(state: State, tx: Transaction, incarnation: int) -> Charges:
    """Returns what a crash of the database costs what an incarnation holds."""
    return {
        row.seq: Charge.CHARGE if row.lane == SUSPECT_LANE else Charge.SUSPECT
        for row in state.elements.seen(tx)
        if row.claimed_by == incarnation
    }


def _batch_of(marker: int | None, claims: list[int]) -> list[int]:
    """Returns what is claimed, if the marker names it as a batch of which nobody knows more."""
    return claims if marker is not None and -marker in claims else []


def _broken_by(state: State, tx: Transaction, row: ServerRow) -> Charges:
    """Returns what a live process had started when its connection broke."""
    marker = state.markers.get(row.slot)
    if marker == 0:
        return {}
    claims = _claims(state, tx, row.incarnation)
    if marker is None or row.boot != state.boot:
        return _after_crash(state, tx, row.incarnation)
    started = [marker] if marker > 0 else _batch_of(marker, claims)
    return dict.fromkeys(started, Charge.ENVIRONMENT)


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
        fresh = [row for row in free if row.lane <= FRESH_LANES_END]
        return sorted(fresh, key=lambda row: (row.lane, row.seq))
    now = state.now()
    lane = WAITING_LANE if group == "due" else SUSPECT_LANE
    latest = now - SUSPECT_PATIENCE if group == "suspect waiting" else now
    due = [(row.not_before or now, row.seq, row) for row in free if row.lane == lane]
    return [row for _, _, row in sorted(item for item in due if item[0] <= latest)]


def _is_open(state: State, tx: Transaction, queue_id: int) -> bool:
    """Returns whether a queue may be claimed from. IllegalState: it is a client's own."""
    queue = state.queues.get(tx, queue_id)
    if queue is None or not queue.dequeue_started:
        return False
    if queue.kind == "reply":
        raise IllegalState(f"queue {queue.name!r} is a client's own")
    return True


def _may_claim_suspect(state: State, tx: Transaction, incarnation: int) -> bool:
    """Returns whether no other server of the repository holds a suspect, or is claiming one."""
    servers = {row.incarnation for row in state.servers.seen(tx)} - {incarnation}
    return not any(
        row.claimed_by in servers or state.elements.is_locked(tx, row.seq)
        for row in state.elements.seen(tx)
        if row.lane == SUSPECT_LANE
    )


def claim_rows(state: State, tx: Transaction, incarnation: int, what: Turn) -> list[ElementRow]:
    """Claims for an incarnation, and returns what it got; what has expired gets its reply here."""
    if not _is_open(state, tx, what.queue_id):
        return []
    with_suspects = what.alone and _may_claim_suspect(state, tx, incarnation)
    claimed: list[ElementRow] = []
    wanted = what.n
    free = _free_in(state, tx, what.queue_id)
    for group in GROUPS_IN_TURN[what.turn % 4] if free else ():
        if group.startswith("suspect") and (wanted < what.n or not with_suspects):
            continue
        for row in _take(state, tx, incarnation, _pick(state, free, group), wanted=wanted):
            wanted = 0 if row.lane == SUSPECT_LANE else wanted - 1
            claimed.append(row)
    return claimed


def _take(
    state: State, tx: Transaction, incarnation: int, picked: list[ElementRow], *, wanted: int
) -> list[ElementRow]:
    """Claims the first of what was picked that are neither stale nor expired."""
    taken: list[ElementRow] = []
    for candidate in picked:
        if len(taken) == wanted:
            break
        row = replace(candidate, claimed_by=incarnation)
        is_there = state.elements.get(tx, row.seq) is candidate  # not expired in another group
        if is_there and _is_usable(state, tx, row):
            state.elements.put(tx, row.seq, row)
            taken.append(row)
            wanted = len(taken) if row.lane == SUSPECT_LANE else wanted
    return taken


def _is_usable(state: State, tx: Transaction, row: ElementRow) -> bool:
    """Returns whether to give out a claimed element; removes it when it is stale or expired."""
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
    """Claims the element of a queue with an eid, if nobody holds it and its time has come."""
    queue = state.queues.get(tx, op.queue_id)
    if queue is None or not queue.dequeue_started:
        return None
    now = state.now()
    picked = [
        row
        for row in _free_in(state, tx, op.queue_id)
        if row.eid == op.eid
        and row.role in SERVED_ROLES
        and (row.lane <= FRESH_LANES_END or (row.not_before or now) <= now)
    ]
    taken = _take(state, tx, op.incarnation, picked, wanted=1)
    return taken[0] if taken else None


def claim_eid(state: State, tx: Transaction, op: ops.ClaimEid) -> Element | None:
    """Answers ClaimEid."""
    row = claim_row(state, tx, op)
    return None if row is None else to_element(row)


# --- what costs time only, and has no meaning here ------------------------------------------------


def attend(state: State, tx: Transaction, op: ops.Attend) -> bool:
    """Answers Attend: nobody is rung here, sleepers look by themselves."""
    del state, tx, op
    return True


def sweep(state: State, tx: Transaction, op: ops.Sweep) -> ops.Observation:
    """Answers Sweep: there are no low-water marks here, every claim looks at everything."""
    del state, tx
    return ops.Observation(value=op.value or 0, holders=[])
