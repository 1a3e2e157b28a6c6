"""What a clerk knows of its session, and the replies that it hands out.

Used by the clerk's Programs. Only they change a session, each after the answer that justifies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypedDict, TypeVar
from uuid import UUID

from onceq import errors
from onceq.model import client_state, names, ops
from onceq.model.arguments import check_kind
from onceq.model.client_state import Call, ClientState
from onceq.model.element import Element, EndUser, RequestOutcome, attempts_of
from onceq.model.end_user import end_user_in
from onceq.model.ops.waiting import when_there_is_room
from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")

WINDOW_MAX: Final = 100_000
NOBODY: Final = ops.Identity(registrant_id=0, epoch=0)
"""Who a session is before it connects."""

RAISED: dict[RequestOutcome, type[errors.ReplyError]] = {
    RequestOutcome.FAILED: errors.RequestFailed,
    RequestOutcome.CANCELLED: errors.Cancelled,
    RequestOutcome.EXPIRED: errors.Expired,
}


@dataclass(frozen=True, slots=True)
class Reply(Generic[R]):
    """A reply: the rid it answers, how the request ended, and its value.

    attempts: executions that counted, the last included. end_user: as sent with the request.
    `value` raises RequestFailed, Cancelled or Expired when that is how the request ended.
    """

    rid: str
    eid: UUID
    outcome: RequestOutcome
    attempts: int
    body: bytes
    code: str | None
    text: str | None
    queue: Queue[Any, R] = field(repr=False)
    end_user: EndUser | None = None

    @property
    def value(self) -> R:
        """The decoded reply. Raises RequestFailed, Cancelled, Expired, or InvalidValue."""
        raised = RAISED.get(self.outcome)
        if raised is not None:
            raise raised(self.rid, self.code or self.outcome.value, self.text or "", self.attempts)
        return self.queue.decode_reply(self.body)


@dataclass(frozen=True, slots=True)
class Posted:
    """A one-way send: its rid, and what the session said of replies before it."""

    rid: str
    received: dict[str, None]
    r_rid: str | None
    ckpt: bytes | None


@dataclass(slots=True, kw_only=True)
class Session(Generic[T, R]):
    """What a clerk knows of its session. Only Programs change it, after the answer.

    window: how many requests may be outstanding. keep: how many replies stay with the queue
    manager after they are acknowledged. outstanding: sent, and no reply handed out yet. received:
    replies handed out but not acknowledged, in that order. seen: the greatest seq among replies
    handed out in the order of their seqs. beyond: the seqs of later ones, handed out by rid; None:
    there are none. gone: sent again after they were done and acknowledged, so that no reply will
    come.
    asleep: registered, on its connection, to be rung when a reply comes. rings: it was asleep
    before the last request committed, which does not expire: its reply finds it asleep and rings.
    user: the end user of the last request.
    taken: the reply that a transaction of the client's own has received: rid, xid, checkpoint.
    held: says that such transactions have given a reply up, and was not told yet.
    unsettled: the reply being processed when this life, or the former one, was cut short.
    sure: False after an operation whose effect is unknown, until the next connect. fenced: the
    error that told of a newer life, after which this life may do nothing. posted: a one-way
    send whose answer has not been read; the session assumes that it is stable.
    """

    name: str
    thread: str
    queue: Queue[T, R]
    window: int
    keep: int = 0
    state: ClientState = ClientState.DISCONNECTED
    was: str = "new"
    who: ops.Identity = NOBODY
    s_rid: str | None = None
    s_no: int = 0
    s_state: str | None = None
    r_rid: str | None = None
    user: EndUser | None = None
    ckpt: bytes | None = None
    outstanding: dict[str, None] = field(default_factory=dict[str, None])
    received: dict[str, None] = field(default_factory=dict[str, None])
    seen: int = 0
    beyond: dict[str, int] | None = None
    gone: Sequence[str] = ()
    asleep: bool = False
    rings: bool = False
    taken: tuple[str, int, bytes | None] | None = None
    held: errors.ReplyHeld | None = None
    unsettled: str | None = None
    sure: bool = True
    fenced: errors.Fenced | None = None
    posted: Posted | None = None

    @property
    def handed_out_last(self) -> str | None:
        """The rid of the last reply handed out, among those not acknowledged."""
        return next(reversed(self.received), None)

    def forget(self, rid: str) -> None:
        """A reply counts as handed out no more."""
        self.received.pop(rid, None)
        if self.beyond is not None:
            self.beyond.pop(rid, None)

    @property
    def in_window(self) -> int:
        """How many requests count against the window; with a window of 1, a send frees one."""
        return len(self.outstanding) + (len(self.received) if self.window > 1 else 0)

    @property
    def room(self) -> int:
        """How many more requests the window takes."""
        return max(0, self.window - self.in_window)


class ClerkOptions(TypedDict, total=False):
    """How a clerk is made, as keywords.

    thread: of the client (C7); each has a session of its own. window: how many requests may be
    outstanding or not acknowledged, 1 to 100,000, 1 by default (C6). keep: how many of the last
    acknowledged replies stay for `rereceive` by rid, 0 to 100,000, none by default.
    """

    thread: str
    window: int
    keep: int


def session_of(name: str, queue: Queue[T, R], options: ClerkOptions) -> Session[T, R]:
    """Returns the session of a client that has not connected. InvalidName, InvalidValue."""
    names.check_id("registrant", name)
    where = f"the clerk of client {name!r}"
    check_kind(Queue, where, queue)
    names.check_keywords(where, options, ClerkOptions)
    thread = options.get("thread", "")
    if thread != "":
        names.check_id("thread", thread)
    return Session(
        name=name,
        thread=thread,
        queue=queue,
        window=names.check_range("window", options.get("window", 1), 1, WINDOW_MAX),
        keep=names.check_range("keep", options.get("keep", 0), 0, WINDOW_MAX),
    )


def settle(session: Session[Any, Any]) -> ops.Program[None]:
    """Reads the answer to a one-way send, if one is under way; raises what the send raises.

    After an error the session is unsure: only a new connect tells where it stands.
    """
    if session.posted is None:
        return
    posted, session.posted = session.posted, None
    session.sure = False
    answer = yield from ask(session, ops.Posted())
    if answer.state != "new":  # as after a send, only later: nothing was acknowledged
        session.received, session.asleep = posted.received, False
        session.r_rid, session.ckpt = posted.r_rid, posted.ckpt
        session.received.pop(posted.rid, None)
    if answer.state == "done":
        session.outstanding.pop(posted.rid, None)
        session.gone = [*session.gone, posted.rid]
    session.sure = True


def ask(session: Session[Any, Any], op: ops.Op[T]) -> ops.Program[T]:
    """Performs an operation after what is under way; notes if a newer life has fenced this one."""
    if session.posted is not None:
        yield from settle(session)
    try:
        answer: T = yield op
    except errors.Fenced as error:
        session.fenced = error
        raise
    return answer


def perform(
    session: Session[Any, Any], op: ops.Op[T], room_s: float | None = 0.0
) -> ops.Program[T]:
    """Performs an operation that changes something; notes if its effect is unknown.

    room_s: how long it waits for room if the queue is full; None: without end.
    """
    if session.posted is not None:
        yield from settle(session)
    session.sure = False
    try:
        answer: T = yield from (op if room_s == 0 else when_there_is_room(op, room_s))
    except errors.OnceqError as error:
        session.sure = error.outcome is errors.Outcome.NOTHING_HAPPENED
        if isinstance(error, errors.Fenced):
            session.fenced = error
        raise
    session.sure = True
    return answer


def check(session: Session[Any, Any], call: Call) -> ClientState:
    """Returns the state after a call. IllegalState: not legal now. Fenced: no call is."""
    if session.fenced is not None:
        raise errors.Fenced(str(session.fenced))
    if not session.sure:
        raise errors.IllegalState(
            f"the effect of the last call is unknown: connect() again before {call.value}"
        )
    return client_state.after(session.state, call, session.outstanding)


def replies_of(session: Session[T, R], elements: list[Element]) -> list[Reply[R]]:
    """Returns elements of the reply queue in the form that the client gets."""
    return [reply_of(session, element) for element in elements]


def reply_of(session: Session[T, R], element: Element) -> Reply[R]:
    """Returns an element of the reply queue in the form that the client gets."""
    outcome = element.outcome or RequestOutcome.DONE
    return Reply(
        element.rid,
        element.eid,
        outcome,
        attempts_of(element.aborts, outcome),
        element.body,
        element.code,
        element.error,
        session.queue,
        end_user_in(element.properties),
    )
