"""The oracle's answers about scans. Private to the oracle; the twin of `scan.sql`."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from onceq.errors import IllegalState
from onceq.model.element import Lane
from onceq.model.queue import QueueKind
from onceq.model.scan import OpenScan, ScanElements, ScanKey, ScanKeys, Scanned, ScanOpened
from proof.oracle.lookups import state_of
from proof.oracle.state import State, find_queue, to_element

if TYPE_CHECKING:
    from proof.oracle.rows import ElementRow, Transaction

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def open_scan(state: State, tx: Transaction, op: OpenScan) -> ScanOpened:
    """Answers OpenScan."""
    queue = find_queue(state, tx, op.queue)
    if op.locked and queue.kind is QueueKind.REPLY:
        raise IllegalState(f"queue {op.queue!r} is of the replies to a client")
    return ScanOpened(queue_id=queue.queue_id, kind=queue.kind, last=state.elements.last)


def scan_keys(state: State, tx: Transaction, op: ScanKeys) -> list[ScanKey]:
    """Answers ScanKeys."""
    life = state.current_life(tx)
    keys = sorted(
        (
            ScanKey(seq=row.seq, lane=row.lane, turn=_turn(row), body_bytes=len(row.body))
            for row in state.elements.seen(tx)
            if row.queue_id == op.queue_id and row.seq <= op.last and row.lane <= Lane.HELD
            if row.life is None or row.life >= life
        ),
        key=_place,
    )
    keys = [one for one in keys if _place(one) > (op.lane, op.turn)]
    if len(keys) <= op.n:
        return keys
    return [one for one in keys if _place(one) <= _place(keys[op.n - 1])]


def scan_elements(state: State, tx: Transaction, op: ScanElements) -> list[Scanned]:
    """Answers ScanElements."""
    found: list[Scanned] = []
    for seq in op.seqs:
        row = state.elements.get(tx, seq)
        if row is None or row.queue_id != op.queue_id or row.lane > Lane.HELD:
            continue
        if op.locked:
            if row.claimed_by is not None or state.elements.is_locked(tx, seq):
                continue
            state.elements.put(tx, seq, row)  # it is locked so
        element = to_element(row)
        known = {one.name: getattr(element, one.name) for one in fields(element)}
        found.append(Scanned(**known, state=state_of(state, row)))
    return found


def _turn(row: ElementRow) -> int:
    """Returns the place of an element in its lane, as `turn` in base.sql."""
    if row.lane in {Lane.DUE, Lane.SUSPECT} and row.not_before is not None:
        return int((row.not_before - EPOCH).total_seconds() * 1_000_000)
    return row.seq


def _place(key: ScanKey) -> tuple[int, int]:
    return key.lane, key.turn
