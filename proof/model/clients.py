"""Clients and their clerks: connect, send, receive, process, disconnect, and come back.

Each operation of a clerk is one transaction: its request is under way (SENT), it has taken its
locks and passed its checks (BEGUN), it commits and its answer comes. A life that ends in between
leaves a call that nobody listens to (a ghost), which the database may still begin, commit or not.
"""

from __future__ import annotations

from proof.model import layout as at
from proof.model.elements import durable
from proof.model.layout import (
    ACKNOWLEDGED,
    BEGUN,
    C_CALL,
    C_GHOST,
    C_PHASE,
    C_R,
    C_REG,
    C_RID,
    C_S,
    C_TOLD_R,
    C_TOLD_S,
    CALLING,
    CONNECT,
    DISCONNECT,
    FLAGS,
    HANDLED,
    HAVING,
    KEPT_REPLY,
    LEFT,
    OLD,
    OP,
    OUT,
    PLACE,
    PROCESSED,
    READY,
    RECEIVE,
    REPLY,
    RID,
    SEND,
    SENT,
    STAGE,
    VOID,
    WAITING,
    Draft,
    Moves,
    State,
    World,
    broken,
    fault,
    move,
)


def clients(w: World, s: State, out: Moves) -> None:
    """Add what every client, and every call that nobody listens to, may do next."""
    for c in w.c:
        _LIVING[s[c + C_PHASE]](w, s, c, out)
        if s[c + C_GHOST + STAGE]:
            _call(w, s, (c, C_GHOST), out)
        if s[LEFT] and "client" in w.setting.may:
            _end_of_life(s, c, out)


# --- a life --------------------------------------------------------------------------------------


def _out(w: World, s: State, c: int, out: Moves) -> None:
    del w
    _issue(move(s, out, ("{} starts and connects", c, 0)), c, CONNECT, 0)


def _issue(n: Draft, c: int, op: int, rid: int) -> None:
    """Send the request of an operation on its way."""
    n[c + C_PHASE], n[c + C_RID] = CALLING, 0
    n[c + C_CALL + OP], n[c + C_CALL + RID], n[c + C_CALL + STAGE] = op, rid, SENT


def _calling(w: World, s: State, c: int, out: Moves) -> None:
    _call(w, s, (c, C_CALL), out)


def _ready(w: World, s: State, c: int, out: Moves) -> None:
    """Send the next request; or give it up, if the client's policy allows that."""
    rid = s[c + C_RID]
    q = w.requests_of[c][rid - 1]
    if s[q + FLAGS] & VOID:
        _next(w, move(s, out, ("{} passes over {}, which it gave up", c, q)), c, rid)
        return
    _issue(move(s, out, ("{} sends {}", c, q)), c, SEND, rid)
    if w.setting.discards and rid > s[c + C_TOLD_S]:
        n = move(s, out, ("{} gives up {}, which was not submitted", c, q))
        n[q + FLAGS] |= VOID
        if n[q + PLACE]:
            broken(n, 6)
        _next(w, n, c, rid)


def _next(w: World, n: Draft, c: int, rid: int) -> None:
    """Go on after a rid: to the next one, or to the end."""
    if rid < len(w.requests_of[c]):
        n[c + C_PHASE], n[c + C_RID] = READY, rid + 1
    else:
        _issue(n, c, DISCONNECT, rid)


def _waiting(w: World, s: State, c: int, out: Moves) -> None:
    """Receive, when there is a reply: with a checkpoint in a transaction, without one by a read."""
    found = _reply_for(w, s, c)
    if found is None:
        return
    rid = s[c + C_RID]
    if w.setting.checkpoints:
        _issue(move(s, out, ("{} receives with a checkpoint", c, 0)), c, RECEIVE, rid)
        return
    n = move(s, out, ("{} receives the reply to {}", c, found))
    if s[c + C_CALL + OLD] and w.rules.epoch:
        _fenced(n, c)
        return
    _take_reply(w, n, c, rid)


def _reply_for(w: World, s: State | Draft, c: int) -> int | None:
    """Return whose reply is next in the client's reply queue."""
    mine = w.requests_of[c] if w.rules.own_reply_queue else w.q
    return next((q for q in mine if s[q + REPLY] == KEPT_REPLY), None)


def _take_reply(w: World, n: Draft, c: int, rid: int) -> None:
    """Give the client the next reply; it must answer what the client waits for (G1)."""
    found = _reply_for(w, n, c)
    if found != w.requests_of[c][rid - 1]:
        broken(n, 1)
    if n[c + C_CALL + OLD]:
        broken(n, 6)
    if not w.rules.copy_kept and found is not None:
        n[found + REPLY] = ACKNOWLEDGED
    n[c + C_PHASE], n[c + C_RID] = HAVING, rid


def _having(w: World, s: State, c: int, out: Moves) -> None:
    rid = s[c + C_RID]
    q = w.requests_of[c][rid - 1]
    n = move(s, out, ("{} processes the reply to {}", c, q))
    n[q + FLAGS] |= PROCESSED
    n[c + C_PHASE] = HANDLED


def _handled(w: World, s: State, c: int, out: Moves) -> None:
    rid = s[c + C_RID]
    _next(w, move(s, out, ("{} goes on after {}", c, w.requests_of[c][rid - 1])), c, rid)


def _finished(w: World, s: State, c: int, out: Moves) -> None:
    del w, s, c, out


_LIVING = (_out, _calling, _ready, _waiting, _having, _handled, _finished)


def _fenced(n: Draft, c: int) -> None:
    """End a life whose epoch is over; the client connects again."""
    n[c + C_PHASE], n[c + C_RID] = OUT, 0
    _clear(n, c + C_CALL)


def _clear(n: Draft, a: int) -> None:
    n[a : a + 4] = b"\0\0\0\0"


def _end_of_life(s: State, c: int, out: Moves) -> None:
    """Kill the client, or cut it off, anywhere; a call that is under way stays, or is lost."""
    phase = s[c + C_PHASE]
    if phase in (OUT, at.FINISHED):
        return
    if phase != CALLING:
        _fenced(fault(s, out, ("*** {} dies", c, 0)), c)
    elif s[c + C_GHOST + STAGE]:
        _fenced(fault(s, out, ("*** {} dies, and what it asked for is lost", c, 0)), c)
    else:
        n = fault(s, out, ("*** {} dies, or hears no more of what it asked for", c, 0))
        n[c + C_GHOST : c + C_GHOST + 4] = n[c + C_CALL : c + C_CALL + 4]
        _fenced(n, c)


# --- a call --------------------------------------------------------------------------------------


def _call(w: World, s: State, place: tuple[int, int], out: Moves) -> None:
    """Let the database begin a call, or end the transaction of one."""
    c, a = place
    stage, is_ghost = s[c + a + STAGE], a == C_GHOST
    if stage == SENT:
        _begin(w, s, place, out)
    elif stage == BEGUN:
        who = "a ghost of {}" if is_ghost else "{}"
        n = move(s, out, (who + f": its {at.OPS[s[c + a + OP]]} commits", c, 0))
        _commit(w, n, place)
    if is_ghost:
        n = move(s, out, ("a ghost of {} ends without effect", c, 0))
        _clear(n, c + C_GHOST)


def _begin(w: World, s: State, place: tuple[int, int], out: Moves) -> None:
    """Take the anchor (shared, or alone to connect and disconnect); then test the epoch."""
    c, a = place
    other = c + (C_CALL if a == C_GHOST else C_GHOST)
    op = s[c + a + OP]
    exclusive = op in (CONNECT, DISCONNECT) or s[other + OP] in (CONNECT, DISCONNECT)
    if s[other + STAGE] == BEGUN and (
        (exclusive and w.rules.anchor) or op == s[other + OP] == SEND
    ):
        return
    who = "a ghost of {}" if a == C_GHOST else "{}"
    if s[c + a + OLD] and op != CONNECT and w.rules.epoch:
        n = move(s, out, (who + ": refused, its epoch is over", c, 0))
        if a == C_GHOST:
            _clear(n, c + a)
        else:
            _fenced(n, c)
        return
    n = move(s, out, (who + f": its {at.OPS[op]} has begun", c, 0))
    n[c + a + STAGE] = BEGUN


def _commit(w: World, n: Draft, place: tuple[int, int]) -> None:
    """Commit a call; its life is told, if it still listens."""
    c, a = place
    op, rid, is_old = n[c + a + OP], n[c + a + RID], n[c + a + OLD]
    if is_old and op != CONNECT:
        broken(n, 6)
    is_alive = a == C_CALL
    n[c + a + OP] = n[c + a + RID] = n[c + a + STAGE] = 0
    _COMMITS[op](w, n, c, (rid, is_alive))
    if not is_alive:
        _clear(n, c + a)
    durable(w, n)


def _new_epoch(n: Draft, c: int, *, is_alive: bool) -> None:
    """Begin an epoch: whoever else acts for this registrant is of a life that is over."""
    if n[c + C_GHOST + STAGE]:
        n[c + C_GHOST + OLD] = 1
    living = n[c + C_PHASE] not in (OUT, at.FINISHED)
    n[c + C_CALL + OLD] = int(living and not is_alive)


def _connected(w: World, n: Draft, c: int, told: tuple[int, bool]) -> None:
    """Connect: where the client was. It goes on from the answer alone."""
    is_alive = told[1]
    was = n[c + C_REG]
    _new_epoch(n, c, is_alive=is_alive)
    n[c + C_REG] = at.CONNECTED
    if not is_alive:
        return
    last_sent, last_received = n[c + C_S], n[c + C_R]
    if last_sent < n[c + C_TOLD_S] or last_received < n[c + C_TOLD_R]:
        broken(n, 6)
    n[c + C_TOLD_S], n[c + C_TOLD_R] = last_sent, last_received
    if was == at.DISCONNECTED and w.rules.tombstone:
        n[c + C_PHASE], n[c + C_RID] = at.FINISHED, 0
    elif not last_sent or w.setting.resubmits:
        n[c + C_PHASE], n[c + C_RID] = READY, 1
    else:
        _resume(n, c, (last_sent, last_received), w.requests_of[c][last_sent - 1])


def _resume(n: Draft, c: int, said: tuple[int, int], q: int) -> None:
    """Go on from what connect said was sent and received last; q: what was sent last."""
    last_sent, last_received = said
    n[c + C_RID] = last_sent
    if n[q + REPLY] == ACKNOWLEDGED:
        n[c + C_PHASE] = HANDLED
        if not n[q + FLAGS] & PROCESSED:
            broken(n, 5)
    elif last_received == last_sent:
        n[c + C_PHASE] = HAVING
        if n[q + REPLY] != KEPT_REPLY:
            broken(n, 5)
    else:
        n[c + C_PHASE] = WAITING


def _sent(w: World, n: Draft, c: int, told: tuple[int, bool]) -> None:
    """Send: stable when it returns (G6); a rid sent before is answered as what it is."""
    rid, is_alive = told
    q = w.requests_of[c][rid - 1]
    is_new = n[q + PLACE] == at.NOWHERE
    if is_new or not w.rules.same_rid:
        n[q + PLACE] = at.QUEUED
        if n[q + FLAGS] & VOID:
            broken(n, 6)
        if is_alive or w.rules.tag_with_send:
            n[c + C_S] = max(rid, n[c + C_S])
        if w.rules.send_acknowledges:
            _acknowledge(w, n, c, rid - 1)
    if is_alive:
        n[c + C_TOLD_S] = max(rid, n[c + C_TOLD_S])
        is_done = n[q + REPLY] == ACKNOWLEDGED
        n[c + C_PHASE], n[c + C_RID] = (HANDLED if is_done else WAITING), rid


def _acknowledge(w: World, n: Draft, c: int, last: int) -> None:
    """Remove the replies up to a rid: each must have been processed (G5)."""
    for q in w.requests_of[c][:last]:
        if n[q + REPLY] == KEPT_REPLY:
            n[q + REPLY] = ACKNOWLEDGED
        if n[q + REPLY] == ACKNOWLEDGED and not n[q + FLAGS] & PROCESSED:
            broken(n, 5)


def _received(w: World, n: Draft, c: int, told: tuple[int, bool]) -> None:
    """Receive with a checkpoint: the rid and the checkpoint are stable when it returns (G6)."""
    rid, is_alive = told
    if w.rules.checkpoint_kept:
        n[c + C_R] = max(rid, n[c + C_R])
    if is_alive:
        n[c + C_TOLD_R] = max(rid, n[c + C_TOLD_R])
        _take_reply(w, n, c, rid)
    elif not w.rules.copy_kept:
        n[w.requests_of[c][rid - 1] + REPLY] = ACKNOWLEDGED


def _disconnected(w: World, n: Draft, c: int, told: tuple[int, bool]) -> None:
    """Disconnect: the replies go, a tombstone stays."""
    is_alive = told[1]
    _acknowledge(w, n, c, len(w.requests_of[c]))
    n[c + C_REG] = at.DISCONNECTED
    n[c + C_TOLD_S] = n[c + C_TOLD_R] = 0
    if not w.rules.tombstone:
        n[c + C_REG] = n[c + C_S] = n[c + C_R] = 0
        for q in w.requests_of[c]:
            n[q + PLACE] = at.NOWHERE if n[q + PLACE] == at.ENDED else n[q + PLACE]
    if is_alive:
        n[c + C_PHASE], n[c + C_RID] = at.FINISHED, 0
    _new_epoch(n, c, is_alive=is_alive)


_COMMITS = {CONNECT: _connected, SEND: _sent, RECEIVE: _received, DISCONNECT: _disconnected}
