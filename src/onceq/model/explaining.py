"""What happened to a request, and why it does not run, put together from what was asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from onceq.errors import InvalidValue
from onceq.model.admin_ops import SessionLoad
from onceq.model.element import (
    Attempt,
    ElementState,
    OldRequest,
    RequestOutcome,
    RequestState,
    Role,
)
from onceq.model.facts import Facts, Unknown
from onceq.model.reasons import NO_ELEMENT, Reason, reasons_of

LATEST: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Step:
    """What happened to a request once. at: None: it is not known when."""

    at: datetime | None
    name: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What happened to a request, and why it does not run.

    state: as in RequestState; None: it is in no queue and in no history. queue: where it was sent
    to. life: what happened, the earliest first; what has no time is last. reasons: why it does not
    run, in order; () if it has ended. eid, queue: None if it is not known.
    """

    registrant: str | None
    thread: str | None
    rid: str
    eid: UUID | None
    queue: str | None
    state: ElementState | None
    life: tuple[Step, ...]
    reasons: tuple[Reason, ...]

    @property
    def answer(self) -> Reason | None:
        """The first reason that holds; None if it has ended."""
        return self.reasons[0] if self.reasons else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which request is meant: a rid of a client, or an eid. archive: also what was trimmed."""

    registrant: str | None
    rid: str | None
    eid: UUID | None
    archive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found of one request. place: the one that is told of; reply: of its reply, if any.

    old: how it ended; None: it has not. is_archived: the tables have nothing of it. facts: if it is
    in a queue; head: of what a strict queue runs before it. servers: that are known now.
    """

    place: RequestState
    reply: RequestState | None = None
    old: OldRequest | None = None
    is_archived: bool = False
    aborts: list[Attempt] = field(default_factory=list["Attempt"])
    facts: Facts | None = None
    head: Facts | None = None
    servers: list[SessionLoad] = field(default_factory=list["SessionLoad"])


def chosen(asked: Asked, places: list[RequestState]) -> RequestState | None:
    """Returns the place of the request that is meant; None: there is none. InvalidValue: several.

    One that is in a queue counts before its history.
    """
    own = [one for one in places if one.role is not Role.REPLY]
    if len({one.eid for one in own}) > 1:
        listed = ", ".join(sorted({f"{one.eid} (thread {one.thread!r})" for one in own}))
        raise InvalidValue(f"several requests have the rid {asked.rid!r}: give an eid: {listed}")
    own.sort(key=lambda one: one.state is ElementState.FINISHED)
    return own[0] if own else None


def reply_of(place: RequestState, places: Iterable[RequestState]) -> RequestState | None:
    """Returns the place of a request's reply, if that is in its client's queue."""
    who = (place.rid, place.registrant, place.thread)
    there = [one for one in places if one.role is Role.REPLY]
    return next((one for one in there if (one.rid, one.registrant, one.thread) == who), None)


def explained(found: Found) -> Explanation:
    """Returns the explanation of a request that was found."""
    place = found.place
    steps = sorted(_steps(found), key=lambda step: step.at or LATEST)
    return Explanation(
        registrant=place.registrant,
        thread=place.thread,
        rid=place.rid,
        eid=place.eid,
        queue=place.queue if found.old is None else found.old.queue,
        state=(place if found.reply is None else found.reply).state,
        life=tuple(steps),
        reasons=() if found.facts is None else _reasons(found.facts, found.head),
    )


def not_found(asked: Asked, unknown: Unknown | None) -> Explanation:
    """Returns what there is to say of a request that is nowhere. unknown: None for an eid."""
    reasons = (NO_ELEMENT,) if unknown is None else reasons_of(unknown)
    return Explanation(
        registrant=asked.registrant,
        thread=None,
        rid=asked.rid or "",
        eid=asked.eid if unknown is None else unknown.eid,
        queue=None,
        state=None,
        life=(),
        reasons=reasons,
    )


def _reasons(facts: Facts, head: Facts | None) -> tuple[Reason, ...]:
    """Returns the reasons; that of a strict queue's head says what holds up the head itself."""
    found = reasons_of(facts)
    if head is None:
        return found
    why = reasons_of(head)[0].words
    return tuple(
        replace(one, words=f"{one.words}; of that one: {why}") if one.name == "head" else one
        for one in found
    )


def _steps(found: Found) -> Iterator[Step]:
    place, old = found.place, found.old
    sent_at = place.enqueued_at if old is None else old.enqueued_at
    yield Step(sent_at, "sent", f"to queue {place.queue if old is None else old.queue}")
    yield from (_abort(number, one) for number, one in enumerate(found.aborts, 1))
    if found.facts is not None and found.facts.holder is not None:
        claimed = reasons_of(found.facts)[0].words
        yield Step(found.facts.began_at, "claimed", claimed)
    if old is not None:
        yield from _end(found, old)


def _abort(number: int, abort: Attempt) -> Step:
    where = f"process {abort.pid} on {abort.host}" if abort.host else f"server {abort.server}"
    words = f"abort {number}, {abort.charge.value}: {abort.code}: {abort.error} ({where})"
    return Step(abort.ended_at, "aborted", words)


def _end(found: Found, old: OldRequest) -> Iterator[Step]:
    if old.started_at is not None:
        yield Step(
            old.started_at, "claimed", f"by {_server(old, found.servers)}, which finished it"
        )
    why = f": {old.code}: {old.error}" if old.code else ""
    yield Step(old.finished_at, ENDS[old.outcome], f"{old.outcome.value}{why}")
    if old.role is Role.REQUEST:
        yield _reply(found.reply, old)
    if found.place.state is ElementState.HELD:
        yield Step(None, "held", f"in {found.place.queue}")
    if old.redriven_as is not None:
        yield Step(None, "redriven", f"as {old.redriven_as}")
    if found.is_archived:
        yield Step(None, "archived", "its history is in the archive only: it was trimmed")


ENDS: Final = {
    RequestOutcome.DONE: "finished",
    RequestOutcome.DEQUEUED: "dequeued",
    RequestOutcome.FAILED: "failed",
    RequestOutcome.EXPIRED: "expired",
    RequestOutcome.CANCELLED: "killed",
}
"""The step that an outcome is."""


def _reply(reply: RequestState | None, old: OldRequest) -> Step:
    if reply is None:
        return Step(None, "collected", "its client has the reply, or was forgotten")
    if reply.state is ElementState.KEPT:
        return Step(None, "collected", "its client has the reply, which is kept for rereceive")
    return Step(old.finished_at, "replied", "the reply waits for its client")


def _server(old: OldRequest, servers: list[SessionLoad]) -> str:
    """Returns a server as people find it: its process, while that is known."""
    known = next((one for one in servers if one.incarnation == old.server), None)
    return f"server {old.server}" if known is None else f"process {known.pid} on {known.host}"
