"""What must be true in the end of elements that no session sent: datagrams, and what was redriven.

Used by the simulator beside `onceq.history`, which judges what clients saw. It reads the
committed state of the oracle, and what the schedule knows for certain (`Ledger`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.history import Violation
from onceq.model.code_pages import JSON
from proof.oracle.state import SERVED_ROLES
from proof.oracle.takeover import VERDICT_WITHIN
from proof.simulator.callers import SCRATCH
from proof.simulator.participants import EXPECTS, World, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from proof.oracle import Oracle

ENDED = ("done", "dequeued", "cancelled", "expired")


@dataclass(slots=True)
class Account:
    """Where an element is. outcomes: of its history rows, in order. live: roles of its rows."""

    kind: str = ""
    outcomes: list[str] = field(default_factory=list[str])
    live: list[str] = field(default_factory=list[str])
    effects: Counter[str] = field(default_factory=Counter[str])


def accounts(oracle: Oracle) -> dict[UUID, Account]:
    """Returns the account of every element that no session sent, except scratch ones."""
    state = oracle.state
    apart = {row.queue_id for row in state.queues.rows.values() if row.name == SCRATCH.name}
    found: defaultdict[UUID, Account] = defaultdict(Account)
    for ended in state.history.rows.values():
        row = ended.element
        if row.registrant_id is None and row.queue_id not in apart:
            found[row.eid].kind = kind_of(row.body)
            found[row.eid].outcomes.append(ended.outcome.value)
    for row in state.elements.rows.values():
        if row.registrant_id is None and row.queue_id not in apart:
            found[row.eid].kind = kind_of(row.body)
            found[row.eid].live.append(row.role.value)
    for effect in oracle.effects():
        if effect.eid in found:
            found[effect.eid].effects[effect.key] += 1
    return dict(found)


def is_drained(oracle: Oracle) -> bool:
    """Returns whether nothing is left to be served, as committed."""
    queues = oracle.state.queues.rows
    return not any(
        row.role in SERVED_ROLES and queues[row.queue_id].name != SCRATCH.name
        for row in oracle.state.elements.rows.values()
    )


def next_due_s(oracle: Oracle) -> float | None:
    """Returns in how many seconds something becomes due that only time makes so; None: nothing."""
    state = oracle.state
    now = state.now()
    dues = [
        due
        for row in state.elements.rows.values()
        if row.role in SERVED_ROLES
        for due in (row.not_before, row.expires_at)
    ]
    dues += [
        row.missed_at + VERDICT_WITHIN
        for row in state.servers.rows.values()
        if row.missed_at is not None
    ]
    return min(
        ((due - now).total_seconds() for due in dues if due is not None and due > now), default=None
    )


def check_accounts(world: World, oracle: Oracle) -> Iterator[Violation]:
    """Yields what is broken."""
    yield from _alerts(oracle)
    found = accounts(oracle)
    ledger = world.ledger
    strangers = [eid for eid in found if eid not in ledger.enqueued]
    if len(strangers) > ledger.doubts:
        text = f"{len(strangers)} elements that nobody enqueued, {ledger.doubts} are in doubt"
        yield Violation("G4", str(strangers[0]), text)
    for eid in ledger.void & found.keys():
        yield Violation("G2", str(eid), "was enqueued by a transaction that was rolled back")
    for eid, at in ledger.enqueued.items():
        may_be_lost = eid in ledger.volatile and ledger.crashed_at > at
        if eid not in found and not may_be_lost:
            yield Violation("G4", str(eid), "was enqueued and is lost")
    for eid, account in found.items():
        crashed = eid in ledger.volatile and ledger.crashed_at > 0
        yield from _one(eid, account, 9 if crashed else ledger.redriven.get(eid, 0))
        if eid in ledger.taken and account.outcomes[-1:] != ["dequeued"]:
            text = f"was dequeued and is {account.outcomes} {account.live}"
            yield Violation("G2", str(eid), text)


def _alerts(oracle: Oracle) -> Iterator[Violation]:
    """Yields the requests of which somebody was alerted more than once."""
    rows = [*oracle.state.elements.rows.values()]
    rows += [ended.element for ended in oracle.state.history.rows.values()]
    apart = {row.queue_id for row in oracle.state.queues.rows.values() if row.name == SCRATCH.name}
    alerts = Counter(
        row.correlation_id for row in rows if row.content_type == JSON and row.queue_id in apart
    )
    for eid, times in alerts.items():
        if eid is not None and times > 1:
            yield Violation("G2", eid, f"{times} alerts of one late request")


def _one(eid: UUID, account: Account, redriven: int) -> Iterator[Violation]:
    who, outcomes, live = str(eid), account.outcomes, account.live
    ends = [one for one in outcomes if one in ENDED]
    if any(role in SERVED_ROLES for role in live):
        yield Violation("G12", who, "never finished")
    if len(ends) > 1 or len(live) > 1 or (ends and live):
        yield Violation("G4", who, f"in several places: {outcomes} {live}")
    failures = outcomes.count("failed")
    if failures > 1 + redriven or (failures > redriven and not ends and live != ["failed"]):
        yield Violation("G3", who, f"failed {failures} times, redriven {redriven} times: {live}")
    expected = EXPECTS[account.kind]
    if expected == "done" and failures:
        yield Violation("G7", who, f"an innocent was convicted: {account.kind}")
    if expected == "failed" and "done" in outcomes:
        yield Violation("G7", who, f"was to fail and is done: {account.kind}")
    if account.effects["taken"] > (ends == ["dequeued"]):
        yield Violation(
            "G2", who, f"its taker's effects are there {account.effects['taken']} times"
        )
