"""The states of a client, and of its last request, as tables.

A client is always in one of four states. It is Disconnected, or it has nothing outstanding
(Connected), or its last request has no reply yet that it received (Req-Sent), or it has received
that reply (Reply-Recvd). `TRANSITIONS` says which call is legal in which state, and where it leads;
what is not listed is refused, without effect (spec C18).

The state is stored nowhere, and so nothing that crashes can leave it wrong. A send leaves its rid
with the queue manager, in the transaction that enqueues the request; a receive leaves the rid of
its reply, in the transaction that hands it out. `resumed` compares the two. They are equal: the
last reply was received. They differ: the last request is outstanding. There is none, or the session
was ended in good order: Connected. A client may therefore be killed between any two instructions,
and the next life that calls connect stands where the last one stood.

REPLY_ARRIVED is no call of a client: it is what a receive may find, and why RECEIVE alone leads
back to Req-Sent. With several requests outstanding, a client stays in Req-Sent until its last reply
has come, so the calls for one of many have rows of their own (SEND_MORE, RERECEIVE_KEPT).

A second question is what became of the last request. Its answers, A to E, are below. The table that
decides it is in `recovery.py`; `docs/states.md` draws both.

Pure. Source: BHM90 figures 1 and 7, BN09 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onceq.errors import IllegalState


class ClientState(enum.Enum):
    """Where a client is in its session (BHM90 figure 1)."""

    DISCONNECTED = "Disconnected"
    CONNECTED = "Connected"
    REQ_SENT = "Req-Sent"
    REPLY_RECVD = "Reply-Recvd"


class Call(enum.Enum):
    """What a client may ask of its clerk."""

    CONNECT = "connect"
    DISCONNECT = "disconnect"
    SEND = "send"
    SEND_MORE = "send with others outstanding"
    RECEIVE = "receive"
    REPLY_ARRIVED = "the last reply arrived"
    RERECEIVE = "rereceive"
    RERECEIVE_KEPT = "rereceive with others outstanding"
    RERECEIVE_BY_RID = "rereceive by rid"
    ACKNOWLEDGE = "acknowledge"
    CANCEL = "cancel_last_request"
    WATCH = "watch"


_S = ClientState
_C = Call

SHOWN: dict[Call, str] = {
    Call.CONNECT: "connect()",
    Call.DISCONNECT: "disconnect()",
    Call.SEND: "send()",
    Call.RECEIVE: "receive()",
    Call.RERECEIVE: "rereceive()",
    Call.RERECEIVE_BY_RID: "rereceive(rid)",
    Call.ACKNOWLEDGE: "acknowledge()",
    Call.CANCEL: "cancel_last_request()",
}
"""The calls that an error names, as a client writes them."""

FIRST: dict[ClientState, str] = {
    ClientState.DISCONNECTED: "call connect() first",
    ClientState.CONNECTED: "nothing is outstanding: call send() first",
    ClientState.REQ_SENT: "{rid} is outstanding: call recover() or receive() first",
    ClientState.REPLY_RECVD: "the last reply was received: call rereceive() for it, or send() anew",
}
"""What an error says is to be called first, or instead."""

TRANSITIONS: dict[tuple[ClientState, Call], ClientState] = {
    (_S.DISCONNECTED, _C.CONNECT): _S.CONNECTED,
    (_S.CONNECTED, _C.CONNECT): _S.CONNECTED,
    (_S.CONNECTED, _C.SEND): _S.REQ_SENT,
    (_S.CONNECTED, _C.ACKNOWLEDGE): _S.CONNECTED,
    (_S.CONNECTED, _C.RERECEIVE_BY_RID): _S.CONNECTED,
    (_S.CONNECTED, _C.DISCONNECT): _S.DISCONNECTED,
    (_S.REQ_SENT, _C.CONNECT): _S.CONNECTED,
    (_S.REQ_SENT, _C.SEND_MORE): _S.REQ_SENT,
    (_S.REQ_SENT, _C.RECEIVE): _S.REQ_SENT,
    (_S.REQ_SENT, _C.REPLY_ARRIVED): _S.REPLY_RECVD,
    (_S.REQ_SENT, _C.RERECEIVE_KEPT): _S.REQ_SENT,
    (_S.REQ_SENT, _C.RERECEIVE_BY_RID): _S.REQ_SENT,
    (_S.REQ_SENT, _C.ACKNOWLEDGE): _S.REQ_SENT,
    (_S.REQ_SENT, _C.CANCEL): _S.REQ_SENT,
    (_S.CONNECTED, _C.WATCH): _S.CONNECTED,
    (_S.REQ_SENT, _C.WATCH): _S.REQ_SENT,
    (_S.REPLY_RECVD, _C.WATCH): _S.REPLY_RECVD,
    (_S.REPLY_RECVD, _C.CONNECT): _S.CONNECTED,
    (_S.REPLY_RECVD, _C.SEND): _S.REQ_SENT,
    (_S.REPLY_RECVD, _C.RERECEIVE): _S.REPLY_RECVD,
    (_S.REPLY_RECVD, _C.RERECEIVE_BY_RID): _S.REPLY_RECVD,
    (_S.REPLY_RECVD, _C.ACKNOWLEDGE): _S.CONNECTED,
    (_S.REPLY_RECVD, _C.CANCEL): _S.REPLY_RECVD,
    (_S.REPLY_RECVD, _C.DISCONNECT): _S.DISCONNECTED,
}


def after(state: ClientState, call: Call, outstanding: Iterable[str] = ()) -> ClientState:
    """Returns the state after a call. Raises IllegalState when the state forbids it.

    outstanding: the rids of which an error names the first.
    """
    following = TRANSITIONS.get((state, call))
    if following is None:
        rid = next(map(repr, outstanding), "the last request")
        legal = sorted(SHOWN[c] for s, c in TRANSITIONS if s is state and c in SHOWN)
        raise IllegalState(
            f"{call.value} is not legal in state {state.value}: {FIRST[state].format(rid=rid)}; "
            f"legal are {', '.join(legal)}"
        )
    return following


def resumed(s_rid: str | None, r_rid: str | None, *, disconnected: bool) -> ClientState:
    """Returns the state that connect branches to, judging by the rids that it returned."""
    if s_rid is None or disconnected:
        return ClientState.CONNECTED
    return ClientState.REPLY_RECVD if s_rid == r_rid else ClientState.REQ_SENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Where the last request of a client stands, what that rests on, and what to do next.

    rid: of the last request; None if there never was one. ckpt: of the last receive. request: the
    request itself, if the client keeps a ledger that has it. processed: what became of each reply
    that the reply policy was applied to, as a `Processed`, if `recover` was given one.
    """

    rid: str | None
    ckpt: bytes | None
    rests_on: str
    next_step: str
    request: Any = None
    processed: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSubmitted(Recovery):
    """State A: the request was not submitted; submit it, or go on with another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted(Recovery):
    """State B: it was submitted and has no reply yet; receive its reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyWaiting(Recovery):
    """State C: its reply is waiting; receive it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Recovery):
    """State D: its reply was received; rereceive it if it was not processed, or go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack(Recovery):
    """State E: the repository lost what it had acknowledged (failover, restore); ask a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotTell(Recovery):
    """A, B or D: an empty reply queue cannot tell them apart; ask history, or keep a ledger."""


STATES: dict[str, tuple[type[Recovery], str]] = {
    "A": (NotSubmitted, "send it, or go on with a new request"),
    "B": (Submitted, "receive its reply"),
    "C": (ReplyWaiting, "receive its reply"),
    "D": (Done, "rereceive its reply if it was not processed, else go on with a new request"),
    "E": (WentBack, "ask a person: the repository was restored to an earlier state"),
    "ABD": (CannotTell, "wait for a reply, or ask again by history with the rid"),
}
