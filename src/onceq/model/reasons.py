"""Why a request does not run: a table of reasons. Pure.

The rows are in order: of those that hold, the first is the answer. Each condition by which a claim
passes an element over (server.sql, order.sql) has a row, and a test has a scene for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from onceq.model.element import Lane, Role
from onceq.model.facts import Facts, Unknown


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a request does not run, or what it waits for. name: its row. advice: what to do."""

    name: str
    words: str
    advice: str


@dataclass(frozen=True, slots=True)
class Why:
    """A row of the table. phase: as in Facts, or "unknown". words, advice: with fields of those."""

    name: str
    phase: str
    holds: Callable[[Any], bool]
    words: str
    advice: str


def _held_by(kind: str, *, alive: bool | None = None) -> Callable[[Facts], bool]:
    """Holds if this kind of holder has claimed it; alive: whether that lives; None: either."""
    return lambda f: (
        f.holder == kind and f.missed_at is None and (alive is None or f.is_alive is alive)
    )


WHYS: Final = (
    Why(
        "uncommitted",
        "unknown",
        lambda u: u.open_by is not None and u.outcome is None,
        "a transaction of this client is open since {f.began} (backend {f.open_by}): what it sends "
        "is not there before its commit",
        "let it commit; pg_stat_activity shows what backend {f.open_by} does",
    ),
    Why(
        "trimmed",
        "unknown",
        lambda u: u.outcome is not None,
        "it has ended, {f.outcome}, and its history was trimmed (eid {f.eid})",
        "look into the archive: archive=True, or `onceq request show`",
    ),
    Why(
        "other_client",
        "unknown",
        lambda u: bool(u.namesakes),
        "this rid is another client's: {f.names}",
        "ask with that name",
    ),
    Why(
        "similar_name",
        "unknown",
        lambda u: bool(u.similar_names) and not u.is_known,
        "there are clients with a similar name: {f.similar}",
        "ask with the right name: `onceq client list` shows all",
    ),
    Why(
        "no_client",
        "unknown",
        lambda u: not u.is_known,
        "no client of this name was ever here",
        "`onceq client list` shows all; `onceq url` says which repository this is",
    ),
    Why(
        "unknown_rid",
        "unknown",
        lambda u: u.is_known and u.outcome is None,
        "this client has sent no such request, as far as can be seen: not before a send commits",
        "ask the client; its `recover()` says what it has sent last",
    ),
    Why(
        "on_hold",
        "held",
        lambda f: f.role != Role.FAILED,
        "it was aborted {f.aborts} time(s), the last time by {f.code}, and queue {f.queue} holds "
        "it for an operator",
        "mend the cause, then `onceq error retry {f.eid}`; or `onceq error give-up {f.eid}`",
    ),
    Why(
        "held",
        "held",
        lambda f: f.role == Role.FAILED,
        "it has failed, and is held in {f.queue}",
        "mend the cause, then `onceq redrive {f.eid}`",
    ),
    Why(
        "runs",
        "claimed",
        _held_by("server", alive=True),
        "a server that lives has claimed it, and {f.progress} (process {f.holder_pid} on "
        "{f.holder_host})",
        "wait for it; `onceq kill {f.eid}` cancels it",
    ),
    Why(
        "server_gone",
        "claimed",
        lambda f: f.holder in {"server", "dequeuer"} and f.is_alive is False and not f.missed_at,
        "a process that has ended has claimed it, and nobody has taken over yet (process "
        "{f.holder_pid} on {f.holder_host})",
        "start a server: it takes over at once; one that serves does within a second",
    ),
    Why(
        "verdict",
        "claimed",
        lambda f: f.missed_at is not None,
        "it ran in a process that is missing since {f.missed_since}, and waits for a verdict: "
        "whether that process has ended (process {f.holder_pid} on {f.holder_host})",
        "wait a minute; a server on that machine knows at once",
    ),
    Why(
        "dequeued",
        "claimed",
        _held_by("dequeuer", alive=True),
        "a program has dequeued it in a transaction of its own that has not ended (process "
        "{f.holder_pid} on {f.holder_host})",
        "let that program commit or roll back",
    ),
    Why(
        "spark",
        "claimed",
        _held_by("spark"),
        "Spark server {f.holder_name} has claimed it for a batch, and {f.progress}",
        "see that its query runs: a new life of that server goes on with the batch",
    ),
    Why(
        "planned",
        "claimed",
        _held_by("relay"),
        "relay {f.holder_name} has given it a number in a stream, where it is not yet stable",
        "see that the relay runs, and its stores",
    ),
    Why(
        "orphaned",
        "claimed",
        _held_by("nobody"),
        "it is claimed by nobody who is known",
        "servers give it back within minutes: start one; else report a defect",
    ),
    Why(
        "lost",
        "waits",
        lambda f: f.is_lost,
        "a crash of the database took it: its queue, {f.queue}, is volatile",
        "send it again; a durable queue keeps what it has",
    ),
    Why(
        "expired",
        "waits",
        lambda f: f.has_expired,
        "its time was over at {f.expired}: the next look at it gives it an expired reply",
        "send it again, with more time",
    ),
    Why(
        "stopped",
        "waits",
        lambda f: not f.is_started,
        "queue {f.queue} is stopped for dequeue",
        "`onceq queue start {f.queue} --dequeue`",
    ),
    Why(
        "paused",
        "waits",
        lambda f: f.paused_until is not None,
        "the environment failed again and again, with nothing done between: nothing is dequeued "
        "from queue {f.queue} until {f.resumes}",
        "the log says what failed; `onceq queue start {f.queue} --dequeue` ends the pause",
    ),
    Why(
        "full",
        "waits",
        lambda f: f.met_full_queue,
        "a queue into which its handler enqueues is full: it is tried again at {f.until}, charged "
        "for nothing",
        "`onceq top` shows what is full; more servers there, or `onceq queue alter NAME "
        "--depth-max N`",
    ),
    Why(
        "back_off",
        "waits",
        lambda f: f.is_early and f.returned > 0 and not f.met_full_queue,
        "it is in back-off after abort {f.returned}, until {f.until}",
        "`onceq request show {f.rid}` says why it was aborted",
    ),
    Why(
        "not_before",
        "waits",
        lambda f: f.is_early and f.returned == 0 and not f.met_full_queue,
        "whoever sent it asked that it waits until {f.until}",
        "wait, or kill it and send it without not_before",
    ),
    Why(
        "head",
        "waits",
        lambda f: f.head is not None,
        "queue {f.queue} is in strict order, and {f.head_rid} is before it, as {f.rule}",
        "`onceq explain {f.head}`; to kill that one lets the queue go on",
    ),
    Why(
        "rival",
        "waits",
        lambda f: f.rival is not None,
        "it is a suspect, and another suspect runs: one at a time in a repository",
        "`onceq explain {f.rival}`",
    ),
    Why(
        "line",
        "waits",
        lambda f: f.line_by is not None,
        "a session is claiming from its line, and has not committed (backend {f.line_by})",
        "wait; pg_stat_activity shows what backend {f.line_by} does",
    ),
    Why(
        "locked",
        "waits",
        lambda f: f.locked_by is not None,
        "a transaction holds it that has not ended, as a claim or a kill (backend {f.locked_by})",
        "wait; pg_stat_activity shows what backend {f.locked_by} does",
    ),
    Why(
        "hidden",
        "waits",
        lambda f: f.is_hidden,
        "claims do not look where it stands: a low-water mark is above it",
        "an idle server looks there within 16 s, and mends it: start one; else report a defect",
    ),
    Why(
        "no_server",
        "waits",
        lambda f: f.sessions + f.others == 0,
        "nobody serves queue {f.queue}{f.ended}",
        "`onceq serve` with a handler for that queue; `onceq top` shows who lives",
    ),
    Why(
        "busy",
        "waits",
        lambda f: f.sessions > 0 and f.busy >= f.sessions and not f.others,
        "all {f.sessions} session(s) that serve queue {f.queue} are busy",
        "start more processes or sessions; `onceq top` shows what each does",
    ),
    Why(
        "suspect",
        "waits",
        lambda f: f.lane == Lane.SUSPECT and not f.is_early,
        "it is a suspect: it ran when something ended, and runs when nothing else does in a "
        "process",
        "wait; `onceq request show {f.rid}` says what happened",
    ),
    Why(
        "before",
        "waits",
        lambda f: f.before > 0,
        "{f.number_before} of queue {f.queue} come before it, by priority or as they were there "
        "first",
        "start more servers; a priority is given when a request is sent",
    ),
)
"""The table, in order."""

NEXT: Final = Why(
    "next",
    "waits",
    lambda _: True,
    "nothing holds it up: it is next in queue {f.queue}",
    "look again: a server claims it within a second",
)
"""What there is to say when no reason holds."""


NO_ELEMENT: Final = Reason(
    "no_element",
    "nothing of this eid is or was here, as far as history is kept; what a transaction enqueues is "
    "not there before its commit",
    "look into the archive: archive=True, or `onceq request show`",
)
"""What there is to say of an eid that is nowhere."""


def reasons_of(facts: Facts | Unknown) -> tuple[Reason, ...]:
    """Returns all reasons that hold, in the order of the table; at least one."""
    found = [why for why in WHYS if why.phase == facts.phase and why.holds(facts)]
    return tuple(
        Reason(why.name, why.words.format(f=facts), why.advice.format(f=facts))
        for why in found or [NEXT]
    )
