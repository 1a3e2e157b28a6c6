"""The clerk's Programs about the session and its requests: connect, send, disconnect, cancel.

Run by Clerk, AsyncClerk, the simulator and anything else with a Driver. They never retry an
unknown commit: the session becomes unsure, and only a new connect tells. Source: BHM90 figure 5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from onceq import errors
from onceq.clerk.session import Posted, Session, ask, check, perform, settle
from onceq.model import client_state, names, ops
from onceq.model.client_state import Call, ClientState
from onceq.model.element import EndUser, KillAnswer
from onceq.model.end_user import end_user_in
from onceq.model.queue import Queue, content_type_of
from onceq.model.reserved import attributes_of
from onceq.model.send_attributes import ManyAttributes, RequestAttributes

T = TypeVar("T")
R = TypeVar("R")

SEQ_MAX = 2**63 - 1
NOT_KNOWN = UUID(int=0)
ROOM_SHARE = 0.9

Outgoing: TypeAlias = tuple[str, T] | tuple[str, T, EndUser | ManyAttributes | None]
"""A request to be sent: its rid, its value, and its attributes, or just who stands behind it."""


def connect(session: Session[T, R]) -> ops.Program[None]:
    """Begins a new life of the registrant, and continues where the former one stopped."""
    session.posted = None
    with contextlib.suppress(errors.OnceqError):  # connect tells what became of it
        yield from ops.Posted()  # an interrupted call may have left one that it did not note
    session.sure = False
    found = yield from ops.Connect(name=session.name, thread=session.thread, keep=session.keep)
    session.who = found.who
    session.was, session.s_state = found.was, found.s_state
    session.s_rid, session.s_no = found.s_rid, found.s_no
    session.r_rid, session.ckpt = found.r_rid, found.ckpt
    op = ops.Outstanding(who=found.who)
    waiting = yield from ask(session, op)
    user = ops.LastUser(who=found.who, rid=found.s_rid)
    session.user = yield from ask(session, user)
    kept = [one.rid for one in waiting if one.replied and one.rid == found.r_rid]
    session.received, session.seen = dict.fromkeys(kept), 0
    session.beyond = dict.fromkeys(kept, SEQ_MAX) or None  # its place is not known
    session.outstanding = {one.rid: None for one in waiting if one.rid not in session.received}
    session.state = client_state.resumed(
        found.s_rid, found.r_rid, disconnected=found.was == "disconnected"
    )
    if session.outstanding:
        session.state = ClientState.REQ_SENT
    elif session.state is ClientState.REQ_SENT:  # acknowledged in another order than it was sent
        session.state = ClientState.REPLY_RECVD if kept else ClientState.CONNECTED
    session.gone, session.asleep, session.rings = (), False, False
    session.unsettled = session.handed_out_last
    session.taken = session.held = None
    session.sure, session.fenced = True, None


def request_of(queue: Queue[T, Any], rid: str, value: T, given: Mapping[str, Any]) -> ops.Request:
    """Returns a request to be sent. InvalidName, InvalidValue, TooLarge: nothing happened.

    given: see RequestAttributes.
    """
    names.check_id("rid", rid)
    body = queue.encode_request(value)
    if not given:
        return ops.Request(rid=rid, body=body)
    names.check_keywords("send", given, RequestAttributes)
    attributes = attributes_of(given)
    names.check_attributes(attributes)
    if attributes.get("content_type") is not None:
        content_type_of(queue.request_type, attributes["content_type"])
    return ops.Request(rid=rid, body=body, **attributes)


def requests_of(queue: Queue[T, Any], given: Iterable[Outgoing[T]]) -> Iterator[ops.Request]:
    """Returns an iterator over requests to be sent, each checked when its turn comes."""
    each = names.check_iterator("requests", given)
    parts = (names.check_outgoing("request", one) for one in each)
    return (request_of(queue, rid, value, _given(said)) for rid, value, said in parts)


def _given(said: EndUser | ManyAttributes | None) -> Mapping[str, Any]:
    """Returns the attributes of one of many requests. InvalidValue."""
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        return {"end_user": said}
    names.check_keywords("one of many requests", said, ManyAttributes)
    return said


def _acknowledged(session: Session[Any, Any]) -> list[str]:
    """What a send acknowledges: if requests go one at a time, the reply before it (C17)."""
    return list(session.received) if session.window == 1 else []


def _sent(session: Session[Any, Any], rids: Sequence[str], answers: Sequence[ops.Sent]) -> None:
    """Notes that sends are stable."""
    acknowledged = session.handed_out_last if session.window == 1 else None
    if acknowledged is not None and answers[0].state == "new":
        session.ckpt = session.ckpt if acknowledged == session.r_rid else None
        session.r_rid = acknowledged
        session.received = {}
    session.was = "connected"
    gone: list[str] = []
    for rid, answer in zip(rids, answers, strict=True):
        session.s_no += 1
        session.s_rid, session.s_state = rid, "request"
        if answer.state == "done":
            gone.append(rid)
            continue
        session.outstanding[rid] = None
        session.forget(rid)  # sent again: its reply is received again
    session.gone = [*session.gone, *gone] if gone else session.gone


def _may_send(session: Session[Any, Any], count: int) -> ClientState:
    call = Call.SEND
    if session.window > 1 and session.state is ClientState.REQ_SENT:
        call = Call.SEND_MORE
    following = check(session, call)
    waiting = session.in_window
    if waiting + count > session.window:
        raise errors.WindowFull(
            f"{waiting} requests are outstanding and the window is {session.window}: "
            "receive and acknowledge some first, or let `stream` do it",
            room=session.room,
        )
    return following


def send(
    session: Session[T, R],
    request: ops.Request,
    *,
    own_transaction: bool = True,
    room_s: float | None = 0.0,
) -> ops.Program[ops.Sent]:
    """Sends a request; when it returns, request and rid are stable (G6).

    own_transaction: False if it joins another transaction, and is stable when that commits.
    room_s: how long it waits for room in a queue that is full; None: without end.
    """
    following = _may_send(session, 1)
    if session.posted is not None:
        yield from settle(session)
    op = _send_op(session, request, own_transaction=own_transaction)
    answer = yield from perform(session, op, room_s)
    sleeps = session.window == 1 and answer.state == "new"
    session.rings = sleeps and request.expires_at is None  # nobody rings when it expires
    session.asleep = session.asleep or sleeps
    _sent(session, [request.rid], [answer])
    session.user = end_user_in(request.properties)
    session.state = following
    return answer


def room_s(timeout_s: float | None) -> float:
    """Returns how long a send with this time limit waits for room: the rest is for the send."""
    return 0.0 if timeout_s is None else ROOM_SHARE * timeout_s


def _send_op(
    session: Session[Any, Any], request: ops.Request, *, own_transaction: bool
) -> ops.Send:
    return ops.Send(
        who=session.who,
        queue=session.queue.name,
        request=request,
        send_no=session.s_no + 1,
        ack=_acknowledged(session),
        content_type=request.content_type or content_type_of(session.queue.request_type),
        own_transaction=own_transaction,
        sleep=session.window == 1 and not session.asleep,
        keep=session.keep,
    )


def send_one_way(session: Session[T, R], request: ops.Request) -> ops.Program[None]:
    """Gives a request to the connection; the next call tells whether it is stable (C2).

    Source: BHM90 5.
    """
    following = _may_send(session, 1)
    yield from settle(session)
    # Nobody rings before the answer is read: the transaction itself notifies sleepers.
    op = _send_op(session, request, own_transaction=False)
    posted = Posted(request.rid, dict(session.received), session.r_rid, session.ckpt)
    yield from perform(session, ops.Post(send=op))
    session.posted = posted
    sleeps = session.window == 1
    session.rings = sleeps and request.expires_at is None
    session.asleep = session.asleep or sleeps
    _sent(session, [request.rid], [ops.Sent(eid=NOT_KNOWN, state="new")])
    session.user = end_user_in(request.properties)
    session.state = following


def send_many(
    session: Session[T, R], requests: Sequence[ops.Request], *, room_s: float | None = 0.0
) -> ops.Program[list[ops.Sent]]:
    """Sends requests in one transaction: all are stable when it returns, or none.

    Of their attributes only the properties and the one content type of all are sent. room_s: how
    long it waits for room in a queue that is full; None: without end.
    """
    following = _may_send(session, len(requests))
    content_type = _content_type_of_all(session, requests)
    yield from settle(session)
    rids = [one.rid for one in requests]
    properties = [one.properties_text for one in requests]
    op = ops.SendMany(
        who=session.who,
        queue=session.queue.name,
        rids=rids,
        bodies=[one.body for one in requests],
        send_no=session.s_no + 1,
        ack=_acknowledged(session),
        keep=session.keep,
        content_type=content_type,
        properties=properties if any(properties) else None,
    )
    answers = yield from perform(session, op, room_s)
    _sent(session, rids, answers)
    if requests:
        session.user = end_user_in(requests[-1].properties)
    session.state = following
    return answers


def _content_type_of_all(session: Session[Any, Any], requests: Sequence[ops.Request]) -> str:
    """Returns the content type of requests that go together. InvalidValue: they have several."""
    usual = content_type_of(session.queue.request_type)
    kinds = dict.fromkeys(one.content_type or usual for one in requests)
    if len(kinds) > 1:
        raise errors.InvalidValue(
            f"requests that are sent together have one content type, and not {', '.join(kinds)}: "
            "nothing happened; send those of each apart"
        )
    return next(iter(kinds), usual)


def disconnect(session: Session[Any, Any]) -> ops.Program[None]:
    """Ends the session; a tombstone remains, so that none of its rids ever runs again."""
    following = check(session, Call.DISCONNECT)
    r_rid = session.handed_out_last or session.r_rid
    yield from perform(
        session,
        ops.Disconnect(
            who=session.who,
            received=list(session.received),
            r_rid=r_rid,
            ckpt=session.ckpt if r_rid == session.r_rid else None,
            s_rid=session.s_rid,
            s_no=session.s_no,
        ),
    )
    session.received = {}
    session.state = following


def cancel_last_request(session: Session[Any, Any], timeout_s: float) -> ops.Program[KillAnswer]:
    """Kills the last request: KILLED (its cancelled reply comes), TOO_LATE or NOT_FOUND (G8)."""
    check(session, Call.CANCEL)
    op = ops.CancelRequest(
        who=session.who,
        rid=session.s_rid or "",
        timeout_s=timeout_s,
    )
    return (yield from perform(session, op))
