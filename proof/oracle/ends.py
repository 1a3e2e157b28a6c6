"""How an element ends in the oracle: its reply, its history row, or its return to its queue.

Private to the oracle; the twin of `conclude.sql`, and of the part of `terms.sql` that it reads.
"""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.model.element import TOOK_EFFECT, Charge, Fate, Lane, RequestOutcome, Role
from proof.oracle.breaker import note_fault
from proof.oracle.reports import report
from proof.oracle.rows import (
    AttemptRow,
    ElementRow,
    Failure,
    HistoryRow,
    QueueRow,
    Transaction,
    kept_for_reply,
)
from proof.oracle.state import NONE, State, queue_of

if TYPE_CHECKING:
    from uuid import UUID

FAULTS_MAX = 1001
"""No more are counted: no queue leaves so many uncharged."""


def queue_for(state: State, tx: Transaction, element: ElementRow) -> QueueRow:
    """Returns the queue of a claimed element, on the terms of whoever has claimed it.

    Those of the one element end here.
    """
    queue = queue_of(state, tx, element.queue_id)
    terms = [
        row
        for row in state.terms.seen(tx)
        if (row.incarnation, row.queue_id) == (element.claimed_by, element.queue_id)
        and row.seq in {None, element.seq}
        and any(one.incarnation == row.incarnation for one in state.servers.seen(tx))
    ]
    if not terms:
        return queue
    one = max(terms, key=lambda row: row.seq or 0)
    if one.seq is not None:
        state.terms.put(tx, one.key, None)
    limit = one.abort_limit or queue.settings.abort_limit
    return replace(
        queue,
        settings=dataclasses.replace(queue.settings, abort_limit=limit),
        error_queue_id=one.error_queue_id or queue.error_queue_id,
    )


def conclude(
    state: State,
    tx: Transaction,
    element: ElementRow,
    outcome: RequestOutcome,
    *,
    reply: bytes | None = None,
    failure: Failure = NONE,
) -> None:
    """Writes the reply that an element owes, and its history row; the caller has removed it."""
    now = state.now()
    if element.reply_queue_id is not None:
        seq = state.elements.new_key()
        state.elements.put(
            tx,
            seq,
            ElementRow(
                seq=seq,
                eid=state.new_eid(),
                rid=element.rid,
                body=reply or b"",
                role=Role.REPLY,
                queue_id=element.reply_queue_id,
                lane=Lane.REPLY,
                priority=element.priority,
                enqueued_at=now,
                outcome=outcome,
                life=element.life,
                registrant_id=element.registrant_id,
                send_no=element.send_no,
                ack_rid=element.ack_rid,
                correlation_id=str(element.eid),
                properties=kept_for_reply(element),
                aborts=element.aborts,
                code=failure.code,
                error=failure.error,
            ),
        )
    _record_end(state, tx, element, outcome, reply=reply, failure=failure)
    report(state, tx, element, outcome, failure=failure)


def _record_end(
    state: State,
    tx: Transaction,
    element: ElementRow,
    outcome: RequestOutcome,
    *,
    reply: bytes | None,
    failure: Failure,
) -> None:
    """Writes the history row of an element that has ended."""
    kept = queue_of(state, tx, element.queue_id).settings.keep_body
    by_server = tx.began_at is not None and outcome in TOOK_EFFECT
    row = HistoryRow(
        element=element,
        outcome=outcome,
        finished_at=state.now(),
        code=failure.code,
        error=failure.error,
        kept=kept,
        reply=reply,
        started_at=tx.began_at if by_server else None,
        server=element.claimed_by if outcome in {*TOOK_EFFECT, RequestOutcome.FAILED} else None,
    )
    state.history.put(tx, state.history.new_key(), row)


def expire(state: State, tx: Transaction, element: ElementRow) -> None:
    """Ends an element whose time has run out: one expired reply."""
    state.elements.put(tx, element.seq, None)
    conclude(state, tx, element, RequestOutcome.EXPIRED, failure=Failure("expired", "expired"))


def _hold(
    state: State, tx: Transaction, element: ElementRow, failure: Failure, *, home: QueueRow
) -> None:
    """Holds an element in its own queue, as a request that owes its reply still."""
    held = replace(
        element,
        lane=Lane.HELD,
        claimed_by=None,
        together=None,
        not_before=None,
        code=failure.code,
        error=failure.error,
        queue_id=home.queue_id,
    )
    state.elements.put(tx, element.seq, held)


def fail(
    state: State, tx: Transaction, element: ElementRow, failure: Failure, *, home: QueueRow
) -> None:
    """Fails an element for good: to this queue's error queue, with its failure reply."""
    held = replace(
        element,
        role=Role.FAILED,
        lane=Lane.HELD,
        claimed_by=None,
        together=None,
        not_before=None,
        code=failure.code,
        error=failure.error,
        queue_id=home.error_queue_id or 0,
    )
    state.elements.put(tx, element.seq, held)
    conclude(state, tx, element, RequestOutcome.FAILED, failure=failure)


def _delay_ms(queue: QueueRow, times: int) -> float:
    settings = queue.settings
    return min(settings.backoff_max_ms, settings.backoff_ms * 2.0 ** min(times - 1, 20))


def _record_abort(
    state: State,
    tx: Transaction,
    element: ElementRow,
    charge: Charge,
    *,
    failure: Failure,
) -> None:
    server = next(
        (one for one in state.servers.seen(tx) if one.incarnation == element.claimed_by), None
    )
    row = AttemptRow(
        eid=element.eid,
        ended_at=state.now(),
        charge=charge,
        code=failure.code,
        error=failure.error,
        server=element.claimed_by,
        host=None if server is None else server.host,
        pid=None if server is None else server.pid,
        traceback=failure.traceback,
    )
    state.attempts.put(tx, state.attempts.new_key(), row)


def _attempts(state: State, tx: Transaction, eid: UUID) -> list[AttemptRow]:
    return [row for row in state.attempts.seen(tx) if row.eid == eid]


def _others_committed(state: State, tx: Transaction, element: ElementRow) -> bool:
    """Returns whether its server has finished others of its queue since its last abort."""
    attempts = _attempts(state, tx, element.eid)
    return bool(attempts) and any(
        row.outcome is RequestOutcome.DONE
        and row.server == element.claimed_by
        and row.element.queue_id == element.queue_id
        and row.finished_at > attempts[-1].ended_at
        for row in state.history.seen(tx)
    )


def _falls_in_a_row(state: State, tx: Transaction, eid: UUID) -> int:
    """Returns how often in a row an element was held when the database went down."""
    codes = [row.code for row in _attempts(state, tx, eid)]
    others = [at for at, code in enumerate(codes) if code != "database_fell"]
    return len(codes) - (others[-1] + 1 if others else 0)


def return_element(
    state: State,
    tx: Transaction,
    element: ElementRow,
    charge: Charge,
    *,
    failure: Failure,
    together: int | None = None,
) -> Fate:
    """Returns a claimed element to its queue, or fails it, charged as the evidence says (G7).

    together: of a suspect, with how many of its batch it may run at most; None: alone.
    """
    queue = queue_for(state, tx, element)
    was_suspect = element.lane == Lane.SUSPECT
    ran_alone = was_suspect and element.together is None
    faults, aborts, delay = element.faults, element.aborts, 0.0
    if charge is Charge.FELL:
        often = _falls_in_a_row(state, tx, element.eid) >= queue.settings.abort_limit
        charge = Charge.CHARGE if ran_alone and often else Charge.SUSPECT
    if charge in {Charge.ENVIRONMENT, Charge.RETRY}:
        counted = charge is Charge.RETRY or _others_committed(state, tx, element)
        charge = Charge.ENVIRONMENT
        note_fault(state, tx, element, after_s=failure.after_s)
        faults = min(faults + counted, FAULTS_MAX)
        attempts = _attempts(state, tx, element.eid)
        delay = _delay_ms(queue, 1 + sum(row.charge is charge for row in attempts))
        if counted and faults > queue.settings.retry_limit:
            charge = Charge.CHARGE if ran_alone else Charge.SUSPECT
    if charge is not Charge.RELEASE:
        _record_abort(state, tx, element, charge, failure=failure)
    if charge in {Charge.CHARGE, Charge.REJECT}:
        aborts += 1
        if charge is Charge.REJECT or aborts >= queue.settings.abort_limit:
            so_far = replace(element, aborts=aborts, faults=faults)
            holds = charge is Charge.CHARGE and queue.settings.on_failure == "hold"
            (_hold if holds else fail)(state, tx, so_far, failure, home=queue)
            return Fate.HELD if holds else Fate.FAILED
        delay = _delay_ms(queue, aborts)
    delay = delay if failure.after_s is None else 1000 * failure.after_s
    alone = was_suspect or charge is Charge.SUSPECT
    back = replace(
        element,
        claimed_by=None,
        aborts=aborts,
        faults=faults,
        together={Charge.RELEASE: element.together, Charge.SUSPECT: together}.get(charge),
        lane=Lane.SUSPECT if alone else Lane.DUE,
        not_before=state.now() + timedelta(milliseconds=delay),
        code=element.code if failure.code is None else failure.code,
        error=element.error if failure.error is None else failure.error,
    )
    state.elements.put(tx, element.seq, back)
    return Fate.RETURNED
