"""The server's operations (BHM90 figure 5; spec S1). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from onceq.model.element import Charge, Element, Fate
from onceq.model.ops.base import Integer, Op, SmallInt, Unsaid


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One life of a server session. slot: the number of its advisory lock and started marker."""

    slot: int
    incarnation: int
    backend_pid: int


class OpenIncarnation(
    Op[Incarnation], changes="a server session's life begins, and takes back what the former held"
):
    """Begins an incarnation on this connection; takes back what `former` has claimed.

    former: of the same process, so that the environment is to blame for what it had started (G7).
    identity: by which processes on the same machine can tell whether this one is gone; None: none
    can.
    """

    process: UUID
    host: str
    pid: Integer
    former: int | None = None
    identity: str | None = None


class CloseIncarnation(Op[bool], changes="a server session's life ends in good order"):
    """Ends an incarnation; what it holds goes back, uncharged."""

    incarnation: int


class TakeOver(Op[int], changes="the claims of processes that are missing are taken over"):
    """Takes over from missing processes, whose sessions have all ended; returns how many.

    What they had not started comes back at once. The rest waits for a verdict, for a minute at most
    (G7).
    The answer is one more if something was taken over from Spark servers.
    """

    process: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A process that waits for a verdict."""

    process: UUID
    identity: str


class FindMissing(Op[list[Missing]]):
    """The processes that wait for a verdict and have an identity."""


class IsAlive(Op[bool | None]):
    """Whether the process with this identity lives; None if nobody here can tell."""

    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """An abort, as it was counted. attempt: 1 for the first. error: what was recorded."""

    queue: str
    rid: str
    eid: UUID
    attempt: int
    charge: Charge
    code: str
    error: str
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """What became of what an incarnation held: returned uncharged, suspects, charged.

    process, host, pid: whose it was; None where it is forgotten, or a Spark server's. spark_server:
    the name of that. aborted: the suspects and the charged, one by one; of a Spark server none, as
    none is counted yet.
    """

    incarnation: int
    process: UUID | None
    host: str | None
    pid: int | None
    spark_server: str | None = None
    returned: int
    suspects: int
    charged: int
    aborted: list[Aborted]


class ListTakenOver(Op[list[TakenOver]]):
    """What this session has taken back since it last asked."""


class Verdict(StrEnum):
    """What is known of a missing process. ENDED: it has died. LIVES: it was cut off."""

    ENDED = "ended"
    LIVES = "lives"


class Judge(Op[bool], changes="a process that is missing is said to have ended, or to live"):
    """Gives a verdict on a process; returns whether anything was known of it.

    ENDED: what it had started is charged (G7). LIVES: the environment is to blame; this takes
    effect once the process has been missing for a second, as a dying process may still live.
    """

    process: UUID
    verdict: Verdict


class Claim(Op[list[Element]], changes="requests are claimed"):
    """Claims up to n elements; turn alternates between lanes; alone: suspects may be claimed.

    turn: -1: suspects come first. everything: looks below the low-water marks too. may_lose: a
    crash of the database may undo the claim of what has never failed. slot: the session's. asleep:
    the queues on which it is asleep; it wakes when it gets something. sleep: those on which it
    falls asleep if there is nothing. drowsy: whether it expects that.
    """

    incarnation: int
    queue_id: Integer
    n: Integer
    turn: Integer
    alone: bool
    everything: bool = False
    may_lose: bool = False
    slot: Integer | None = None
    asleep: list[Integer] | None = None
    sleep: list[Integer] | None = None
    drowsy: bool = False


class Attend(Op[bool]):
    """Notes which queues a session serves: asleep, it is rung for them. It is awake now."""

    slot: Integer
    queue_ids: list[Integer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a sweep saw: a number that elements have reached, and who may still insert below it."""

    value: int
    holders: list[str]


class Sweep(Op[Observation], changes="the low-water marks are moved", in_doubt=False):
    """Moves the low-water marks of queues by the previous observation, and makes a new one."""

    queue_ids: list[Integer]
    value: int | None
    holders: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What a survey saw. missing: how many processes. numbers: of the queues; 0: no such queue.

    ready, stopped: for each queue, whether a claim would find something now, and whether it is
    stopped for dequeue. due_s: when the next element is due. seen: for the next sweep or survey.
    ticks: whether a periodic request is due, or history that is kept no longer.
    """

    missing: int
    numbers: list[int]
    ready: list[bool]
    stopped: list[bool]
    due_s: float | None
    seen: Observation
    ticks: bool


class Survey(Op[Sighting], changes="one session has looked for all of its process that sleep"):
    """Takes over, sweeps, and looks into queues by name, for all the sleepers of a process.

    everything: below the low-water marks too. tidy: ends what a handler left in this session.
    value, holders: as for Sweep.
    """

    process: UUID
    queues: list[str]
    everything: bool
    tidy: bool
    value: int | None
    holders: list[str]


class Rest(StrEnum):
    """Why a sleeper wakes. LOOK: there may be something to claim. WATCH: to survey for all.

    ATTEND: the queues have changed.
    """

    LOOK = "look"
    WATCH = "watch"
    ATTEND = "attend"


class Sleep(Op[Rest]):
    """Sleeps until there may be something to do: a ring, a call of a sibling, a stop; or WATCH.

    The first few of a series are short, and end by LOOK. After that, one session of the process
    keeps watch: the one that came last. queues: that it serves. within_s: when to survey next;
    None: now.
    """

    queues: list[str]
    first: bool
    within_s: float | None = None


class Rouse(Op[None]):
    """Calls sleeping siblings in this process: one for each queue; None: all, to attend."""

    queues: list[str] | None


class StillClaimed(Op[list[int]]):
    """Which of these elements an incarnation still claims, by seq: others were killed."""

    seqs: list[int]
    incarnation: int


class ClaimEid(Op[Element | None], changes="the request of one eid is claimed"):
    """Claims the element of a queue with this eid.

    None if it is not there, claimed by another or not due yet, or if the queue is stopped.
    """

    incarnation: int
    queue_id: Integer
    eid: UUID


class Begin(Op[bool], changes="the handler's transaction begins, and the started marker is set"):
    """Begins the handler's transaction and sets the started marker of this slot to `seq`.

    False: not now, and nothing has happened: a suspect runs in this process or is next, or this is
    one and something else runs. seq: for a batch, minus the seq of its first: several are under
    way, and none is named; no statement then waits long for a lock. alone: this is a suspect, or
    several. effects: False if the handler declared that it writes nothing.
    """

    slot: int
    seq: int
    token: str
    isolation: str
    alone: bool
    effects: bool = True


class Commit(Op[None], changes="COMMIT is sent, and answered"):
    """Commits. InDoubt if the answer is lost, or says that durability was cut short."""


class Rollback(Op[bool], changes="an execution that failed is rolled back"):
    """Rolls back; succeeds if there is nothing to roll back.

    Returns whether a handler had committed what a batch had done: that stays.
    """


class MayGoOn(Op[bool]):
    """Whether a batch may call its next handler; asked after each one. False: it is to finish now.

    That is so when its time is over, or a stop is due. Raises HandlerMisuse if the handler ended
    the transaction, StatementRefused if it swallowed that a statement failed.
    """


class Call(Op[bytes], changes="the handler runs"):
    """Calls a queue's handler with an element inside the transaction; returns the encoded reply.

    Raises HandlerFailed, Reject, Retry, HandlerMisuse, InvalidValue (the request is not of the
    queue's type), StatementRefused, EnvironmentFault, ConnectionLost.
    """

    queue: str
    element: Element


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The result of a finish. following: claimed next."""

    following: list[Element]


class Finish(
    Op[Finished], changes="requests, their replies and history change places, and it is committed"
):
    """Removes claimed elements, writes their replies and history, and claims n more.

    ClaimLost: one of them is no longer claimed. commit: then commits; InDoubt as for Commit.
    effects: whether the handler may have written; False lets the commit of volatile elements be
    asynchronous. slot, sleep, drowsy: as for Claim. batch: of a batch, however few it has done: it
    waits for locks as long as it takes. HandlerMisuse: the handler ended the transaction.
    """

    seqs: list[int]
    incarnation: int
    replies: list[bytes]
    content_type: str | None
    token: str
    effects: bool = True
    queue_id: Integer
    n: Integer
    turn: Integer
    alone: bool
    slot: Integer | None = None
    sleep: list[Integer] | None = None
    drowsy: bool = False
    batch: Unsaid = False
    commit: Unsaid = False

    @property
    def seq(self) -> int:
        """The first element; `reply` is its reply."""
        return self.seqs[0]

    @property
    def reply(self) -> bytes:
        """The first reply."""
        return self.replies[0]


class AbortElement(
    Op[Fate], changes="an execution that failed is counted, in a transaction of its own"
):
    """Ends an execution that failed, in a transaction of its own (finding 4).

    traceback: where in the handler it failed, for those who look for the reason; no reply has it.
    after_s: the wait before the next execution; None: the queue's back-off. together: of a suspect,
    with how many of its batch it may run at most, itself included; None: it runs alone.
    """

    seq: int
    incarnation: int
    charge: Charge
    code: str | None
    error: str | None
    traceback: str | None = None
    after_s: float | None = None
    together: SmallInt | None = None


class MayTend(Op[bool]):
    """Whether it is time to look for what is due, besides requests: once a second in a process.

    By the process's own clock, which nobody sets; whoever is told True looks.
    """


class Stopping(Op[bool]):
    """Whether this program has been asked to stop."""


class Wait(Op[bool]):
    """Waits a little for something to change; False if the deadline has passed or a stop is due.

    key: what is waited for, so that repeated waits can grow longer. timeout_s: for the whole
    series of waits that began with `first`; None: for ever (until a stop). within_s: the longest
    that this wait may take.
    """

    key: str
    first: bool
    timeout_s: float | None = None
    within_s: float | None = None
