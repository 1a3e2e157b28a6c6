"""What becomes of elements: they end with their reply, come back charged or not, are killed."""

from __future__ import annotations

from proof.model import layout as at
from proof.model.layout import (
    ABORTS,
    BY,
    EFFECTS,
    EVIDENT,
    FAULTS,
    FLAGS,
    HELD,
    KILLED,
    LOCKED,
    OUTCOME,
    PLACE,
    QUEUED,
    REPLIES,
    REPLY,
    SHARE,
    SOFT,
    SUSPECT,
    WISH,
    WISHES,
    Draft,
    Kind,
    Moves,
    State,
    World,
    broken,
    move,
)

RELEASE, CHARGE, ENVIRONMENT, SUSPICION, TOGETHER = range(5)
"""What is held against an element that comes back: nothing; an abort; a fault of the environment;
it may have killed something, but nobody knows; the same of one that ran in a batch."""


def conclude(n: Draft, q: int, outcome: int) -> None:
    """End a request: out of its queue, its reply and its history in the same transaction."""
    n[q + PLACE], n[q + BY], n[q + OUTCOME] = at.ENDED, 0, outcome
    n[q + FLAGS] &= ~(SUSPECT | SOFT | LOCKED | EVIDENT) & 0xFF
    n[q + FAULTS] = n[q + SHARE] = 0
    if n[q + REPLIES] < 2:
        n[q + REPLIES] += 1
    n[q + REPLY] = at.KEPT_REPLY


def take_effect(n: Draft, q: int) -> None:
    """Commit what the handler of a request did."""
    if n[q + EFFECTS] < 2:
        n[q + EFFECTS] += 1


def durable(w: World, n: Draft) -> None:
    """Commit for the disk: what was claimed before is then durable too."""
    if w.setting.soft:
        for q in w.q:
            n[q + FLAGS] &= ~SOFT & 0xFF


def give_back(w: World, n: Draft, q: int, charge: int, *, share: int = 0) -> None:
    """Return a claimed element to its queue, or fail it, as the evidence says (G7).

    share: with how many suspects of its batch it may run; below 2 it runs alone.
    """
    flags = n[q + FLAGS]
    if charge == ENVIRONMENT:
        charge = _environment(w, n, q)
        flags = n[q + FLAGS]
    n[q + BY], n[q + PLACE] = 0, QUEUED
    n[q + FLAGS] = flags & ~(SOFT | LOCKED | EVIDENT) & 0xFF
    if charge != RELEASE:
        n[q + SHARE] = share if charge == TOGETHER and share > 1 else 0
    if charge in (SUSPICION, TOGETHER):
        n[q + FLAGS] |= SUSPECT
    if charge == CHARGE:
        if not flags & EVIDENT:
            broken(n, 7)
        n[q + ABORTS] += 1
        if n[q + ABORTS] >= at.LIMIT:
            conclude(n, q, at.FAILED)
            n[q + FLAGS] |= at.IN_ERROR_QUEUE
    durable(w, n)


def _environment(w: World, n: Draft, q: int) -> int:
    """Count a fault of the environment; return its consequence."""
    if not w.rules.environment_bound:
        return RELEASE
    is_alone = n[q + FLAGS] & SUSPECT and not n[q + SHARE]
    n[q + SHARE] = 0
    if n[q + FAULTS] < w.setting.retry_limit:
        n[q + FAULTS] += 1
        return RELEASE
    if is_alone:
        n[q + FLAGS] |= EVIDENT
        return CHARGE
    return SUSPICION


def wishes(w: World, s: State, out: Moves) -> None:
    """Add what an operator may ask for: a kill, a redrive."""
    if not s[WISHES]:
        return
    for q in w.q:
        place = s[q + PLACE]
        if place in (QUEUED, HELD):
            _kill(w, s, q, out)
        elif s[q + FLAGS] & at.IN_ERROR_QUEUE:
            _redrive(w, s, q, out)


def _kill(w: World, s: State, q: int, out: Moves) -> None:
    """Kill: the lock on the element's row decides; the reply is in the same transaction (G8)."""
    if s[q + FLAGS] & LOCKED and w.rules.kill_locks:
        return
    if w.setting.stateful and s[q + BY] >= at.GROUP_NUMBER and w.rules.state_kills:
        return
    n = move(s, out, ("a kill of {} is answered KILLED", q, 0), WISH)
    n[WISHES] -= 1
    conclude(n, q, at.CANCELLED)
    n[q + FLAGS] |= KILLED
    if not w.rules.kill_replies:
        n[q + REPLIES], n[q + REPLY] = 0, at.NO_REPLY
    durable(w, n)


def _redrive(w: World, s: State, q: int, out: Moves) -> None:
    """Redrive: a new request of its own identity, linked with the one that failed (G3)."""
    spare = next((x for x in w.q if w.kind[x] is Kind.SPARE and not s[x + PLACE]), None)
    if spare is None:
        return
    n = move(s, out, ("{} is redriven as {}", q, spare), WISH)
    n[WISHES] -= 1
    n[q + FLAGS] &= ~at.IN_ERROR_QUEUE & 0xFF
    target = spare if w.rules.new_identity else q
    n[target + PLACE], n[target + ABORTS] = QUEUED, 0
