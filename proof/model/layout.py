"""How a state is laid out: a few bytes for each request, server session, client and Spark server.

Everything else in this package reads and writes states through these names. A state is immutable;
a rule makes a draft of the next one by `move`. What nothing can tell apart is written alike: ended
transactions leave zeros, and a new session takes the first entry that is free.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

State = bytes
Draft = bytearray
Label = tuple[str, int, int]
"""A text with up to two places, and the bases of what they name; read by `World.say`."""
Move = tuple[int, Label, Draft]
Moves = list[Move]

PROGRESS, WISH, FAULT = range(3)
"""The kinds of steps: what must come by itself; what an operator may ask for; what goes wrong."""

# --- the head ------------------------------------------------------------------------------------
BAD, LEFT, WISHES = range(3)
"""The guarantee broken by the last step (0: none); faults to come, wishes to come, at most."""
HEAD = 3

# --- a request (and its reply) -------------------------------------------------------------------
PLACE, BY, FLAGS, ABORTS, FAULTS, EFFECTS, OUTCOME, REPLY, REPLIES, SHARE = range(10)
REQUEST_SIZE = 10
"""SHARE: of a suspect, with how many it may run together at most; 0: it runs alone."""
NOWHERE, QUEUED, HELD, ENDED = range(4)
PLACES = ("nowhere", "queued", "claimed", "ended")
NO_OUTCOME, DONE, FAILED, CANCELLED = range(4)
OUTCOMES = ("-", "done", "failed", "cancelled")
NO_REPLY, KEPT_REPLY, ACKNOWLEDGED = range(3)
SUSPECT, SOFT, LOCKED, KILLED, IN_ERROR_QUEUE, VOID, PROCESSED, EVIDENT = (1 << n for n in range(8))
"""Flags. SOFT: its claim is not durable yet. VOID: its client was told that it was not submitted,
and has given it up. EVIDENT: something happened for which an abort may be charged."""
FLAG_NAMES = (
    *("suspect", "claim not durable", "locked", "answered KILLED"),
    *("in the error queue", "given up by its client", "reply processed", "abort due"),
)

# --- a server session ----------------------------------------------------------------------------
LIFE, PHASE, REQS, CUR, KEPT, RAISED, MARK, NUM, ALONE, LOCKS = range(10)
ENTRY_SIZE = 10
"""REQS: what it has claimed; KEPT: what its transaction has done; ALONE: what it runs alone."""
FREE, UP, CUT, DEAD, LEFT_BEHIND = range(5)
"""A life: none; connected; its process lives without the connection; its process died; its process
has a new session, and what is left is a transaction that the database is still at (a ghost)."""
GHOSTLY = (CUT, DEAD, LEFT_BEHIND)
IDLE, CLAIMING, CLAIMED, RUNNING, FINISHING, ABORTING = range(6)
MANY, WIPED = 0x40, 0x80
"""Markers beside the bit of one request: a batch is under way, whichever of it runs; the marker
that a crash of the database took."""

# --- a client ------------------------------------------------------------------------------------
C_PHASE, C_RID, C_CALL, C_GHOST = 0, 1, 2, 6
C_REG, C_S, C_R, C_TOLD_S, C_TOLD_R = range(10, 15)
CLIENT_SIZE = 15
OP, RID, STAGE, OLD = range(4)
"""A call, of the client's present life or of one that nobody listens to: which operation, of which
rid, how far it is, and whether its epoch is over."""
OUT, CALLING, READY, WAITING, HAVING, HANDLED, FINISHED = range(7)
CONNECT, SEND, RECEIVE, DISCONNECT = range(1, 5)
OPS = ("-", "connect", "send", "receive", "disconnect")
SENT, BEGUN = 1, 2
NEW, CONNECTED, DISCONNECTED = range(3)

# --- a Spark server ------------------------------------------------------------------------------
Z_PHASE, Z_MASK, Z_GROUP, Z_LOST, ZG_STAGE, ZG_MASK, ZG_GROUP, ZG_OLD = range(8)
CK_OPEN, CK_GROUP, CK_SAME, OTHER, HAS, GROUPS = range(8, 14)
"""Driver: phase, the requests it read, their claim group, whether its stage was lost. A commit that
nobody listens to: how far, its requests, its group, whether its epoch is over. The checkpoint: a
batch is open, of which group, which the database has recorded as committed; it is another query's
than the record's; there is a record. Then the state of each claim group. Of a query that keeps
a state: the requests that its last commit keeps to be read again, and those in the state noted."""
SPARK_GROUPS = 4
Z_KEPT, Z_STATE = GROUPS + SPARK_GROUPS, GROUPS + SPARK_GROUPS + 1
SPARK_SIZE = Z_STATE + 1
GROUP_NUMBER = 64
Z_OFF, Z_IDLE, Z_GROUPED, Z_RUNNING, Z_STAGED, Z_COMMITTING, Z_COMMITTED = range(7)
G_NONE, G_CLAIMED, G_WITH_OTHERS, G_ALONE, G_BEFORE_CRASH = range(5)

LIMIT = 2
"""The abort limit of the model's queue."""


class Kind(enum.IntEnum):
    """What running a request does, each time."""

    GOOD = 0
    RAISES = 1
    KILLS_ITS_SERVER = 2
    MEETS_A_DEADLOCK = 3
    CRASHES_THE_DATABASE = 4
    FAILS_AT_COMMIT = 5
    SPARE = 6
    """Not there in the beginning: a redrive makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A configuration: who takes part, what may be asked for, what may go wrong.

    kinds: of the requests. owners: the client of each; -1: nobody's, queued from the beginning.
    faults, wishes: how many at most in one history. may: which faults. batch: requests in a
    transaction, 0: an ideal server, which takes one step for each request. sessions: of a process.
    joint: Spark's rows are computed from all requests of a batch together. stateful: its query
    keeps a state of what it has read, in the checkpoint. retry_limit: how often a fault of the
    environment goes uncharged. limit: of states, for a
    setting that is too large to be explored to its end; None where it is not.
    """

    name: str
    text: str
    kinds: tuple[Kind, ...]
    owners: tuple[int, ...] = ()
    clients: int = 0
    checkpoints: bool = True
    resubmits: bool = False
    discards: bool = False
    entries: int = 0
    processes: int = 0
    sessions: int = 1
    batch: int = 0
    claim_steps: bool = False
    soft: bool = False
    spark: bool = False
    joint: bool = False
    stateful: bool = False
    retry_limit: int = 1
    faults: int = 0
    wishes: int = 0
    may: frozenset[str] = frozenset()
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that a variant may break, each by being False."""

    anchor: bool = True
    epoch: bool = True
    tombstone: bool = True
    same_rid: bool = True
    copy_kept: bool = True
    tag_with_send: bool = True
    send_acknowledges: bool = True
    own_reply_queue: bool = True
    durable_send: bool = True
    checkpoint_kept: bool = True
    fence: bool = True
    reply_inside: bool = True
    effects_inside: bool = True
    abort_fence: bool = True
    numbers_not_reused: bool = True
    deaths_count: bool = True
    count_outside: bool = True
    kill_replies: bool = True
    kill_locks: bool = True
    marked_only: bool = True
    one_of_claims: bool = True
    new_identity: bool = True
    dead_only: bool = True
    marker_cleared: bool = True
    batch_innocent: bool = True
    batch_fence: bool = True
    batch_undone: bool = True
    batch_suspected: bool = True
    batch_halved: bool = True
    rerun_alone: bool = True
    suspects_alone: bool = True
    one_suspect: bool = True
    environment_bound: bool = True
    suspect_crash_counts: bool = True
    crash_innocent: bool = True
    ghost_remembered: bool = True
    query_compared: bool = True
    claim_fence: bool = True
    spark_epoch: bool = True
    spark_anchor: bool = True
    halves: bool = True
    alone_charged: bool = True
    staged_outside: bool = True
    stage_counted: bool = True
    void_whole: bool = True
    void_failed: bool = True
    state_kept: bool = True
    state_kills: bool = True


class World:
    """A setting under rules: where everything is in a state, and how a step is told."""

    def __init__(self, setting: Setting, rules: Rules) -> None:
        self.setting = setting
        self.rules = rules
        count = len(setting.kinds)
        self.q = tuple(HEAD + REQUEST_SIZE * n for n in range(count))
        base = HEAD + REQUEST_SIZE * count
        self.e = tuple(base + ENTRY_SIZE * n for n in range(setting.entries))
        base += ENTRY_SIZE * setting.entries
        self.c = tuple(base + CLIENT_SIZE * n for n in range(setting.clients))
        self.z = base + CLIENT_SIZE * setting.clients
        self.size = self.z + (SPARK_SIZE if setting.spark else 0)
        self.bits = tuple((1 << n, q) for n, q in enumerate(self.q))
        self.at = dict(self.bits)
        self.bit = {q: bit for bit, q in self.bits}
        self.kind = dict(zip(self.q, setting.kinds, strict=True))
        owners = setting.owners or (-1,) * count
        self.own = tuple(
            tuple(q for q, owner in zip(self.q, owners, strict=True) if owner == n)
            for n in range(setting.clients)
        )
        self.requests_of = dict(zip(self.c, self.own, strict=True))
        size = setting.sessions
        self.process = {x: self.e[n // size * size :][:size] for n, x in enumerate(self.e)}
        self.first_queued = tuple(
            q
            for q, owner, kind in zip(self.q, owners, setting.kinds, strict=True)
            if owner < 0 and kind is not Kind.SPARE
        )
        self._names = {q: f"request {n + 1}" for n, q in enumerate(self.q)}
        self._names |= {x: f"session {n + 1}" for n, x in enumerate(self.e)}
        self._names |= {c: f"client {n + 1}" for n, c in enumerate(self.c)}

    def start(self) -> State:
        """Return the first state."""
        n = bytearray(self.size)
        n[LEFT], n[WISHES] = self.setting.faults, self.setting.wishes
        for q in self.first_queued:
            n[q + PLACE] = QUEUED
        for number, x in enumerate(self.e):
            n[x + NUM] = number + 1
        return bytes(n)

    def describe(self, s: State) -> tuple[str, ...]:
        """Return where every request is in a state, in words."""
        return tuple(self._of_request(s, q) for q in self.q)

    def _of_request(self, s: State, q: int) -> str:
        flags = [name for n, name in enumerate(FLAG_NAMES) if s[q + FLAGS] & 1 << n]
        return ", ".join(
            (
                f"{self._names[q]}: {PLACES[s[q + PLACE]]}",
                f"outcome {OUTCOMES[s[q + OUTCOME]]}",
                f"effects {s[q + EFFECTS]}",
                f"replies {s[q + REPLIES]}",
                f"aborts {s[q + ABORTS]}",
                *flags,
            )
        )

    def say(self, s: State, label: Label) -> str:
        """Return what a step from s did, in words."""
        text, first, second = label
        is_ghost = text.startswith("{}") and first in self.e and s[first + LIFE] in GHOSTLY
        told = text.format(self._names.get(first, ""), self._names.get(second, ""))
        return f"a ghost of {told}" if is_ghost and s[first + PHASE] else told


def move(s: State, out: Moves, label: Label, kind: int = PROGRESS) -> Draft:
    """Add a step from s and return the draft of where it leads, to be changed by the caller."""
    n = bytearray(s)
    out.append((kind, label, n))
    return n


def fault(s: State, out: Moves, label: Label) -> Draft:
    """Add a step that goes wrong; one fault fewer may follow."""
    n = move(s, out, label, FAULT)
    n[LEFT] -= 1
    return n


def broken(n: Draft, guarantee: int) -> None:
    """Note that the step into n broke a guarantee; the first one stays."""
    if not n[BAD]:
        n[BAD] = guarantee
