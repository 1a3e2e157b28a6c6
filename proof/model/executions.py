"""What a server session does with its claim: one request, or a batch of them in one transaction.

A step is a round trip: begin (which sets the started marker), the handler, finish (which is the
fence), commit; or the rollback, and the abort in a transaction of its own.
"""

from __future__ import annotations

from proof.model import layout as at
from proof.model.database import crash
from proof.model.elements import CHARGE, ENVIRONMENT, conclude, durable, give_back, take_effect
from proof.model.layout import (
    ABORTING,
    ALONE,
    BY,
    CLAIMED,
    CLAIMING,
    CUR,
    DEAD,
    DONE,
    EVIDENT,
    FINISHING,
    FLAGS,
    HELD,
    IDLE,
    KEPT,
    LIFE,
    LOCKED,
    LOCKS,
    MANY,
    MARK,
    NUM,
    PHASE,
    PLACE,
    RAISED,
    REQS,
    RUNNING,
    UP,
    Draft,
    Kind,
    Moves,
    State,
    World,
    move,
)
from proof.model.servers import claim, commit_claim, die, forget, lives, lock, unlock, witness


def sessions(w: World, s: State, out: Moves) -> None:
    """Add what every server session, and every ghost of one, may do next."""
    for x in w.e:
        lives(w, s, x, out)
        phase = s[x + PHASE]
        if s[x + LIFE] == UP:
            _WORK[phase](w, s, x, out)
        elif phase != IDLE:
            _ghost(w, s, x, out)


def ideal_server(w: World, s: State, out: Moves) -> None:
    """Add what an ideal server would do, which takes one step for each request, and never fails."""
    for q in w.q:
        if s[q + PLACE] == at.QUEUED:
            n = move(s, out, ("{} is served", q, 0))
            take_effect(n, q)
            conclude(n, q, DONE)


_ENDING = (Kind.GOOD, Kind.FAILS_AT_COMMIT)
"""The kinds whose handlers come to their end."""


def _ghost(w: World, s: State, x: int, out: Moves) -> None:
    """Add how a transaction that nobody listens to may go on: to its commit, or back."""
    phase = s[x + PHASE]
    if phase == CLAIMING:
        n = move(s, out, ("a ghost of {} commits its claim", x, 0))
        commit_claim(w, n, x)
        forget(n, x)
    elif phase == RUNNING and s[x + CUR] == s[x + REQS] and w.kind[w.at[s[x + CUR]]] in _ENDING:
        _finish(w, s, x, out)
    elif phase in (FINISHING, ABORTING):
        (_commit if phase == FINISHING else _abort)(w, s, x, out)
    n = move(s, out, ("a ghost of {} is rolled back", x, 0))
    unlock(w, n, x)
    forget(n, x)


# --- one request ---------------------------------------------------------------------------------


def _next(n: Draft, x: int) -> None:
    """Go on with the rest of the claim, or look for another."""
    n[x + CUR] = n[x + KEPT] = 0
    n[x + ALONE] &= n[x + REQS]
    n[x + PHASE] = ABORTING if n[x + RAISED] else CLAIMED if n[x + REQS] else IDLE


def _claiming(w: World, s: State, x: int, out: Moves) -> None:
    commit_claim(w, move(s, out, ("{}: its claim commits", x, 0)), x)


def _lowest(mask: int) -> int:
    return mask & -mask


def _begin(w: World, s: State, x: int, out: Moves) -> None:
    """Begin a transaction and set the started marker, which no rollback undoes."""
    piece = _piece(s, x)
    if piece & (piece - 1):
        n = move(s, out, ("{} begins a batch", x, 0))
        n[x + PHASE], n[x + MARK] = RUNNING, MANY
        return
    bit = _lowest(s[x + REQS])
    n = move(s, out, ("{} begins {}", x, w.at[bit]))
    n[x + PHASE], n[x + CUR], n[x + MARK] = RUNNING, bit, bit


def _run(w: World, s: State, x: int, out: Moves) -> None:
    """Run the handler: what it does is the request's kind."""
    bit = s[x + CUR]
    if s[x + MARK] == MANY:
        _batch(w, s, x, out)
        return
    q = w.at[bit]
    if not _fatal(w, s, (x, bit), out):
        if w.kind[q] is Kind.RAISES:
            _raised(w, move(s, out, ("{} in {} raises", q, x)), x, bit)
        elif w.kind[q] is Kind.MEETS_A_DEADLOCK:
            n = move(s, out, ("{} in {} meets a deadlock", q, x))
            n[x + REQS] &= ~bit
            n[x + MARK] = 0
            if n[q + PLACE] == HELD and n[q + BY] == n[x + NUM]:
                give_back(w, n, q, ENVIRONMENT)
            _next(n, x)
        else:
            _finish(w, s, x, out)


def _fatal(w: World, s: State, run: tuple[int, int], out: Moves) -> bool:
    """Run a handler that kills its server or brings the database down; whether it was one."""
    x, q = run[0], w.at[run[1]]
    if w.kind[q] is Kind.KILLS_ITS_SERVER:
        die(w, move(s, out, ("{} kills the process of {}", q, x)), x)
        return True
    if w.kind[q] is Kind.CRASHES_THE_DATABASE:
        crash(w, move(s, out, ("{} in {} brings the database down", q, x)), loses=False)
        return True
    return False


def _raised(w: World, n: Draft, x: int, bit: int) -> None:
    """Roll back after an exception; the abort is counted in a transaction of its own."""
    unlock(w, n, x)
    n[x + RAISED] |= bit
    n[x + PHASE], n[x + CUR] = ABORTING, 0
    _evident(n, x, w.at[bit])


def _evident(n: Draft, x: int, q: int) -> None:
    """Note that an abort may be charged, if the element is this session's."""
    if n[q + PLACE] == HELD and n[q + BY] == n[x + NUM]:
        n[q + FLAGS] |= EVIDENT


def _finish(w: World, s: State, x: int, out: Moves) -> None:
    """Finish: the fence. What this session no longer claims is not concluded, and all undone."""
    bit = s[x + CUR]
    q = w.at[bit]
    if s[q + FLAGS] & LOCKED:
        return
    is_ours = s[q + PLACE] == HELD and s[q + BY] == s[x + NUM]
    if not is_ours and w.rules.fence:
        n = move(s, out, ("{}: refused, it holds {} no longer", x, q))
        if s[x + LIFE] == UP:
            n[x + REQS] &= ~bit
            n[x + MARK] = 0
            _next(n, x)
        else:
            forget(n, x)
        return
    n = move(s, out, ("{} finishes {}", x, q))
    n[x + PHASE], n[x + KEPT] = FINISHING, bit
    lock(n, x, q, bit)
    if not w.rules.effects_inside:
        take_effect(n, q)
    if not w.rules.reply_inside:
        conclude(n, q, DONE)
        n[q + PLACE], n[q + BY] = HELD, s[x + NUM]


def _commit(w: World, s: State, x: int, out: Moves) -> None:
    """Commit: effects, replies, removal and history of all that is kept."""
    kept = s[x + KEPT]
    if any(kept & ~s[x + LOCKS] & bit and s[q + FLAGS] & LOCKED for bit, q in w.bits):
        return
    if any(kept & bit and w.kind[q] is Kind.FAILS_AT_COMMIT for bit, q in w.bits):
        _fail_at_commit(w, s, x, out)
        return
    n = move(s, out, ("{} commits", x, 0))
    for bit, q in w.bits:
        if kept & bit:
            _conclude_kept(w, n, x, q)
        elif n[x + CUR] & bit:  # the effects of one that raised, where a batch is not undone
            take_effect(n, q)
    unlock(w, n, x)
    n[x + REQS] &= ~kept
    n[x + MARK] = 0
    durable(w, n)
    if n[x + LIFE] == UP:
        _next(n, x)
        return
    forget(n, x)
    if n[x + LIFE] == DEAD:
        witness(w, n, list(w.process[x]))


def _conclude_kept(w: World, n: Draft, x: int, q: int) -> None:
    """Conclude one of what a transaction keeps."""
    if w.rules.effects_inside:
        take_effect(n, q)
    if not w.rules.reply_inside:
        n[q + at.REPLIES] = n[q + at.OUTCOME] = 0
    is_ours = n[q + PLACE] == HELD and n[q + BY] == n[x + NUM]
    if is_ours or (not w.rules.fence and n[q + PLACE] != at.ENDED):
        conclude(n, q, DONE)


def _fail_at_commit(w: World, s: State, x: int, out: Moves) -> None:
    """Fail at the commit: alone it is the request's own abort; of a batch, nobody knows whose."""
    kept = s[x + KEPT]
    n = move(s, out, ("{}: its commit fails", x, 0))
    unlock(w, n, x)
    if n[x + LIFE] != UP:
        forget(n, x)
    elif n[x + MARK] == MANY:
        _each_alone(w, n, x, kept)
    else:
        _raised(w, n, x, kept)


def _abort(w: World, s: State, x: int, out: Moves) -> None:
    """Count an abort, where the element is still claimed by this session."""
    bit = _lowest(s[x + RAISED])
    q = w.at[bit]
    if s[q + FLAGS] & LOCKED:
        return
    n = move(s, out, ("{} aborts {}", x, q))
    is_ours = s[q + BY] == s[x + NUM] or not w.rules.abort_fence
    if s[q + PLACE] == HELD and is_ours:
        if w.rules.count_outside:
            give_back(w, n, q, CHARGE)
        else:
            n[q + FLAGS] &= ~EVIDENT & 0xFF
            n[q + PLACE], n[q + BY] = at.QUEUED, 0
    n[x + RAISED] &= ~bit
    n[x + REQS] &= ~bit
    if w.rules.marker_cleared:
        n[x + MARK] = 0
    if n[x + LIFE] == UP:
        _next(n, x)
    else:
        forget(n, x)


# --- a batch -------------------------------------------------------------------------------------


def _piece(s: State, x: int) -> int:
    """Return what the next transaction runs: what comes first, up to what runs alone."""
    alone = s[x + REQS] & s[x + ALONE]
    if not alone:
        return s[x + REQS]
    first = _lowest(alone)
    return s[x + REQS] & (first - 1) or first


def _batch(w: World, s: State, x: int, out: Moves) -> None:
    """Run the next handler of a batch, or finish what has run: time may be over after each."""
    if s[x + KEPT]:
        _finish_batch(w, s, x, out)
    rest = _piece(s, x) & ~(s[x + KEPT] | s[x + CUR])
    if not rest or _fatal(w, s, (x, _lowest(rest)), out):
        return
    bit = _lowest(rest)
    n = move(s, out, ("{} in the batch of {} runs", w.at[bit], x))
    if w.kind[w.at[bit]] not in (Kind.RAISES, Kind.MEETS_A_DEADLOCK):
        n[x + KEPT] |= bit
    elif w.rules.batch_undone or not n[x + KEPT]:
        _each_alone(w, n, x, bit)
    else:
        n[x + CUR] |= bit


def _finish_batch(w: World, s: State, x: int, out: Moves) -> None:
    """Finish: the fence of all. If one is no longer claimed, nothing of the batch happened."""
    done = [(bit, q) for bit, q in w.bits if s[x + KEPT] & bit]
    if any(s[q + FLAGS] & LOCKED for _, q in done):
        return
    ours = [(bit, q) for bit, q in done if s[q + PLACE] == HELD and s[q + BY] == s[x + NUM]]
    if len(ours) < len(done) and w.rules.batch_fence:
        n = move(s, out, ("{}: refused, it does not hold all of its batch", x, 0))
        _each_alone(w, n, x, n[x + KEPT])
        return
    n = move(s, out, ("{} finishes its batch", x, 0))
    n[x + PHASE] = FINISHING
    for bit, q in ours:
        lock(n, x, q, bit)


def _each_alone(w: World, n: Draft, x: int, bits: int) -> None:
    """Undo a batch: nothing of it happened. These, of which one is to blame, run alone."""
    unlock(w, n, x)
    if not w.rules.batch_innocent:
        n[x + RAISED] = n[x + REQS]
    if w.rules.rerun_alone:
        n[x + ALONE] |= bits
    _next(n, x)


def _idle(w: World, s: State, x: int, out: Moves) -> None:
    claim(w, s, x, out)


_WORK = (_idle, _claiming, _begin, _run, _commit, _abort)
