"""Deliberately broken variants: the simulator finds each of them, within so many seeds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from onceq.errors import OnceqError
from onceq.model import ops
from onceq.model.element import Charge, Fate, KillAnswer, RequestOutcome
from onceq.server.program import serve
from proof.oracle import clients, executions, queues, takeover
from proof.oracle.ends import conclude
from proof.oracle.rows import ElementRow, ServerRow, Transaction
from proof.oracle.state import (
    State,
)
from proof.simulator.cast import Variant
from proof.simulator.simulator import simulate

if TYPE_CHECKING:
    from onceq.model.element import Element
    from onceq.server.program import ServerSession

SEEDS_MAX = 1500


NOTHING_CLAIMED = ops.Finished(following=[])


def finish_without_fence(state: State, tx: Transaction, op: ops.Finish) -> ops.Finished:
    for seq, reply in zip(op.seqs, op.replies, strict=True):
        row = state.elements.get(tx, seq)
        if row is not None and row.role != "failed":
            state.elements.put(tx, seq, None)
            conclude(state, tx, row, RequestOutcome.DONE, reply=reply)
    return NOTHING_CLAIMED


def reply_outside_the_transaction(state: State, tx: Transaction, op: ops.Finish) -> ops.Finished:
    at_once = Transaction(tx.backend, tx.xid, is_open=False)
    for seq, reply in zip(op.seqs, op.replies, strict=True):
        row = executions.fence(state, tx, seq, op.incarnation)
        conclude(state, at_once, row, RequestOutcome.DONE, reply=reply)
        state.elements.put(tx, seq, None)
    return NOTHING_CLAIMED


def finish_without_history(state: State, tx: Transaction, op: ops.Finish) -> ops.Finished:
    for seq in op.seqs:
        executions.fence(state, tx, seq, op.incarnation)
        state.elements.put(tx, seq, None)
    return NOTHING_CLAIMED


def finish_what_is_left(state: State, tx: Transaction, op: ops.Finish) -> ops.Finished:
    """What a batch holds no longer is tolerated."""
    rows = [state.elements.get(tx, seq) for seq in op.seqs]
    left = [
        (seq, reply)
        for seq, reply, row in zip(op.seqs, op.replies, rows, strict=True)
        if len(rows) == 1 or (row is not None and row.claimed_by == op.incarnation)
    ]
    seqs, replies = [seq for seq, _ in left], [reply for _, reply in left]
    return executions.finish(state, tx, replace(op, seqs=seqs, replies=replies))


def abort_inside_the_transaction(state: State, tx: Transaction, op: ops.AbortElement) -> Fate:
    """The count is undone with what was aborted (finding 4)."""
    charge = Charge.RELEASE if op.charge is Charge.CHARGE else op.charge
    return executions.abort_element(state, tx, replace(op, charge=charge))


def never_suspicious(state: State, tx: Transaction, op: ops.AbortElement) -> Fate:
    """Every fault of the environment is charged."""
    charge = Charge.CHARGE if op.charge is Charge.RETRY else op.charge
    return executions.abort_element(state, tx, replace(op, charge=charge))


def connect_without_epoch(state: State, tx: Transaction, op: ops.Connect) -> ops.Connection:
    found = clients.connect(state, tx, op)
    row = state.registrants.get(tx, found.registrant_id)
    assert row is not None
    epoch = max(1, row.epoch - 1)
    state.registrants.put(tx, row.registrant_id, replace(row, epoch=epoch))
    return dataclasses.replace(found, epoch=epoch)


def connect_without_lock(state: State, tx: Transaction, op: ops.Connect) -> ops.Connection:
    """It does not wait for ghosts of the former life (finding 1)."""
    locks, state.locks = state.locks, {}
    try:
        return clients.connect(state, tx, op)
    finally:
        state.locks = locks


def kill_without_reply(state: State, tx: Transaction, op: ops.Kill) -> KillAnswer:
    """A recovered client waits for ever (finding 2)."""
    for row in state.elements.seen(tx):
        if row.eid == op.eid and row.role == "request":
            state.elements.put(tx, row.seq, None)
            conclude(state, tx, replace(row, reply_queue_id=None), RequestOutcome.CANCELLED)
            return KillAnswer.KILLED
    return queues.kill(state, tx, op)


def kill_row_only(state: State, tx: Transaction, op: ops.Kill) -> KillAnswer:
    """It says KILLED and leaves the element to whoever runs it (finding 8)."""
    answer = KillAnswer.NOT_FOUND
    if any(row.eid == op.eid and row.role == "request" for row in state.elements.seen(tx)):
        answer = KillAnswer.KILLED
    return answer


def disconnect_without_tombstone(state: State, tx: Transaction, op: ops.Disconnect) -> bool:
    """The next connect looks new, and rid 1 is sent again (finding 3)."""
    clients.disconnect(state, tx, op)
    row = state.registrants.get(tx, op.who.registrant_id)
    assert row is not None
    state.registrants.put(tx, row.registrant_id, replace(row, state="new"))
    return True


def receive_without_copy(state: State, tx: Transaction, op: ops.Receive) -> list[Element]:
    found = clients.receive(state, tx, op)
    for one in found:
        state.elements.put(tx, one.seq, None)
    return found


def receive_without_checkpoint(state: State, tx: Transaction, op: ops.Receive) -> list[Element]:
    return clients.receive(state, tx, replace(op, ckpt=None))


def send_of_any_epoch(state: State, tx: Transaction, op: ops.Send) -> ops.Sent:
    row = state.registrants.get(tx, op.who.registrant_id)
    assert row is not None
    return clients.send(state, tx, replace(op, who=replace(op.who, epoch=row.epoch)))


def receive_of_another(state: State, tx: Transaction, op: ops.Receive) -> list[Element]:
    found = clients.receive(state, tx, op)
    replies = [row for row in state.elements.seen(tx) if row.role == "reply"]
    return [dataclasses.replace(one, body=replies[0].body) for one in found]


def asynchronous_send(state: State, tx: Transaction, op: ops.Send) -> ops.Sent:
    """It answers before its commit is durable, and a later send finds nothing of it."""
    sent = clients.send(state, tx, op)
    last = state.elements.last
    if op.send_no > 1 and sent.state == "new" and tx.xid % 3 == 0:
        state.elements.put(tx, last, None)
    return sent


def commit_before_finish(session: ServerSession) -> ops.Program[None]:
    """The handler's effects are committed, and the request is removed afterwards."""
    program = serve(session)
    op: Any = next(program)
    begun: ops.Begin | None = None
    while True:
        if isinstance(op, ops.Begin):
            begun = op
        if isinstance(op, ops.Finish) and begun is not None:
            yield ops.Commit()
            yield begun
        try:
            answer = yield op
        except OnceqError as error:
            op = program.throw(error)
        else:
            try:
                op = program.send(answer)
            except StopIteration:
                return


ANSWERS: dict[str, dict[type[Any], Any]] = {
    "no fence": {ops.Finish: finish_without_fence},
    "reply outside the transaction": {ops.Finish: reply_outside_the_transaction},
    "no history, no reply": {ops.Finish: finish_without_history},
    "no fence in a batch": {ops.Finish: finish_what_is_left},
    "abort count in the transaction": {ops.AbortElement: abort_inside_the_transaction},
    "environment charged": {ops.AbortElement: never_suspicious},
    "no new epoch": {ops.Connect: connect_without_epoch},
    "connect does not wait for ghosts": {ops.Connect: connect_without_lock},
    "kill without reply": {ops.Kill: kill_without_reply},
    "kill row only": {ops.Kill: kill_row_only},
    "no tombstone": {ops.Disconnect: disconnect_without_tombstone},
    "no copy for rereceive": {ops.Receive: receive_without_copy},
    "checkpoint forgotten": {ops.Receive: receive_without_checkpoint},
    "epoch not checked": {ops.Send: send_of_any_epoch},
    "another's reply": {ops.Receive: receive_of_another},
    "acknowledged, not durable": {ops.Send: asynchronous_send},
}


def found_within(variant: Variant, seeds: int) -> set[str]:
    for seed in range(seeds):
        violations = simulate(seed, variant).violations
        if violations:
            return {violation.guarantee for violation in violations}
    return set()


@pytest.mark.parametrize("name", ANSWERS)
def test_a_broken_queue_manager_is_found(name: str) -> None:
    assert found_within(Variant(answers=ANSWERS[name]), SEEDS_MAX)


def test_a_broken_server_program_is_found() -> None:
    assert found_within(Variant(serve=commit_before_finish), SEEDS_MAX) & {"G2", "G3", "G8"}


def batch_not_undone(session: ServerSession) -> ops.Program[None]:
    """What a batch had done when one of it failed stays in the transaction, and is done again."""
    program = serve(session)
    op: Any = next(program)
    is_batch = False
    while True:
        if isinstance(op, ops.Begin):
            is_batch = op.seq < 0
        if isinstance(op, ops.Rollback) and is_batch:
            yield ops.Commit()
        try:
            answer = yield op
        except OnceqError as error:
            op = program.throw(error)
        else:
            try:
                op = program.send(answer)
            except StopIteration:
                return


def test_a_batch_that_is_not_undone_is_found() -> None:
    assert found_within(Variant(serve=batch_not_undone), SEEDS_MAX) & {"G2", "G3", "G8"}


def charge_all_claimed(state: State, tx: Transaction, dead: list[ServerRow]) -> takeover.Charges:
    held = [row.incarnation for row in dead]
    claims = [row.seq for row in state.elements.seen(tx) if row.claimed_by in held]
    return dict.fromkeys(claims, Charge.CHARGE)


def test_charging_whatever_a_dead_server_had_claimed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeover, "_started_by", charge_all_claimed)
    assert "G7" in found_within(Variant(), SEEDS_MAX)


def forget_the_row(
    state: State,
    tx: Transaction,
    row: ServerRow,
    charges: takeover.Charges,
    *,
    waits: bool = False,
) -> None:
    if waits and charges:
        TAKE_OVER_SLOT(state, tx, row, charges, waits=True)
        return
    takeover.revoke(state, tx, row.incarnation, charges)
    state.servers.put(tx, row.slot, None)


def test_forgetting_a_broken_session_while_its_ghost_lives_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeover, "_take_over_slot", forget_the_row)
    assert "G12" in found_within(Variant(), SEEDS_MAX)


def charge_all_of_a_batch(state: State, tx: Transaction, dead: list[ServerRow]) -> takeover.Charges:
    """A batch of which nobody knows more is charged as a whole."""
    charges = STARTED_BY(state, tx, dead)
    unclear = any((state.markers.get(row.slot) or 0) < 0 for row in dead)
    return dict.fromkeys(charges, Charge.CHARGE) if unclear else charges


def release_all_of_a_batch(marker: int | None, claimed: list[ElementRow]) -> list[int]:
    """A batch of which nobody knows more is innocent, for ever."""
    del marker, claimed
    return []


def all_together(
    state: State, tx: Transaction, incarnation: int, charges: takeover.Charges
) -> int | None:
    """Suspects of a batch run with as many as before, for ever."""
    held = takeover._claims(state, tx, incarnation)
    suspects = [seq for seq in held if charges.get(seq) is Charge.SUSPECT]
    return len(suspects) if len(suspects) > 1 else None


STARTED_BY = takeover._started_by
TAKE_OVER_SLOT = takeover._take_over_slot


def test_charging_all_of_a_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_started_by", charge_all_of_a_batch)
    assert "G7" in found_within(Variant(), SEEDS_MAX)


def test_suspects_of_a_batch_that_are_never_halved_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeover, "_half_of", all_together)
    assert {"G12", "G7"} & found_within(Variant(), SEEDS_MAX)


def test_releasing_all_of_a_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_batch_of", release_all_of_a_batch)
    assert "G12" in found_within(Variant(), SEEDS_MAX)
