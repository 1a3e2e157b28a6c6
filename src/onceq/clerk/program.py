"""The clerk's Programs: connect, send, receive, rereceive, disconnect, cancel.

Run by Clerk, AsyncClerk, the simulator and anything else with a Driver. They never retry an
unknown commit: the session becomes unsure, and only a new connect tells. Source: BHM90 figure 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onceq import errors
from onceq.model import client_state, ops
from onceq.model.client_state import Call, ClientState
from onceq.model.element import RequestOutcome
from onceq.model.queue import content_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from onceq.model.element import Element, KillAnswer, SendAttributes
    from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")

RAISED: dict[RequestOutcome, type[errors.ReplyError]] = {
    RequestOutcome.FAILED: errors.RequestFailed,
    RequestOutcome.CANCELLED: errors.Cancelled,
    RequestOutcome.EXPIRED: errors.Expired,
}


@dataclass(frozen=True, slots=True)
class Reply(Generic[R]):
    """A reply: to which rid, how the request ended, and its value.

    attempts: executions that counted, the last included. `value` raises RequestFailed, Cancelled
    or Expired when that is how the request ended.
    """

    rid: str
    eid: UUID
    outcome: RequestOutcome
    attempts: int
    body: bytes
    code: str | None
    text: str | None
    queue: Queue[Any, R] = field(repr=False)

    @property
    def value(self) -> R:
        """The decoded reply. Raises RequestFailed, Cancelled, Expired, or InvalidValue."""
        raised = RAISED.get(self.outcome)
        if raised is not None:
            raise raised(self.rid, self.code or self.outcome.value, self.text or "", self.attempts)
        return self.queue.decode_reply(self.body)


@dataclass(slots=True, kw_only=True)
class Session(Generic[T, R]):
    """What a clerk knows of its session. Changed by the Programs only, after the answer.

    window: how many requests may be outstanding. outstanding: sent, no reply handed out yet.
    received: replies handed out and not acknowledged. gone: sent before, reply no longer kept.
    asleep: registered, on its connection, as one to be rung when a reply comes. rings: it was so
    before the request sent last was committed, so that its reply finds it asleep, and rings.
    sure: False after an operation whose effect is unknown, until the next connect.
    """

    name: str
    thread: str
    queue: Queue[T, R]
    window: int
    state: ClientState = ClientState.DISCONNECTED
    was: str = "new"
    registrant_id: int = 0
    epoch: int = 0
    s_rid: str | None = None
    s_no: int = 0
    s_state: str | None = None
    r_rid: str | None = None
    ckpt: bytes | None = None
    outstanding: dict[str, None] = field(default_factory=dict[str, None])
    received: list[str] = field(default_factory=list[str])
    gone: list[str] = field(default_factory=list[str])
    asleep: bool = False
    rings: bool = False
    sure: bool = True


def _perform(session: Session[Any, Any], op: ops.Op[T]) -> ops.Program[T]:
    """Performs an operation that changes something, and notes when its effect is unknown."""
    session.sure = False
    try:
        answer = yield from op
    except errors.OnceqError as error:
        session.sure = error.outcome is errors.Outcome.NOTHING_HAPPENED
        raise
    session.sure = True
    return answer


def _check(session: Session[Any, Any], call: Call) -> ClientState:
    if not session.sure:
        raise errors.IllegalState(
            f"the effect of the last call is unknown: connect() again before {call.value}"
        )
    return client_state.after(session.state, call)


def connect(session: Session[T, R]) -> ops.Program[None]:
    """Begins a new life of the registrant, and takes up where the former had come to."""
    session.sure = False
    found = yield from ops.Connect(name=session.name, thread=session.thread)
    session.registrant_id, session.epoch = found.registrant_id, found.epoch
    session.was, session.s_state = found.was, found.s_state
    session.s_rid, session.s_no = found.s_rid, found.s_no
    session.r_rid, session.ckpt = found.r_rid, found.ckpt
    waiting = yield from ops.Outstanding(registrant_id=found.registrant_id, epoch=found.epoch)
    session.received = [one.rid for one in waiting if one.replied and one.rid == found.r_rid]
    session.outstanding = {one.rid: None for one in waiting if one.rid not in session.received}
    session.state = client_state.resumed(
        found.s_rid, found.r_rid, disconnected=found.was == "disconnected"
    )
    if session.outstanding:
        session.state = ClientState.REQ_SENT
    elif session.state is ClientState.REQ_SENT:  # acknowledged in another order than it was sent
        kept = bool(session.received)
        session.state = ClientState.REPLY_RECVD if kept else ClientState.CONNECTED
    session.gone, session.asleep, session.rings = [], False, False
    session.sure = True


def _acknowledged(session: Session[Any, Any]) -> list[str]:
    """What a send acknowledges: with one outstanding, the reply before it (C17)."""
    return list(session.received) if session.window == 1 else []


def _sent(session: Session[Any, Any], rids: Sequence[str], answers: Sequence[ops.Sent]) -> None:
    """Takes note of sends that are stable."""
    acknowledged = session.received if session.window == 1 else []
    if acknowledged and answers[0].state == "new":
        session.ckpt = session.ckpt if acknowledged[-1] == session.r_rid else None
        session.r_rid = acknowledged[-1]
        session.received = []
    session.was = "connected"
    for rid, answer in zip(rids, answers, strict=True):
        session.s_no += 1
        session.s_rid, session.s_state = rid, "request"
        if answer.state == "done":
            session.gone.append(rid)
            continue
        session.outstanding[rid] = None
        if rid in session.received:  # sent again: its reply is received again
            session.received.remove(rid)


def _may_send(session: Session[Any, Any], count: int) -> ClientState:
    call = Call.SEND
    if session.window > 1 and session.state is ClientState.REQ_SENT:
        call = Call.SEND_MORE
    following = _check(session, call)
    waiting = len(session.outstanding) + (len(session.received) if session.window > 1 else 0)
    if waiting + count > session.window:
        raise errors.IllegalState(
            f"{waiting} requests are outstanding and the window is {session.window}: "
            "receive and acknowledge some first"
        )
    return following


def send(
    session: Session[T, R], rid: str, body: bytes, attributes: SendAttributes
) -> ops.Program[ops.Sent]:
    """Sends a request; when it returns, request and rid are stable (G6)."""
    following = _may_send(session, 1)
    answer = yield from _perform(
        session,
        ops.Send(
            registrant_id=session.registrant_id,
            epoch=session.epoch,
            queue=session.queue.name,
            rid=rid,
            body=body,
            send_no=session.s_no + 1,
            ack=_acknowledged(session),
            content_type=content_type_of(session.queue.request_type),
            sleep=session.window == 1 and not session.asleep,
            **attributes,
        ),
    )
    session.rings = session.window == 1 and answer.state == "new"
    session.asleep = session.asleep or session.rings
    _sent(session, [rid], [answer])
    session.state = following
    return answer


def send_many(
    session: Session[T, R], rids: list[str], bodies: list[bytes]
) -> ops.Program[list[ops.Sent]]:
    """Sends many requests in one transaction: all are stable when it returns, or none."""
    following = _may_send(session, len(rids))
    answers = yield from _perform(
        session,
        ops.SendMany(
            registrant_id=session.registrant_id,
            epoch=session.epoch,
            queue=session.queue.name,
            rids=rids,
            bodies=bodies,
            send_no=session.s_no + 1,
            ack=_acknowledged(session),
            content_type=content_type_of(session.queue.request_type),
        ),
    )
    _sent(session, rids, answers)
    session.state = following
    return answers


def receive(
    session: Session[T, R],
    *,
    ckpt: bytes | None,
    rid: str | None,
    limit: int,
    timeout_s: float | None,
) -> ops.Program[list[Reply[R]]]:
    """Returns the next replies, at least one; they stay with the queue manager until acknowledged.

    Raises ReceiveTimeout when none came (nothing is lost), ReplyGone when none will ever come.
    """
    _check(session, Call.RECEIVE)
    look = partial(
        ops.Receive,
        registrant_id=session.registrant_id,
        epoch=session.epoch,
        rid=rid,
        skip=list(session.received),
        limit=limit,
        ckpt=ckpt,
        s_rid=session.s_rid,
        s_no=session.s_no,
    )
    _refuse_gone(session, rid)
    if rid is not None and rid not in session.outstanding:
        raise errors.IllegalState(f"{rid!r} is not outstanding: its reply would never come")
    found: list[Element] = []
    key = "reply" if session.rings and timeout_s != 0 else "receive"
    session.rings = False  # once: what rings during another wait is not heard again
    if key == "receive":
        found = yield from _look(session, look, sleep=timeout_s != 0)
    first = True
    while not found:
        if not (yield from ops.Wait(key=key, first=first, timeout_s=timeout_s)):
            raise errors.ReceiveTimeout(
                f"no reply to {rid or session.s_rid!r} within {timeout_s} s: nothing is lost, "
                "receive again; `onceq request show` says where the request is"
            )
        first = False
        found = yield from _look(session, look, sleep=True)
    for element in found:
        session.outstanding.pop(element.rid, None)
        session.received.append(element.rid)
    if ckpt is not None:
        session.r_rid, session.ckpt = found[-1].rid, ckpt
    _arrived(session)
    return [_reply(session, element) for element in found]


def _look(
    session: Session[Any, Any], look: Callable[..., ops.Receive], *, sleep: bool
) -> ops.Program[list[Element]]:
    """Looks for replies; a session that finds some wakes, or does not fall asleep."""
    # After an error it counts as awake: to be rung in vain is harmless, to wake twice is not.
    asleep, session.asleep = session.asleep, False
    found = yield from _perform(session, look(asleep=asleep, sleep=sleep and not asleep))
    session.asleep = (asleep or sleep) and not found
    return found


def _refuse_gone(session: Session[Any, Any], rid: str | None) -> None:
    gone = rid if rid in session.gone else None
    if rid is None and session.gone and not session.outstanding:
        gone = session.gone[0]
    if gone is not None:
        session.gone.remove(gone)
        _arrived(session)
        raise errors.ReplyGone(gone, "done", "done before; its reply is no longer kept", 0)


def _arrived(session: Session[Any, Any]) -> None:
    if not session.outstanding and not session.gone:
        session.state = client_state.after(session.state, Call.REPLY_ARRIVED)


def _reply(session: Session[T, R], element: Element) -> Reply[R]:
    outcome = element.outcome or RequestOutcome.DONE
    return Reply(
        element.rid,
        element.eid,
        outcome,
        element.aborts + (outcome is RequestOutcome.DONE),
        element.body,
        element.code,
        element.error,
        session.queue,
    )


def rereceive(session: Session[T, R]) -> ops.Program[Reply[R]]:
    """Returns the reply that the last receive returned, identical, any number of times (G5).

    With others outstanding too (C6): what was received with a checkpoint by a former life, which
    may have died before it had the reply, would otherwise be handed out to nobody.
    """
    kept = session.state is ClientState.REQ_SENT and session.received
    _check(session, Call.RERECEIVE_KEPT if kept else Call.RERECEIVE)
    rid = session.received[-1] if session.received else session.r_rid
    found = yield from ops.Receive(
        registrant_id=session.registrant_id,
        epoch=session.epoch,
        rid=rid,
        skip=[],
        s_rid=session.s_rid,
        s_no=session.s_no,
    )
    if not found:
        raise errors.ReplyGone(rid or "", "done", "its reply was acknowledged and is not kept", 0)
    return _reply(session, found[0])


def acknowledge(
    session: Session[Any, Any], rids: list[str], ckpt: bytes | None
) -> ops.Program[int]:
    """Frees replies that the client has recorded (C6); returns how many were still kept.

    The last counts as received last; without a checkpoint, one that is kept or freed here and was
    received with a checkpoint still does (G6).
    """
    following = _check(session, Call.ACKNOWLEDGE)
    unknown = [rid for rid in rids if rid not in session.received]
    if unknown:
        raise errors.IllegalState(f"{unknown[0]!r} was not received in this session")
    if not rids:
        return 0
    removed = yield from _perform(
        session,
        ops.Acknowledge(
            registrant_id=session.registrant_id,
            epoch=session.epoch,
            rids=rids,
            ckpt=ckpt,
            s_rid=session.s_rid,
            s_no=session.s_no,
        ),
    )
    keeps = session.r_rid in session.received or session.r_rid in session.outstanding
    if ckpt is not None or session.ckpt is None or not keeps:
        session.r_rid, session.ckpt = rids[-1], ckpt
    freed = set(rids)
    session.received = [rid for rid in session.received if rid not in freed]
    session.state = session.state if session.received else following
    return removed


def disconnect(session: Session[Any, Any]) -> ops.Program[None]:
    """Ends the session; a tombstone remains, so that no rid of it ever runs again."""
    following = _check(session, Call.DISCONNECT)
    r_rid = session.received[-1] if session.received else session.r_rid
    yield from _perform(
        session,
        ops.Disconnect(
            registrant_id=session.registrant_id,
            epoch=session.epoch,
            received=session.received,
            r_rid=r_rid,
            ckpt=session.ckpt if r_rid == session.r_rid else None,
            s_rid=session.s_rid,
            s_no=session.s_no,
        ),
    )
    session.received = []
    session.state = following


def cancel_last_request(session: Session[Any, Any], timeout_s: float) -> ops.Program[KillAnswer]:
    """Kills the last request: KILLED (its cancelled reply comes), TOO_LATE or NOT_FOUND (G8)."""
    _check(session, Call.CANCEL)
    op = ops.CancelRequest(
        registrant_id=session.registrant_id,
        epoch=session.epoch,
        rid=session.s_rid or "",
        timeout_s=timeout_s,
    )
    return (yield from _perform(session, op))
