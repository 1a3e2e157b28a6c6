"""The server's Program: claim, begin, call the handler, finish, commit, for ever until a stop.

Run by Server, on any Driver, and by the simulator. One Program is one session, one life. When it
raises, its connection is given up, and the next life takes back what it held. Source: BHM90
figure 5; who is charged for what: spec G7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from onceq.engine.wake.waiting import Wakes
from onceq.manager.program import judge_missing, take_over
from onceq.manager.ticking import tend, tend_at_times
from onceq.model import ops
from onceq.model.element import Element
from onceq.server.execution import Execution, Width, execute
from onceq.server.telling import Told, tell_taken_over

TURNS = 2**30
"""Turns are counted modulo this: they travel as 4-byte integers, and a life may last for years."""
TAKE_OVER_EVERY = 64
"""A busy session looks for dead ones after this many executions."""
LOOK_AT_EVERYTHING = 16
"""A session's surveys look below the low-water marks too, once in this many."""
NO_QUEUE = 0
"""No queue has this number: nothing is ever claimed from it."""
SURVEY_EVERY_S = 1.0
"""How often an idle process looks on its own: for the dead, and for rings that were lost."""
SURVEY_SOON_S = 0.25
"""How often while a missing process may yet be found dead."""
SURVEY_AT_ONCE_S = 0.025
"""How soon when something could not be claimed a moment ago; doubled each time."""


@dataclass(frozen=True, slots=True)
class Served:
    """A queue that is served. isolation: of the handler's transactions.

    batch: how many requests may share one. effects: whether the handler may write. abort_limit,
    error_queue: in place of the queue's; None: the queue's.
    """

    queue: str
    isolation: str
    batch: int = 1
    effects: bool = True
    abort_limit: int | None = None
    error_queue: str | None = None


@dataclass(slots=True)
class Counts:
    """What a session has done."""

    done: int = 0
    failed: int = 0
    returned: int = 0
    claims_lost: int = 0
    lives: int = 0


@dataclass(slots=True)
class Standing:
    """What the latest survey of a process saw. stopped: the queues stopped for dequeue."""

    stopped: list[str] = field(default_factory=list[str])


@dataclass(slots=True, kw_only=True)
class ServerSession:
    """One of a process's sessions. incarnation: of its present or last life; None: not yet born.

    process: the whole process's. watched: all queues that it serves; (): those of this session.
    identity: as in OpenIncarnation. fault_in_row: whether the last execution met a fault.
    gave_back: whether something that was claimed could not begin. missing: its queues that do
    not exist. standing: shared by all sessions of the process. wakes: how its waits ended. tell: is
    told what happens to the session, and must be quick; None: nobody is told.
    """

    process: UUID
    host: str
    pid: int
    served: tuple[Served, ...]
    watched: tuple[str, ...] = ()
    identity: str | None = None
    incarnation: int | None = None
    fault_in_row: bool = False
    gave_back: bool = False
    missing: list[str] = field(default_factory=list[str])
    standing: Standing = field(default_factory=Standing)
    tell: Callable[[Told], object] | None = None
    counts: Counts = field(default_factory=Counts)
    wakes: Wakes = field(default_factory=Wakes)

    @property
    def names(self) -> list[str]:
        """The queues that this session serves."""
        return [one.queue for one in self.served]


@dataclass(slots=True, kw_only=True)
class Looks:
    """How a session looks for requests. at: which queue is next.

    turns: the number of each queue's last claim, by which its lanes take turns at being first,
    whatever the other queues do. widths: how many are claimed from each at once. claims: how many
    looks have found something. executions: how many there were. misses: looks in a row that found
    nothing, counted anew when it falls asleep. hits: looks in a row that found something.
    waits: how often it has slept since the last hit.
    asleep: the queues on which it is registered as asleep. seen: what its last sweep observed.
    surveys: how many it has made; everything: the last one looked below the marks too. vain: how
    many in a row saw something that it could not claim.
    """

    queue_ids: list[int]
    at: int
    turns: list[int]
    widths: list[Width]
    misses: int = 0
    hits: int = 0
    waits: int = 0
    claims: int = 0
    executions: int = 0
    surveys: int = 0
    vain: int = 0
    everything: bool = False
    asleep: list[int] | None = None
    seen: ops.Observation | None = None

    @classmethod
    def of(cls, session: ServerSession, life: ops.Incarnation) -> Looks:
        """Returns how a life begins to look.

        Each begins elsewhere: what ends one life must not be the first thing the next one finds.
        """
        queues = len(session.served)
        at, turn = life.incarnation % queues, life.incarnation % TURNS
        widths = [Width(served.batch, served.batch) for served in session.served]
        return cls(queue_ids=[], at=at, turns=[turn] * queues, widths=widths)

    def next_queue(self) -> int:
        """Returns which queue to look at now."""
        at = self.at
        self.at = (at + 1) % len(self.turns)
        return at

    def next_turn(self, at: int) -> int:
        """Returns the number of the next claim from a queue."""
        self.turns[at] = (self.turns[at] + 1) % TURNS
        return self.turns[at]

    def give_back_turn(self, at: int) -> None:
        """Notes that the claim with the latest number did not come about: the next one has it."""
        self.turns[at] = (self.turns[at] - 1) % TURNS

    def note(self, found: list[Element], sleep: list[int] | None) -> None:
        """Notes the result of a claim; if it found nothing, it was to fall asleep on `sleep`."""
        if found:
            self.misses = self.waits = self.vain = 0
            self.hits += 1
            self.claims += 1
            self.asleep = None
            return
        self.hits = 0
        if sleep is not None:
            self.misses, self.asleep = 1, sleep
        else:
            self.misses += 1


def serve(session: ServerSession) -> ops.Program[None]:
    """Serves the session's queues until a stop is due; raises when this life is over."""
    life = yield from ops.OpenIncarnation(
        process=session.process,
        host=session.host,
        pid=session.pid,
        former=session.incarnation,
        identity=session.identity,
    )
    former, session.incarnation = session.incarnation, life.incarnation
    session.counts.lives += 1
    looks = Looks.of(session, life)
    yield from _take_over(session, comes_back=former is not None)
    yield from _attend(session, life, looks, (yield from _queue_ids(session)))
    yield from _sweep(looks)
    while not (yield from ops.Stopping()):
        at, pending = yield from _look(life, looks)
        while pending and not (yield from ops.Stopping()):
            pending = yield from _execute(session, life, looks, Pending(at, pending))
            looks.executions += 1
            yield from tend_at_times()
            if looks.executions % TAKE_OVER_EVERY == 0:
                yield from _take_over(session)
                yield from _sweep(looks)
        if looks.asleep is not None and looks.misses % len(looks.queue_ids) == 0:
            yield from _idle(session, life, looks)
    yield from ops.CloseIncarnation(incarnation=life.incarnation)
    session.incarnation = None


@dataclass(frozen=True, slots=True)
class Pending:
    """What was claimed from a queue, and is to be executed."""

    at: int
    elements: list[Element]


def _execute(
    session: ServerSession, life: ops.Incarnation, looks: Looks, claimed: Pending
) -> ops.Program[list[Element]]:
    """Executes what was claimed; returns what was claimed next, chained to its finish.

    With several queues, the others come first. At a stricter isolation level the next claim follows
    in a transaction of its own: a conflict in the claim must not throw away finished work.
    """
    served = session.served[claimed.at]
    chains = len(session.served) == 1 and served.isolation == "read committed"
    turn = looks.next_turn(claimed.at) if chains else looks.turns[claimed.at]
    queue_id = looks.queue_ids[claimed.at]
    run = Execution(
        served,
        queue_id,
        claimed.elements,
        turn,
        chains,
        width=looks.widths[claimed.at],
        drowsy=looks.hits == 1,
    )
    following = yield from execute(session, life, run)
    if session.gave_back:
        session.gave_back = False
        looks.at = claimed.at  # look for a suspect there
    if following is None:
        if chains:  # or each failure would skip the turn of the same lane
            looks.give_back_turn(claimed.at)
        return []
    looks.note(following, list(looks.queue_ids))
    return following


def _look(life: ops.Incarnation, looks: Looks) -> ops.Program[tuple[int, list[Element]]]:
    """Claims from the next queue; returns which it was, and what was claimed.

    Such a claim may be lost if the database crashes, except for the first of a life that finds
    something. If that could be lost too, a request that brings the database down would be claimed
    for ever. A session that has found nothing in any of its queues falls asleep, then looks at all
    of them once more: what came meanwhile rang nobody. It does so after a ring, too, which does not
    name a queue.
    """
    queues = len(looks.queue_ids)
    at = looks.next_queue()
    sleep = list(looks.queue_ids) if looks.asleep is None and looks.misses >= queues - 1 else None
    pending = yield from ops.Claim(
        incarnation=life.incarnation,
        queue_id=looks.queue_ids[at],
        n=looks.widths[at].now,
        turn=looks.next_turn(at),
        alone=True,
        everything=looks.everything,
        may_lose=looks.claims > 0,
        slot=life.slot,
        asleep=looks.asleep,
        sleep=sleep,
        drowsy=sleep is not None,
    )
    looks.note(pending, sleep)
    return at, pending


def _take_over(session: ServerSession, *, comes_back: bool = False) -> ops.Program[None]:
    """Takes over, and tells of it. comes_back: tells also what its own former life held."""
    if (yield from take_over(session.process)) or comes_back:
        yield from tell_taken_over(session)


def _sweep(looks: Looks) -> ops.Program[None]:
    seen = looks.seen
    looks.seen = yield from ops.Sweep(
        queue_ids=looks.queue_ids,
        value=None if seen is None else seen.value,
        holders=[] if seen is None else seen.holders,
    )


def _idle(session: ServerSession, life: ops.Incarnation, looks: Looks) -> ops.Program[None]:
    """Sleeps until there may be something to claim; surveys when it is this session's turn."""
    within_s = None
    while True:
        rest = yield from ops.Sleep(queues=session.names, first=looks.waits == 0, within_s=within_s)
        looks.waits += 1
        if rest is not ops.Rest.WATCH:
            break
        sighting = yield from _survey(session, life, looks, tidy=within_s is None)
        ready = [name for name in _ready(session, sighting) if name in session.names]
        if looks.asleep is None or (ready and within_s is not None):
            return
        looks.vain = looks.vain + 1 if ready else 0
        within_s = _until_next(sighting, looks.vain)
    if rest is ops.Rest.ATTEND or NO_QUEUE in looks.queue_ids:
        yield from _attend(session, life, looks, (yield from _queue_ids(session)))


def _watched(session: ServerSession) -> list[str]:
    return list(session.watched) or session.names


def _ready(session: ServerSession, sighting: ops.Sighting) -> list[str]:
    return [name for name, ready in zip(_watched(session), sighting.ready, strict=True) if ready]


def _until_next(sighting: ops.Sighting, vain: int) -> float:
    """Returns how many seconds to wait before the next survey. vain: see Looks."""
    within_s = SURVEY_SOON_S if sighting.missing else SURVEY_EVERY_S
    if vain > 0:
        within_s = min(within_s, SURVEY_AT_ONCE_S * 2**vain)
    return within_s if sighting.due_s is None else min(within_s, sighting.due_s)


def _survey(
    session: ServerSession, life: ops.Incarnation, looks: Looks, *, tidy: bool
) -> ops.Program[ops.Sighting]:
    """Looks on behalf of all sleepers of this process, and calls those with something to claim."""
    seen = looks.seen
    looks.surveys += 1
    looks.everything = looks.surveys % LOOK_AT_EVERYTHING == 0
    watched = _watched(session)
    sighting = yield from ops.Survey(
        process=session.process,
        queues=watched,
        everything=looks.everything,
        tidy=tidy,
        value=None if seen is None else seen.value,
        holders=[] if seen is None else seen.holders,
    )
    looks.seen = sighting.seen
    if sighting.missing:
        yield from judge_missing()
        yield from tell_taken_over(session)
    if sighting.ticks:
        yield from tend()
    session.standing.stopped = [
        name for name, stopped in zip(watched, sighting.stopped, strict=True) if stopped
    ]
    numbers = dict(zip(watched, sighting.numbers, strict=True))
    if (yield from _attend(session, life, looks, [numbers[name] for name in session.names])):
        session.missing = [name for name in session.names if numbers[name] == NO_QUEUE]
        yield from ops.Rouse(queues=None)
    others = [name for name in _ready(session, sighting) if name not in session.names]
    if others:
        yield from ops.Rouse(queues=others)
    return sighting


def _attend(
    session: ServerSession, life: ops.Incarnation, looks: Looks, found: list[int]
) -> ops.Program[bool]:
    """Notes which queues exist now: one may have been destroyed and created anew."""
    changed = found != looks.queue_ids
    if changed:
        if looks.asleep is not None:  # on what it served until now
            yield from ops.Attend(slot=life.slot, queue_ids=looks.queue_ids)
            looks.asleep, looks.misses = None, 0
        looks.queue_ids = found
        yield from _set_terms(session, life, looks)
        yield from ops.Attend(slot=life.slot, queue_ids=found)
    return changed


def _set_terms(session: ServerSession, life: ops.Incarnation, looks: Looks) -> ops.Program[None]:
    """Says on what terms this life claims, before it claims anything."""
    for served, queue_id in zip(session.served, looks.queue_ids, strict=True):
        if queue_id != NO_QUEUE and (served.abort_limit, served.error_queue) != (None, None):
            yield from ops.SetTerms(
                incarnation=life.incarnation,
                queue_id=queue_id,
                abort_limit=served.abort_limit,
                error_queue=served.error_queue,
            )


def _queue_ids(session: ServerSession) -> ops.Program[list[int]]:
    """Returns the queues' numbers; NO_QUEUE for one that does not exist."""
    found: list[int] = []
    missing: list[str] = []
    for one in session.served:
        infos = yield from ops.ListQueues(queue=one.queue)
        found.append(infos[0].queue_id if infos else NO_QUEUE)
        missing += [] if infos else [one.queue]
    session.missing = missing
    return found
