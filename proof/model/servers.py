"""Native servers: lives of sessions, claims, deaths, and who takes over what is left.

A session is an entry. It ends by the death of its process or by the loss of its connection; what it
was at in the database stays (a ghost) until it commits or is rolled back. Only then may others take
over from a dead process, for the database holds its lock. Its own process need not wait: it gives
back all that no transaction holds, and the fence does the rest.
"""

from __future__ import annotations

from proof.model import layout as at
from proof.model.elements import (
    CHARGE,
    ENVIRONMENT,
    RELEASE,
    SUSPICION,
    TOGETHER,
    durable,
    give_back,
)
from proof.model.layout import (
    ABORTING,
    ABORTS,
    ALONE,
    BY,
    CLAIMED,
    CLAIMING,
    CUR,
    CUT,
    DEAD,
    EVIDENT,
    FAULTS,
    FINISHING,
    FLAGS,
    FREE,
    HELD,
    IDLE,
    KEPT,
    LEFT,
    LEFT_BEHIND,
    LIFE,
    LOCKED,
    LOCKS,
    MANY,
    MARK,
    NUM,
    PHASE,
    PLACE,
    QUEUED,
    RAISED,
    REQS,
    RUNNING,
    SHARE,
    SOFT,
    SUSPECT,
    UP,
    WIPED,
    Draft,
    Moves,
    State,
    World,
    broken,
    fault,
    move,
)


def forget(n: Draft, x: int) -> None:
    """End what a session is doing: its locks go, and so does what only it knew."""
    n[x + PHASE] = n[x + REQS] = n[x + CUR] = n[x + KEPT] = n[x + RAISED] = 0
    n[x + ALONE] = n[x + LOCKS] = 0


def unlock(w: World, n: Draft, x: int) -> None:
    """Roll back: let go of the rows that the transaction of a session locked."""
    for bit, q in w.bits:
        if n[x + LOCKS] & bit:
            n[q + FLAGS] &= ~LOCKED & 0xFF
    n[x + LOCKS] = 0


def lock(n: Draft, x: int, q: int, bit: int) -> None:
    """Lock a row for the transaction of a session."""
    n[q + FLAGS] |= LOCKED
    n[x + LOCKS] |= bit


# --- claims --------------------------------------------------------------------------------------


def may_claim(w: World, s: State, x: int) -> tuple[list[int], list[int]]:
    """Return what an idle session may claim: sound ones, and suspects.

    A suspect runs with none beside it in its process, and one at a time in the repository.
    """
    sound, suspects = _waiting(w, s)
    if suspects and w.rules.one_suspect and _is_elsewhere(w, s, x):
        suspects = []
    if len(w.process[x]) > 1 and w.rules.suspects_alone:
        others = [s[y + REQS] for y in w.process[x] if y != x and s[y + LIFE] == UP]
        if any(others):
            suspects = []
        if any(s[w.at[bit] + FLAGS] & SUSPECT for bit in others if bit):
            sound = []
    return sound, suspects


def _waiting(w: World, s: State) -> tuple[list[int], list[int]]:
    """Return the sound ones and the suspects in the queue; the first of those that are alike."""
    sound: list[int] = []
    suspects: list[int] = []
    seen: set[tuple[bytes, int]] = set()
    for bit, q in w.bits:
        if s[q + PLACE] != QUEUED or s[q + FLAGS] & LOCKED:
            continue
        same = (s[q : q + at.REQUEST_SIZE], w.kind[q])
        if same in seen and not w.own and w.setting.batch == 1:
            continue
        seen.add(same)
        (suspects if s[q + FLAGS] & SUSPECT else sound).append(bit)
    return sound, suspects


def _is_elsewhere(w: World, s: State, x: int) -> bool:
    """Whether another session holds a suspect, though it may be dead, or is claiming one."""
    suspects = [(bit, q) for bit, q in w.bits if s[q + FLAGS] & SUSPECT]
    return any(
        (s[q + PLACE] == HELD and s[q + BY] == s[y + NUM])
        or (s[y + PHASE] == CLAIMING and s[y + REQS] & bit)
        for y in w.e
        if y != x and s[y + LIFE]
        for bit, q in suspects
    )


def claim(w: World, s: State, x: int, out: Moves) -> None:
    """Claim: one sound request, or as many as fit a batch; or suspects, behind all others.

    A suspect is claimed alone, or with others of a batch that died, as many as may run together.
    """
    sound, suspects = may_claim(w, s, x)
    size = w.setting.batch
    chosen = [sum(sound[:size])] if size > 1 and sound else sound or _together(w, s, suspects)
    for mask in chosen:
        text = "{} claims {}" if mask in w.at else "{} claims a batch"
        n = move(s, out, (text, x, w.at.get(mask, 0)))
        n[x + PHASE], n[x + REQS] = CLAIMING, mask
        for bit, q in w.bits:
            if mask & bit:
                lock(n, x, q, bit)
        if not w.setting.claim_steps:
            commit_claim(w, n, x)


def _together(w: World, s: State, suspects: list[int]) -> list[int]:
    """Return what may be claimed of suspects: each that runs alone, and some of a batch."""
    chosen: dict[int, int] = {}
    for bit in suspects:
        share = s[w.at[bit] + SHARE]
        if chosen.get(share, 0).bit_count() < share:
            chosen[share] = chosen.get(share, 0) | bit
    return [bit for bit in suspects if not s[w.at[bit] + SHARE]] + list(chosen.values())


def came_back(n: State | Draft, q: int) -> bool:
    """Whether something is held against an element: then it never runs with others again."""
    return bool(n[q + ABORTS] or n[q + FAULTS]) and not n[q + SHARE]


def commit_claim(w: World, n: Draft, x: int) -> None:
    """Commit a claim: it need not be durable, but that of a suspect is."""
    hardens = False
    for bit, q in w.bits:
        if n[x + REQS] & bit:
            n[q + PLACE], n[q + BY] = HELD, n[x + NUM]
            if came_back(n, q) and w.rules.rerun_alone:
                n[x + ALONE] |= bit
            hardens = hardens or bool(n[q + FLAGS] & SUSPECT)
            if w.setting.soft:
                n[q + FLAGS] |= SOFT
    unlock(w, n, x)
    n[x + PHASE] = CLAIMED
    if hardens:
        durable(w, n)


# --- the end of a life ---------------------------------------------------------------------------


def die(w: World, n: Draft, x: int) -> None:
    """Kill the process of a session. What ran as its only request is the evidence (G7)."""
    living = [y for y in w.process[x] if n[y + LIFE] in (UP, CUT)]
    running = [n[y + CUR] for y in living if n[y + LIFE] == UP and n[y + CUR]]
    if len(running) > 1 and any(n[w.at[bit] + FLAGS] & SUSPECT for bit in running):
        broken(n, 7)  # the death of a suspect is charged: it runs alone
    witness(w, n, living)
    for y in living:
        n[y + LIFE] = DEAD
        _leave(n, y)


def witness(w: World, n: Draft, process: list[int]) -> None:
    """Note which request alone may have killed a process: the one that was started, if it was one.

    An exception that is not accounted for is evidence of its own.
    """
    marked = [y for y in process if n[y + MARK] not in (0, WIPED) and n[y + PHASE] != ABORTING]
    started = [
        y for y in marked if n[y + LIFE] in (CUT, DEAD) or n[y + PHASE] in (RUNNING, FINISHING)
    ]
    if len(started) == 1 and n[started[0] + MARK] in claims(w, n, started[0]):
        n[w.at[n[started[0] + MARK]] + FLAGS] |= EVIDENT


def cut(n: Draft, x: int) -> None:
    """Cut a session off; its process lives."""
    n[x + LIFE] = CUT
    _leave(n, x)


def _leave(n: Draft, x: int) -> None:
    """Leave the transaction that is open to the database; what is only known here is lost."""
    if n[x + PHASE] not in (CLAIMING, RUNNING, FINISHING, ABORTING):
        forget(n, x)


def server_faults(w: World, s: State, out: Moves) -> None:
    """Add the faults of servers: death, loss of a connection, a claim revoked by an operator."""
    may = w.setting.may
    if not s[LEFT]:
        return
    for x in w.e:
        if s[x + LIFE] != UP:
            continue
        if "server" in may and x == w.process[x][0]:
            die(w, fault(s, out, ("*** the process of {} dies", x, 0)), x)
        if "cut" in may:
            cut(fault(s, out, ("*** {} loses its connection", x, 0)), x)
        if "revoked" in may and s[x + REQS]:
            n = fault(s, out, ("*** an operator revokes what {} holds", x, 0))
            give_back_all(w, n, x, dict.fromkeys(w.at, RELEASE))


# --- taking over ---------------------------------------------------------------------------------


def give_back_all(w: World, n: Draft, x: int, charges: dict[int, int]) -> bool:
    """Give back what a session claims and no transaction holds; whether nothing is left."""
    left = False
    held = [charges.get(bit, RELEASE) for bit in claims(w, n, x)]
    share = -(-held.count(TOGETHER) // (2 if w.rules.batch_halved else 1))
    for bit, q in w.bits:
        if n[q + PLACE] == HELD and n[q + BY] == n[x + NUM]:
            if n[q + FLAGS] & LOCKED:
                left = True
            else:
                give_back(w, n, q, charges.get(bit, RELEASE), share=share)
    return not left


def claims(w: World, s: State | Draft, x: int) -> list[int]:
    """Return what a session claims, as bits, lowest first."""
    return [bit for bit, q in w.bits if s[q + PLACE] == HELD and s[q + BY] == s[x + NUM]]


def charges_of_dead(w: World, s: State | Draft, x: int) -> dict[int, int]:
    """Return what a dead process is charged with: the one it had started; of several, suspicion."""
    wiped = [y for y in w.process[x] if s[y + MARK] == WIPED]
    charges = {bit: _after_crash(w, s, bit) for y in wiped for bit in claims(w, s, y)}
    living = [y for y in w.process[x] if y not in wiped]
    held = [bit for y in living for bit in claims(w, s, y)]
    return charges | _by_markers(w, s, held, [s[y + MARK] for y in living if s[y + MARK]])


def _by_markers(w: World, s: State | Draft, held: list[int], marks: list[int]) -> dict[int, int]:
    """Charge one that is marked alone; suspect all that are marked together."""
    if MANY in marks:
        charge = TOGETHER if w.rules.batch_suspected else CHARGE
        return {bit: charge for bit in held if not came_back(s, w.at[bit])}
    started = [bit for bit in held if bit in marks]
    if not started or not w.rules.deaths_count:
        return {}
    if not w.rules.one_of_claims:
        return dict.fromkeys(held, CHARGE)
    if not w.rules.marked_only:
        return {held[-1]: CHARGE}
    return dict.fromkeys(started, CHARGE if len(marks) == 1 else SUSPICION)


def _after_crash(w: World, s: State | Draft, bit: int) -> int:
    """Judge what was claimed when the database went down; of a suspect that is charged.

    At once: that the product waits for several falls in a row only makes the schedules longer.
    """
    if not w.rules.crash_innocent:
        return CHARGE
    q = w.at[bit]
    again = s[q + FLAGS] & SUSPECT and not s[q + SHARE] and w.rules.suspect_crash_counts
    return CHARGE if again else SUSPICION


def charges_of_cut(w: World, s: State | Draft, x: int) -> dict[int, int]:
    """Return what is held against the claims of a session whose connection broke."""
    mark = s[x + MARK]
    held = claims(w, s, x)
    if mark == WIPED:
        return {bit: _after_crash(w, s, bit) for bit in held}
    if mark == MANY:
        return {bit: ENVIRONMENT for bit in held if not came_back(s, w.at[bit])}
    return {bit: ENVIRONMENT for bit in held if mark == bit}


def lives(w: World, s: State, x: int, out: Moves) -> None:
    """Add what the life of a session may come to: a start, a reopening, a takeover, a cleaning."""
    life = s[x + LIFE]
    if life == UP:
        if not w.rules.dead_only:
            _take_over(w, s, x, out)
    elif life == FREE:
        _start(w, s, x, out)
    elif life == CUT:
        _reopen(w, s, x, out)
    elif s[x + PHASE] == IDLE and not _is_waited_for(w, s, x):
        if life == LEFT_BEHIND:
            n = move(s, out, ("what {} left behind is cleaned up", x, 0))
            if w.rules.ghost_remembered:
                give_back_all(w, n, x, charges_of_cut(w, s, x))
            _free(w, n, x)
        else:
            _take_over(w, s, x, out)


def _is_waited_for(w: World, s: State, x: int) -> bool:
    """Whether some transaction holds the row of what a session claims: then its entry stays."""
    return any(s[w.at[bit] + FLAGS] & LOCKED for bit in claims(w, s, x))


def _start(w: World, s: State, x: int, out: Moves) -> None:
    """Start a process in the first entries that are free, when there are too few."""
    mine = w.process[x]
    running = {w.process[y] for y in w.e if s[y + LIFE] in (UP, CUT)}
    free = next(y for y in w.e if s[y + LIFE] == FREE)
    if x != mine[0] or len(running) >= w.setting.processes or free != x:
        return
    if any(s[y + LIFE] for y in mine):
        return
    n = move(s, out, ("{} starts", x, 0))
    for y in mine:
        n[y + LIFE] = UP
        _number(w, n, y)


def _number(w: World, n: Draft, x: int) -> None:
    """Give a new session its number: one that no other session has, or ever had."""
    n[x + NUM] = w.e.index(x) + 1
    if not w.rules.numbers_not_reused:
        n[x + NUM] = next((n[y + NUM] for y in w.e if n[y + LIFE] == LEFT_BEHIND), n[x + NUM])


def _reopen(w: World, s: State, x: int, out: Moves) -> None:
    """Open a new session in place of one that was cut off; its ghost may live on beside it."""
    has_ghost = s[x + PHASE] != IDLE
    free = next((y for y in w.e if s[y + LIFE] == FREE), None)
    if has_ghost and (free is None or len(w.process[x]) > 1):
        return
    n = move(s, out, ("the process of {} connects again and gives back what that held", x, 0))
    give_back_all(w, n, x, charges_of_cut(w, s, x))
    if not has_ghost:
        _free(w, n, x)
        n[x + LIFE] = UP
    elif free is not None:
        n[x + LIFE] = LEFT_BEHIND
        n[free + LIFE] = UP
        _number(w, n, free)


def _free(w: World, n: Draft, x: int) -> None:
    unlock(w, n, x)
    forget(n, x)
    n[x + LIFE] = n[x + MARK] = 0
    n[x + NUM] = w.e.index(x) + 1


def _take_over(w: World, s: State, x: int, out: Moves) -> None:
    """Take over from a process that died, when none of its transactions is left."""
    mine = w.process[x]
    if x != mine[0] or not any(s[y + LIFE] for y in mine):
        return
    if w.rules.dead_only and any(
        s[y + LIFE] not in (FREE, DEAD) or s[y + PHASE] != IDLE for y in mine
    ):
        return
    held = charges_of_dead(w, s, x)
    if not w.rules.dead_only and not held:
        return
    n = move(s, out, ("the process of {} is taken over", x, 0))
    for y in mine:
        give_back_all(w, n, y, held)
        if w.rules.dead_only:
            _free(w, n, y)
