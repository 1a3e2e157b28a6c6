"""A crash of the database: every transaction is gone, every connection broken, no claim forgotten.

Except claims that were not durable, any of which it may take; and the started markers.
"""

from __future__ import annotations

from proof.model import layout as at
from proof.model.layout import (
    C_CALL,
    C_GHOST,
    C_PHASE,
    CUT,
    EVIDENT,
    FLAGS,
    HELD,
    LEFT,
    LIFE,
    MARK,
    PLACE,
    SOFT,
    STAGE,
    SUSPECT,
    UP,
    WIPED,
    Draft,
    Moves,
    State,
    World,
    fault,
)
from proof.model.servers import forget, unlock


def crashes(w: World, s: State, out: Moves) -> None:
    """Add a crash of the database, which takes the claims that are not durable, or leaves them."""
    if not s[LEFT] or "database" not in w.setting.may:
        return
    crash(w, fault(s, out, ("*** the database crashes", 0, 0)), loses=False)
    if any(s[q + FLAGS] & SOFT for q in w.q) or not w.rules.durable_send:
        crash(w, fault(s, out, ("*** the database crashes and loses claims", 0, 0)), loses=True)


def crash(w: World, n: Draft, *, loses: bool) -> None:
    """Crash the database in a draft. loses: what was not durable is gone."""
    for x in w.e:
        if n[x + LIFE]:
            _break(w, n, x)
    _elements(w, n, loses=loses)
    for c in w.c:
        n[c + C_GHOST : c + C_GHOST + 4] = b"\0\0\0\0"
        if n[c + C_CALL + STAGE]:
            n[c + C_PHASE] = at.OUT
            n[c + C_CALL : c + C_CALL + 4] = b"\0\0\0\0"
    if loses and not w.rules.durable_send:
        _lose_sends(w, n)
    if w.setting.spark:
        _spark(w, n)


def _break(w: World, n: Draft, x: int) -> None:
    unlock(w, n, x)
    forget(n, x)
    if n[x + LIFE] == UP:
        n[x + LIFE] = CUT
    n[x + MARK] = WIPED


def _is_held_suspect(n: Draft, q: int) -> bool:
    """Whether it is a suspect that a server claimed, durably: it may be charged for a crash."""
    is_suspect = n[q + FLAGS] & (SUSPECT | SOFT) == SUSPECT
    return is_suspect and n[q + PLACE] == HELD and n[q + at.BY] < at.GROUP_NUMBER


def _elements(w: World, n: Draft, *, loses: bool) -> None:
    """Undo what was not durable. A suspect that was claimed alone may be charged for this."""
    suspects = [q for q in w.q if _is_held_suspect(n, q)]
    for q in w.q:
        flags = n[q + FLAGS]
        n[q + FLAGS] = flags & ~(SOFT | EVIDENT) & 0xFF
        if n[q + PLACE] == HELD and loses and flags & SOFT:
            n[q + PLACE], n[q + at.BY] = at.QUEUED, 0
    if len(suspects) == 1:
        n[suspects[0] + FLAGS] |= EVIDENT


def _lose_sends(w: World, n: Draft) -> None:
    for c in w.c:
        for number, q in enumerate(w.requests_of[c], 1):
            if n[q + PLACE] == at.QUEUED:
                n[q + PLACE] = at.NOWHERE
                n[c + at.C_S] = min(n[c + at.C_S], number - 1)


def _spark(w: World, n: Draft) -> None:
    """Break a Spark server: what was staged is gone, and no group is charged for this."""
    z = w.z
    n[z + at.ZG_STAGE : z + at.ZG_OLD + 1] = b"\0\0\0\0"
    if n[z + at.Z_PHASE] == at.Z_STAGED:
        n[z + at.Z_LOST] = 1
    elif n[z + at.Z_PHASE] != at.Z_RUNNING:
        n[z + at.Z_PHASE : z + at.Z_LOST + 1] = b"\0\0\0\0"
    for j in range(at.SPARK_GROUPS):
        if n[z + at.GROUPS + j] in (at.G_WITH_OTHERS, at.G_ALONE):
            n[z + at.GROUPS + j] = at.G_BEFORE_CRASH
