"""What is promised of every state: G1 to G8, and what a good end is (G12).

`broken_in` is asked once for each new state. What only a step can show (a reply to another request,
an operation of a life that is over, a charge without evidence) is noted by the rules in `BAD`.
"""

from __future__ import annotations

from proof.model import layout as at
from proof.model.layout import (
    BAD,
    BY,
    CANCELLED,
    DONE,
    EFFECTS,
    ENDED,
    FLAGS,
    HELD,
    KILLED,
    OUTCOME,
    PLACE,
    REPLIES,
    VOID,
    Kind,
    State,
    World,
)


def broken_in(w: World, s: State) -> str | None:
    """Return the guarantee that a state breaks, if any."""
    if s[BAD]:
        return f"G{s[BAD]}"
    for q in w.q:
        found = _of_request(s, q)
        if found is not None:
            return found
        if s[q + PLACE] == HELD and not _has_holder(w, s, q):
            return "G4"
    for c in w.c:
        for number, q in enumerate(w.requests_of[c], 1):
            if number <= s[c + at.C_TOLD_S] and not s[q + PLACE] and not s[q + FLAGS] & VOID:
                return "G4"
    return None


_FINE = {
    # (has ended, outcome, effects, replies)
    (False, at.NO_OUTCOME, 0, 0),
    (True, DONE, 1, 1),
    (True, at.FAILED, 0, 1),
    (True, CANCELLED, 0, 1),
}


def _of_request(s: State, q: int) -> str | None:
    """Effects, outcome and reply of a request belong together (G2, G3, G4, G8)."""
    outcome, flags = s[q + OUTCOME], s[q + FLAGS]
    has_ended = s[q + PLACE] == ENDED or (outcome and not s[q + PLACE])
    if flags & VOID and s[q + PLACE]:
        return "G4"
    if (bool(has_ended), outcome, s[q + EFFECTS], s[q + REPLIES]) in _FINE:
        return None
    if flags & KILLED:
        return "G8"
    if outcome in (at.FAILED, CANCELLED) and s[q + REPLIES] == 1:
        return "G3"
    return "G2"


def _has_holder(w: World, s: State, q: int) -> bool:
    """Whether a claim belongs to somebody from whom others can take it over."""
    by = s[q + BY]
    if by >= at.GROUP_NUMBER:
        return s[w.z + at.GROUPS + by - at.GROUP_NUMBER] != at.G_NONE
    return any(s[x + at.NUM] == by and s[x + at.LIFE] for x in w.e)


def is_good_end(w: World, s: State) -> bool:
    """Whether a state in which nothing more comes by itself is a good one to stop in (G12)."""
    for q in w.q:
        if s[q + PLACE] == ENDED:
            continue
        never_sent = s[q + FLAGS] & VOID or w.kind[q] is Kind.SPARE or s[q + OUTCOME]
        if s[q + PLACE] or not never_sent:
            return False
    return all(s[c + at.C_PHASE] == at.FINISHED for c in w.c)
