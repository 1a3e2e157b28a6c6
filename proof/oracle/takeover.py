"""The oracle's answers about incarnations, their takeover, and verdicts on missing processes.

Private to the oracle; the twin of `takeover.sql`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.model import ops
from onceq.model.element import Charge, Lane
from proof.oracle.ends import return_element
from proof.oracle.rows import ElementRow, Failure, ServerRow, TakenOverRow, Transaction
from proof.oracle.state import (
    State,
    queue_of,
)

if TYPE_CHECKING:
    from uuid import UUID

VERDICT_WITHIN = timedelta(seconds=60)
"""A process missing for this long is taken for dead."""
LIVES_AFTER = timedelta(seconds=1)
"""A process that has been missing for this long, and lives, was not dying."""

Charges = dict[int, Charge]


def row_of(state: State, tx: Transaction, incarnation: int | None) -> ServerRow | None:
    """Returns the row of an incarnation; None when it has none."""
    for row in state.servers.seen(tx):
        if row.incarnation == incarnation:
            return row
    return None


def open_incarnation(state: State, tx: Transaction, op: ops.OpenIncarnation) -> ops.Incarnation:
    """Answers OpenIncarnation."""
    former = row_of(state, tx, op.former)
    if former is not None:
        _take_over_slot(state, tx, former, _broken_by(state, tx, former))
    take_over_missing(state, tx, op.process)
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
        identity=op.identity,
    )
    state.servers.put(tx, slot, row)
    return ops.Incarnation(slot=slot, incarnation=incarnation, backend_pid=tx.backend)


def _free(state: State, tx: Transaction, slot: int) -> bool:
    return state.slots.get(slot) in {None, tx.backend}


def close_incarnation(state: State, tx: Transaction, op: ops.CloseIncarnation) -> bool:
    """Answers CloseIncarnation."""
    row = row_of(state, tx, op.incarnation)
    if row is None:
        revoke(state, tx, op.incarnation, {})
        return False
    _take_over_slot(state, tx, row, {})
    if state.servers.get(tx, row.slot) is not None and row.slot in state.markers:
        state.markers[row.slot] = 0
    if row.backend == tx.backend:
        state.slots.pop(row.slot, None)
    return True


def _take_over_slot(
    state: State, tx: Transaction, row: ServerRow, charges: Charges, *, waits: bool = False
) -> None:
    """Takes back what an incarnation holds; its row stays while a ghost of it lives.

    waits: what is in charges stays claimed, and the row keeps them.
    """
    if waits and row.charges is not None:
        return
    is_clean = revoke(state, tx, row.incarnation, charges, waits=waits)
    if is_clean and not (waits and charges) and _free(state, tx, row.slot):
        state.servers.put(tx, row.slot, None)
    elif waits:
        noted = replace(
            row, missed_at=row.missed_at or state.now(), charges=charges if is_clean else None
        )
        if noted != row:
            state.servers.put(tx, row.slot, noted)


def revoke(
    state: State, tx: Transaction, incarnation: int, charges: Charges, *, waits: bool = False
) -> bool:
    """Returns what an incarnation holds, charged as told; False when locked rows were left."""
    left = False
    found: list[Charge] = []
    aborted: list[ops.Aborted] = []
    half = _half_of(state, tx, incarnation, charges)
    for row in state.elements.seen(tx):
        if row.claimed_by != incarnation or (waits and row.seq in charges):
            continue
        if state.elements.is_locked(tx, row.seq):
            left = True
            continue
        charge = charges.get(row.seq, Charge.RELEASE)
        text = f"incarnation {incarnation} ended while it ran"
        code = "database_fell" if charge is Charge.FELL else "server_died"
        failure = Failure(None, None) if charge is Charge.RELEASE else Failure(code, text)
        together = half if charge is Charge.SUSPECT else None
        fate = return_element(state, tx, row, charge, failure=failure, together=together)
        is_free = charge is Charge.RELEASE
        found.append(charge if is_free else state.attempts.seen(tx)[-1].charge)
        if found[-1] in {Charge.CHARGE, Charge.SUSPECT}:
            abort = ops.Aborted(
                queue=queue_of(state, tx, row.queue_id).name,
                rid=row.rid,
                eid=row.eid,
                attempt=row.aborts + 1,
                charge=found[-1],
                code=code,
                error=text,
                fate=fate,
            )
            aborted.append(abort)
    if found:
        _note_taken_over(state, tx, incarnation, charges=found, aborted=aborted)
    return not left


def _half_of(state: State, tx: Transaction, incarnation: int, charges: Charges) -> int | None:
    """Returns how many suspects of one incarnation may run together; None: each runs alone."""
    suspects = [
        seq for seq in _claims(state, tx, incarnation) if charges.get(seq) is Charge.SUSPECT
    ]
    half = (len(suspects) + 1) // 2
    return half if half > 1 else None


def _note_taken_over(
    state: State,
    tx: Transaction,
    incarnation: int,
    *,
    charges: list[Charge],
    aborted: list[ops.Aborted],
) -> None:
    """Notes for this session what came of what an incarnation held."""
    row = row_of(state, tx, incarnation)
    suspects, charged = charges.count(Charge.SUSPECT), charges.count(Charge.CHARGE)
    taken = ops.TakenOver(
        incarnation=incarnation,
        process=None if row is None else row.process,
        host=None if row is None else row.host,
        pid=None if row is None else row.pid,
        returned=len(charges) - suspects - charged,
        suspects=suspects,
        charged=charged,
        aborted=aborted,
    )
    key = state.taken_over.new_key()
    state.taken_over.put(tx, key, TakenOverRow(key=key, backend=tx.backend, taken=taken))


def list_taken_over(state: State, tx: Transaction, op: ops.ListTakenOver) -> list[ops.TakenOver]:
    """Answers ListTakenOver."""
    del op
    found = [row for row in state.taken_over.seen(tx) if row.backend == tx.backend]
    for row in found:
        state.taken_over.put(tx, row.key, None)
    return [row.taken for row in found]


def take_over(state: State, tx: Transaction, op: ops.TakeOver) -> int:
    """Answers TakeOver."""
    return take_over_missing(state, tx, op.process)


def take_over_missing(state: State, tx: Transaction, process: UUID) -> int:
    """Takes over this process's broken sessions, and the missing processes; returns how many."""
    for row in state.servers.seen(tx):
        if row.process == process and row.backend != tx.backend and _free(state, tx, row.slot):
            _take_over_slot(state, tx, row, _broken_by(state, tx, row))
    others = {row.process for row in state.servers.seen(tx)} - {process}
    return sum(_take_over_process(state, tx, other) for other in sorted(others))


def _take_over_process(state: State, tx: Transaction, process: UUID) -> bool:
    """Takes over from another process if it is missing; returns whether it is.

    What it had started waits until its death is certain, or a minute has passed.
    """
    rows = _rows_of(state, tx, process)
    if not all(_free(state, tx, row.slot) for row in rows):
        return False
    charges = next((row.charges for row in rows if row.charges is not None), None)
    missed = [row.missed_at for row in rows if row.missed_at is not None]
    is_over = any(row.ended for row in rows)
    is_over = is_over or bool(missed and min(missed) <= state.now() - VERDICT_WITHIN)
    if charges is None:
        charges = _started_by(state, tx, rows)
        is_over = is_over or any(_fell(state, row) for row in rows)
    for row in rows:
        _take_over_slot(state, tx, row, charges, waits=not is_over)
    return True


def _rows_of(state: State, tx: Transaction, process: UUID) -> list[ServerRow]:
    return [row for row in state.servers.seen(tx) if row.process == process]


def find_missing(state: State, tx: Transaction, op: ops.FindMissing) -> list[ops.Missing]:
    """Answers FindMissing."""
    del op
    found = {
        (row.process, row.identity)
        for row in state.servers.seen(tx)
        if row.missed_at is not None and row.identity is not None
    }
    return [ops.Missing(process=process, identity=identity) for process, identity in sorted(found)]


def judge(state: State, tx: Transaction, op: ops.Judge) -> bool:
    """Answers Judge."""
    rows = _rows_of(state, tx, op.process)
    if op.verdict is ops.Verdict.LIVES:
        before = state.now() - LIVES_AFTER
        cut = [row for row in rows if row.missed_at is not None and row.missed_at <= before]
        cut = [row for row in cut if _free(state, tx, row.slot)]
        for row in cut:
            _take_over_slot(state, tx, row, _broken_by(state, tx, row))
        return bool(cut)
    for row in rows:
        if not row.ended:
            state.servers.put(tx, row.slot, replace(row, ended=True))
    if rows:
        _take_over_process(state, tx, op.process)
    return bool(rows)


def _fell(state: State, row: ServerRow) -> bool:
    """Returns whether the database went down since an incarnation began."""
    return row.boot != state.boot or row.slot not in state.markers


def _rows_claimed(state: State, tx: Transaction, incarnation: int) -> list[ElementRow]:
    return [row for row in state.elements.seen(tx) if row.claimed_by == incarnation]


def _claims(state: State, tx: Transaction, incarnation: int) -> list[int]:
    return [row.seq for row in _rows_claimed(state, tx, incarnation)]


def _started_by(state: State, tx: Transaction, dead: list[ServerRow]) -> Charges:
    """Returns what the dead had started: one is charged, several are suspects (G7).

    If the database went down, nothing more is known.
    """
    started: list[int] = []
    held: Charges = {}
    survived = True
    unclear = False
    for row in dead:
        marker = state.markers.get(row.slot)
        claims = _claims(state, tx, row.incarnation)
        survived = survived and not _fell(state, row)
        batch = _batch_of(marker, _rows_claimed(state, tx, row.incarnation))
        unclear = unclear or bool(batch)
        started += batch or [seq for seq in claims if seq == marker]
        held |= _after_crash(state, tx, row.incarnation)
    if not survived:
        return held
    unclear = unclear or len(started) > 1
    return dict.fromkeys(started, Charge.SUSPECT if unclear else Charge.CHARGE)


def _after_crash(state: State, tx: Transaction, incarnation: int) -> Charges:
    """Returns the charges, after a crash of the database, for what an incarnation held."""
    return dict.fromkeys(_claims(state, tx, incarnation), Charge.FELL)


def _batch_of(marker: int | None, claimed: list[ElementRow]) -> list[int]:
    """Returns what could be in the batch that the marker names: what came back runs alone."""
    if marker is None or all(row.seq != -marker for row in claimed):
        return []
    return [row.seq for row in claimed if row.code is None or row.lane == Lane.SUSPECT]


def name_another(state: State, tx: Transaction, removed: ElementRow) -> None:
    """Lets the marker of a batch name another of it, if it names the one that is removed."""
    row = row_of(state, tx, removed.claimed_by)
    if row is not None and state.markers.get(row.slot) == -removed.seq:
        batch = _batch_of(-removed.seq, _rows_claimed(state, tx, row.incarnation))
        others = [seq for seq in batch if seq != removed.seq]
        state.markers[row.slot] = -min(others, default=removed.seq)


def _broken_by(state: State, tx: Transaction, row: ServerRow) -> Charges:
    """Returns what a live process had started when its connection broke."""
    if row.charges is not None:
        return dict.fromkeys(row.charges, Charge.ENVIRONMENT)
    marker = state.markers.get(row.slot)
    if marker == 0:
        return {}
    if marker is None or _fell(state, row):
        return _after_crash(state, tx, row.incarnation)
    claimed = _rows_claimed(state, tx, row.incarnation)
    started = [marker] if marker > 0 else _batch_of(marker, claimed)
    return dict.fromkeys(started, Charge.ENVIRONMENT)
