"""A Spark server: claim group, stage, commit with a fence, replay, zombies, halves, void batches.

The driver's batch is in two records, Spark's checkpoint and the database. A driver that comes back
runs the batch of its checkpoint again. A commit that nobody listens to may yet happen (a zombie).
"""

from __future__ import annotations

from proof.model import layout as at
from proof.model.elements import (
    CHARGE,
    RELEASE,
    SUSPICION,
    conclude,
    durable,
    give_back,
    take_effect,
)
from proof.model.layout import (
    BEGUN,
    BY,
    CK_GROUP,
    CK_OPEN,
    CK_SAME,
    EVIDENT,
    FLAGS,
    G_ALONE,
    G_BEFORE_CRASH,
    G_CLAIMED,
    G_NONE,
    G_WITH_OTHERS,
    GROUP_NUMBER,
    GROUPS,
    HAS,
    HELD,
    LEFT,
    LOCKED,
    OTHER,
    PLACE,
    QUEUED,
    SENT,
    SPARK_GROUPS,
    SUSPECT,
    WISH,
    Z_COMMITTED,
    Z_COMMITTING,
    Z_GROUP,
    Z_GROUPED,
    Z_IDLE,
    Z_KEPT,
    Z_LOST,
    Z_MASK,
    Z_OFF,
    Z_PHASE,
    Z_RUNNING,
    Z_STAGED,
    Z_STATE,
    ZG_GROUP,
    ZG_MASK,
    ZG_OLD,
    ZG_STAGE,
    Draft,
    Kind,
    Moves,
    State,
    World,
    broken,
    fault,
    move,
)


def spark(w: World, s: State, out: Moves) -> None:
    """Add what the driver, a zombie commit, and those who take over from it may do next."""
    phase = s[w.z + Z_PHASE]
    _DRIVER[phase](w, s, out)
    if s[w.z + ZG_STAGE]:
        _zombie(w, s, out)
    if s[LEFT] and "spark" in w.setting.may and phase != Z_OFF:
        _die(w, fault(s, out, ("*** the driver dies", 0, 0)))
    if s[LEFT] and "checkpoint" in w.setting.may and phase == Z_OFF and s[w.z + HAS]:
        n = fault(s, out, ("*** the checkpoint is deleted", 0, 0))
        n[w.z + CK_OPEN] = n[w.z + CK_GROUP] = n[w.z + CK_SAME] = 0
        n[w.z + OTHER] = 1
    if w.e and phase == Z_OFF and s[w.z + ZG_STAGE] != BEGUN:
        _native_takes_over(w, s, out)


def _members(w: World, s: State | Draft, j: int) -> list[int]:
    """Return the requests that a group still claims, as bits."""
    return [bit for bit, q in w.bits if s[q + PLACE] == HELD and s[q + BY] == GROUP_NUMBER + j]


def _gather(w: World, n: Draft, mask: int) -> None:
    """Make a claim group of these, of a number that nothing names any more."""
    z = w.z
    named = {n[z + ZG_GROUP]} if n[z + ZG_STAGE] else set[int]()
    if n[z + CK_OPEN]:
        named.add(n[z + CK_GROUP])
    free = (j for j in range(SPARK_GROUPS) if n[z + GROUPS + j] == G_NONE and j not in named)
    j = next(free)
    n[z + GROUPS + j] = G_CLAIMED
    for bit, q in w.bits:
        if mask & bit:
            n[q + PLACE], n[q + BY] = HELD, GROUP_NUMBER + j
    durable(w, n)


# --- the driver ----------------------------------------------------------------------------------


def _off(w: World, s: State, out: Moves) -> None:
    """Open: wait for the anchor, end the epoch before, and judge what that life left behind."""
    z = w.z
    if s[z + ZG_STAGE] == BEGUN and w.rules.spark_anchor:
        return
    n = move(s, out, ("a driver opens the server", 0, 0))
    n[z + Z_PHASE] = Z_IDLE
    n[z + ZG_OLD] = int(n[z + ZG_STAGE] != 0)
    for j in range(SPARK_GROUPS):
        _examine(w, n, j)


def _examine(w: World, n: Draft, j: int) -> None:
    """Judge a group that a former life left: halve what ran together, charge what ran alone."""
    g = w.z + GROUPS + j
    status, members = n[g], _members(w, n, j)
    if status != G_NONE and not members:
        n[g] = G_NONE
    elif status in (G_WITH_OTHERS, G_ALONE):
        n[g] = G_CLAIMED
        if not w.rules.halves or (status == G_ALONE and w.rules.alone_charged):
            for bit in members:
                give_back(w, n, w.at[bit], CHARGE)
                _suspicion(w, n, bit)
            n[g] = G_NONE
        elif len(members) > 1:
            _gather(w, n, sum(members[(len(members) + 1) // 2 :]))
    elif status == G_BEFORE_CRASH:
        n[g] = G_CLAIMED


def _suspicion(w: World, n: Draft, bit: int) -> None:
    if n[w.at[bit] + PLACE] == QUEUED:
        n[w.at[bit] + FLAGS] |= SUSPECT


def _idle(w: World, s: State, out: Moves) -> None:
    """Log the offset of the next batch: the checkpoint's, an open group, or a group claimed now."""
    z = w.z
    if s[z + CK_OPEN]:
        n = move(s, out, ("the driver runs the batch of its checkpoint", 0, 0))
        n[z + Z_PHASE], n[z + Z_GROUP] = Z_GROUPED, n[z + CK_GROUP]
        return
    for j in range(SPARK_GROUPS):
        if s[z + GROUPS + j] != G_NONE:
            n = move(s, out, ("the driver logs a batch of an open group", 0, 0))
            n[z + CK_OPEN], n[z + CK_GROUP], n[z + CK_SAME] = 1, j, 0
            return
    ready = [bit for bit, q in w.bits if s[q + PLACE] == QUEUED and not s[q + FLAGS] & LOCKED]
    sound = [bit for bit in ready if not s[w.at[bit] + FLAGS] & SUSPECT]
    chosen = sum(sound) or sum(ready[:1])
    if chosen:
        _gather(w, move(s, out, ("the driver claims a group", 0, 0)), chosen)


def _grouped(w: World, s: State, out: Moves) -> None:
    """Note that the group begins to run, and read what it still holds: perhaps nothing."""
    z = w.z
    j = s[z + Z_GROUP]
    members = _members(w, s, j)
    kept = s[z + Z_KEPT] if s[z + CK_SAME] else 0
    n = move(s, out, ("the driver reads the group", 0, 0))
    n[z + Z_PHASE], n[z + Z_MASK], n[z + Z_LOST] = Z_RUNNING, sum(members) | kept, 0
    if members:
        n[z + GROUPS + j] = G_ALONE if len(members) == 1 else G_WITH_OTHERS


def _running(w: World, s: State, out: Moves) -> None:
    """Compute and stage. What the batch function raises is staged as an error."""
    z = w.z
    read = [(bit, q) for bit, q in w.bits if s[z + Z_MASK] & bit]
    if any(w.kind[q] is Kind.KILLS_ITS_SERVER for _, q in read):
        _die(w, move(s, out, ("a request of the group kills the driver", 0, 0)))
        return
    n = move(s, out, ("the rows of the group are staged", 0, 0))
    n[z + Z_PHASE] = Z_STAGED
    for _, q in read:
        if w.kind[q] is Kind.RAISES:
            n[q + FLAGS] |= EVIDENT
        elif not w.rules.staged_outside:
            take_effect(n, q)


def _staged(w: World, s: State, out: Moves) -> None:
    n = move(s, out, ("the driver begins its commit", 0, 0))
    n[w.z + Z_PHASE] = Z_COMMITTING


def _committing(w: World, s: State, out: Moves) -> None:
    """Commit, unless rows are missing: then nothing happened, and the batch runs again."""
    z = w.z
    if s[z + Z_LOST] and w.rules.stage_counted:
        n = move(s, out, ("the commit finds rows missing; the query ends", 0, 0))
        _die(w, n)
        n[z + ZG_STAGE] = 0
        return
    n = move(s, out, ("the driver's commit commits", 0, 0))
    staged = 0 if s[z + Z_LOST] else s[z + Z_MASK]
    _commit(w, n, s[z + Z_GROUP], staged, is_same=bool(s[z + CK_SAME]))
    n[z + Z_PHASE] = Z_COMMITTED


def _committed(w: World, s: State, out: Moves) -> None:
    """Log that the batch is done; then nothing of it may still be claimed by its group (G4)."""
    z = w.z
    n = move(s, out, ("the checkpoint says that the batch is done", 0, 0))
    if _members(w, s, s[z + Z_GROUP]):
        broken(n, 4)
    if w.setting.stateful:
        _note_state(w, n)
    n[z + Z_PHASE] = Z_IDLE
    n[z + CK_OPEN] = n[z + CK_GROUP] = n[z + CK_SAME] = 0
    n[z + Z_MASK] = n[z + Z_GROUP] = n[z + Z_LOST] = 0


def _note_state(w: World, n: Draft) -> None:
    """Note the state of a batch: it is that of what was done, and of nothing else (G2, G8)."""
    z = w.z
    n[z + Z_STATE] |= n[z + Z_MASK]
    n[z + Z_KEPT] = 0
    for bit, q in w.bits:
        is_done = n[q + PLACE] == at.ENDED and n[q + at.OUTCOME] == at.DONE
        if is_done != bool(n[z + Z_STATE] & bit):
            broken(n, 8 if n[q + FLAGS] & at.KILLED else 2)


_DRIVER = (_off, _idle, _grouped, _running, _staged, _committing, _committed)


# --- the commit ----------------------------------------------------------------------------------


def _commit(w: World, n: Draft, j: int, staged: int, *, is_same: bool) -> None:
    """Commit a batch: only what is still claimed by its group; then the record."""
    z = w.z
    is_other = n[z + OTHER]
    if (is_same and not is_other) or (is_other and not w.rules.query_compared):
        return
    held = _members(w, n, j)
    if w.setting.joint and any(staged & bit and bit not in held for bit in w.at):
        _void(w, n, held, staged)
    elif w.setting.joint and any(staged & bit and w.kind[q] is Kind.RAISES for bit, q in w.bits):
        _void_of_failed(w, n, held)
    else:
        for bit, q in w.bits:
            if staged & bit and (bit in held or not w.rules.claim_fence):
                _one(w, n, q)
    for bit in _members(w, n, j):
        give_back(w, n, w.at[bit], CHARGE if staged != sum(held) else RELEASE)
    n[z + GROUPS + j] = G_NONE
    n[z + HAS], n[z + OTHER] = 1, 0
    n[z + CK_SAME] = n[z + CK_OPEN]
    if w.setting.stateful and w.rules.state_kept:
        n[z + Z_KEPT] = staged
    durable(w, n)


def _one(w: World, n: Draft, q: int) -> None:
    """Conclude one request of a batch, or charge the error that it was answered with."""
    if w.kind[q] is Kind.RAISES:
        give_back(w, n, q, CHARGE)
        return
    if w.rules.staged_outside:
        take_effect(n, q)
    conclude(n, q, at.DONE)


def _void(w: World, n: Draft, held: list[int], staged: int) -> None:
    """Void a batch whose rows were computed from requests one of which is gone: apply nothing."""
    for bit in held:
        give_back(w, n, w.at[bit], RELEASE)
    if not w.rules.void_whole:
        for bit, q in w.bits:
            if staged & bit:
                take_effect(n, q)


def _void_of_failed(w: World, n: Draft, held: list[int]) -> None:
    """Void a batch in which a request failed that joint rows name: charge that one alone."""
    for bit in held:
        q = w.at[bit]
        if w.kind[q] is Kind.RAISES:
            give_back(w, n, q, CHARGE)
        elif w.rules.void_failed:
            give_back(w, n, q, RELEASE)
        else:
            conclude(n, q, at.DONE)
        if not w.rules.void_failed:
            take_effect(n, q)


# --- ends and zombies ----------------------------------------------------------------------------


def _die(w: World, n: Draft) -> None:
    """Kill the driver. A group of one that ran is the evidence; its commit may live on."""
    z = w.z
    phase, j = n[z + Z_PHASE], n[z + Z_GROUP]
    runs = phase in (Z_RUNNING, Z_STAGED, Z_COMMITTING)
    members = _members(w, n, j)
    if runs and n[z + GROUPS + j] == G_ALONE and members:
        n[w.at[members[0]] + FLAGS] |= EVIDENT
    if phase == Z_COMMITTING and not n[z + ZG_STAGE] and not n[z + Z_LOST]:
        n[z + ZG_STAGE], n[z + ZG_MASK], n[z + ZG_GROUP] = SENT, n[z + Z_MASK], j
        n[z + ZG_OLD] = 0
    n[z + Z_PHASE], n[z + Z_MASK], n[z + Z_GROUP], n[z + Z_LOST] = Z_OFF, 0, 0, 0


def _zombie(w: World, s: State, out: Moves) -> None:
    """Let the commit of a dead driver begin (anchor, then epoch), commit, or end."""
    z = w.z
    if s[z + ZG_STAGE] == BEGUN:
        n = move(s, out, ("a zombie's commit commits", 0, 0))
        if s[z + ZG_OLD]:
            broken(n, 6)
        _commit(w, n, s[z + ZG_GROUP], s[z + ZG_MASK], is_same=bool(s[z + CK_SAME]))
        _lay(n, z)
    elif not s[z + ZG_OLD] or not w.rules.spark_epoch:
        n = move(s, out, ("a zombie's commit has begun", 0, 0))
        n[z + ZG_STAGE] = BEGUN
    _lay(move(s, out, ("a zombie's commit ends without effect", 0, 0)), z)


def _lay(n: Draft, z: int) -> None:
    n[z + ZG_STAGE] = n[z + ZG_MASK] = n[z + ZG_GROUP] = n[z + ZG_OLD] = 0


def _native_takes_over(w: World, s: State, out: Moves) -> None:
    """Take over from a Spark server that nobody starts again: what had begun is suspected."""
    for j in range(SPARK_GROUPS):
        status = s[w.z + GROUPS + j]
        if status == G_NONE:
            continue
        n = move(s, out, ("native servers take over a group of Spark's", 0, 0), WISH)
        for bit in _members(w, n, j):
            give_back(w, n, w.at[bit], RELEASE if status == G_CLAIMED else SUSPICION)
        n[w.z + GROUPS + j] = G_NONE
