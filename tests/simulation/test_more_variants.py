"""Broken variants of what callers, windows and files use: the simulator finds each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from onceq.files import durable
from onceq.model import ops
from onceq.model.element import Charge, Fate, Lane, Role
from proof.oracle import clients, executions, queues, registrations, servers
from proof.oracle.rows import Failure
from proof.oracle.state import State
from proof.simulator.cast import Variant
from proof.simulator.disk import SimulatedDisk
from proof.simulator.simulator import main, shrunk, simulate

if TYPE_CHECKING:
    from uuid import UUID

    from onceq.model.element import Element
    from proof.oracle.rows import Transaction

SEEDS_MAX = 1000
SEEDS_OF_A_DISK = 100


def found_within(variant: Variant, seeds: int = SEEDS_MAX) -> set[str]:
    for seed in range(seeds):
        violations = simulate(seed, variant).violations
        if violations:
            return {violation.guarantee for violation in violations}
    return set()


def redrive_in_place(state: State, tx: Transaction, op: ops.Redrive) -> tuple[UUID, str] | None:
    """The old request runs again, although its failure reply was sent (G3)."""
    for row in state.elements.seen(tx):
        if row.eid == op.eid and row.role == "failed":
            home = next(
                one.element.queue_id for one in state.history.seen(tx) if one.element.eid == op.eid
            )
            back = replace(row, role=Role.REQUEST, lane=Lane.DUE, aborts=0, queue_id=home)
            state.elements.put(tx, row.seq, back)
            return row.eid, row.rid
    return None


def redrive_a_copy(state: State, tx: Transaction, op: ops.Redrive) -> tuple[UUID, str] | None:
    """What was held stays held, and may be redriven again."""
    held = [row for row in state.elements.seen(tx) if row.eid == op.eid and row.role == "failed"]
    answer = queues.redrive_request(state, tx, op)
    for row in held:
        state.elements.put(tx, row.seq, row)
    return answer


def take_at_once(state: State, tx: Transaction, op: ops.Take) -> int:
    """It leaves the queue before the caller commits."""
    at_once = at_once_of(tx)
    executions.fence(state, at_once, op.seq, op.incarnation)
    servers.mark(state, tx, op.incarnation, op.seq)
    state.elements.put(at_once, op.seq, None)
    return tx.xid


def at_once_of(tx: Transaction) -> Transaction:
    return type(tx)(tx.backend, tx.xid, is_open=False)


def abort_what_runs(state: State, tx: Transaction, op: ops.AbortTaken) -> Fate:
    """It does not ask whether the transaction that took the element has ended."""
    failure = Failure("rolled_back", "it was not asked")
    held = (op.seq, op.incarnation)
    return executions.abort(state, tx, held, charge=Charge.REJECT, failure=failure)


def register_without_lock(state: State, tx: Transaction, op: ops.Register) -> list[ops.Registered]:
    """It does not wait for ghosts of the former life (finding 1)."""
    locks, state.locks = state.locks, {}
    try:
        return registrations.register(state, tx, op)
    finally:
        state.locks = locks


def tag_of_any_epoch(state: State, tx: Transaction, op: ops.EnqueueTagged) -> UUID:
    row = state.registrants.get(tx, op.who.registrant_id)
    assert row is not None
    who = replace(op.who, epoch=row.epoch)
    return registrations.enqueue_tagged(state, tx, replace(op, who=who))


def untagged(state: State, tx: Transaction, op: ops.EnqueueTagged) -> UUID:
    """The element is enqueued, and its tag is forgotten."""
    return queues.enqueue(state, tx, ops.Enqueue(queue=op.queue, body=op.body))


def acknowledge_all(state: State, tx: Transaction, op: ops.Acknowledge) -> int:
    """It frees replies too that the client has not seen."""
    who = [row for row in state.elements.seen(tx) if row.registrant_id == op.who.registrant_id]
    for row in who:
        if row.role == "reply" and row.rid not in op.rids:
            state.elements.put(tx, row.seq, None)
    return clients.acknowledge(state, tx, op)


def send_many_in_parts(state: State, tx: Transaction, op: ops.SendMany) -> list[ops.Sent]:
    """Of many, the last is lost."""
    sent = clients.send_many(state, tx, op)
    if len(sent) > 1 and sent[-1].state == "new":
        state.elements.put(tx, state.elements.last, None)
    return sent


def destroy_what_is_there(state: State, tx: Transaction, op: ops.DestroyQueue) -> bool:
    for row in state.elements.seen(tx):
        if state.queues.rows[row.queue_id].name == op.queue:
            state.elements.put(tx, row.seq, None)
    return queues.destroy_queue(state, tx, op)


def dequeue_a_copy(state: State, tx: Transaction, op: ops.Dequeue) -> Element | None:
    """What was dequeued stays."""
    before = {row.eid: row for row in state.elements.seen(tx)}
    found = registrations.dequeue(state, tx, op)
    if found is not None:
        row = before[found.eid]
        state.elements.put(tx, row.seq, replace(row, claimed_by=None))
    return found


ANSWERS: dict[str, tuple[dict[type[Any], Any], tuple[str, ...]]] = {
    "redriven in place": ({ops.Redrive: redrive_in_place}, ("operator",)),
    "redriven and held": ({ops.Redrive: redrive_a_copy}, ("operator",)),
    "taken before the commit": ({ops.Take: take_at_once}, ("taker", "producer")),
    "aborted while it runs": ({ops.AbortTaken: abort_what_runs}, ("taker", "producer")),
    "register does not wait for ghosts": ({ops.Register: register_without_lock}, ("tagger",)),
    "epoch of a tag not checked": ({ops.EnqueueTagged: tag_of_any_epoch}, ("tagger",)),
    "tag forgotten": ({ops.EnqueueTagged: untagged}, ("tagger",)),
    "all acknowledged": ({ops.Acknowledge: acknowledge_all}, ("windowed",)),
    "one of many lost": ({ops.SendMany: send_many_in_parts}, ("shop",)),
    "destroyed with what is in it": ({ops.DestroyQueue: destroy_what_is_there}, ("operator",)),
    "dequeued and still there": ({ops.Dequeue: dequeue_a_copy}, ("tagger", "producer")),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_broken_queue_manager_is_found(name: str) -> None:
    answers, extras = ANSWERS[name]
    assert found_within(Variant(answers=answers, extras=extras))


SHOP = ("shop",)


class ForgetfulDisk(SimulatedDisk):
    """A disk on which no byte is made to last."""

    def _sync(self, fd: int) -> None:
        del fd


class NamelessDisk(SimulatedDisk):
    """A disk on which no name is made to last."""

    def _sync_directory(self, directory: str) -> None:
        del directory


@pytest.mark.parametrize("disk", [ForgetfulDisk, NamelessDisk])
def test_a_disk_that_does_not_keep_is_found(disk: type[SimulatedDisk]) -> None:
    variant = Variant(disk=disk, extras=SHOP)
    found = (simulate(seed, variant).violations for seed in range(SEEDS_OF_A_DISK))
    assert any(one.guarantee == "G5" for violations in found for one in violations)


def acknowledge_first(file: durable.DurableFile, data: bytes) -> None:
    """What was written is not made to last before it is acknowledged."""
    file._disk.write(file._fd, memoryview(data), file.length)
    file.length += len(data)
    file._sha256.update(data)


def test_a_file_that_is_not_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable.DurableFile, "append", acknowledge_first)
    assert found_within(Variant(extras=SHOP))


@pytest.mark.parametrize("extras", sorted({extras for _, extras in ANSWERS.values()} | {SHOP}))
def test_what_ships_is_not_found(extras: tuple[str, ...]) -> None:
    for seed in range(40):
        assert simulate(seed, Variant(extras=extras)).violations == []


def test_a_failing_schedule_is_shrunk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(durable.DurableFile, "append", acknowledge_first)
    variant = Variant(extras=SHOP)
    seed = next(seed for seed in range(SEEDS_MAX) if len(simulate(seed, variant).faults) > 2)
    whole = simulate(seed, variant)
    small = shrunk(seed, variant)
    assert len(small.faults) <= len(whole.faults)
    assert bool(small.violations) == bool(whole.violations)
    assert main(["--seed", "3", "--shrink"]) in {0, 1}
    assert "1 schedules" in capsys.readouterr().out
