"""What can happen, as values: the kinds of events of a history.

Recorded by processes (`files`), read by the checker (`onceq.history`). They are msgspec Structs, so
that a file of them is decoded in one pass; the field "event" tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from msgspec import Struct

Client: TypeAlias = tuple[str, str]
"""(registrant, thread)."""


class Event(
    Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag_field="event", tag=True
):
    """Something that happened. at, actor: filled in by the Recorder if left out."""

    at: int = 0
    actor: str = ""


class ClientEvent(Event, frozen=True, kw_only=True):
    """Something that a client saw, in the life `epoch` of (registrant, thread)."""

    registrant: str
    thread: str = ""
    epoch: int

    @property
    def client(self) -> Client:
        """The client whose event this is."""
        return (self.registrant, self.thread)


class Connected(ClientEvent, frozen=True, kw_only=True):
    """A connect returned."""

    was: str
    s_rid: str | None
    r_rid: str | None
    ckpt: bytes | None


class DisconnectBegun(ClientEvent, frozen=True, kw_only=True):
    """A disconnect is about to be called."""


class Disconnected(ClientEvent, frozen=True, kw_only=True):
    """A disconnect returned."""


class SendBegun(ClientEvent, frozen=True, kw_only=True):
    """A send is about to be called.

    expects: how this request must end unless it is killed or expires: 'done', 'failed', or None.
    alone: one request is outstanding at a time (no window, C6).
    """

    rid: str
    expects: str | None = None
    alone: bool = True


class SendOk(ClientEvent, frozen=True, kw_only=True):
    """A send returned. state and eid: of `Sent`: new, queued, replied, done; "": not noted."""

    rid: str
    state: str = "new"
    eid: str = ""


class SendFailed(ClientEvent, frozen=True, kw_only=True):
    """A send raised. unknown: it may have taken effect."""

    rid: str
    unknown: bool


class ReplyEvent(ClientEvent, frozen=True, kw_only=True):
    """A reply was handed out. digest: of its content. answers: the rid that its content names."""

    rid: str
    eid: str
    outcome: str
    digest: str = ""
    answers: str | None = None
    ckpt: bytes | None = None


class Received(ReplyEvent, frozen=True, kw_only=True):
    """A receive returned; ckpt: the checkpoint given with it."""


class Rereceived(ReplyEvent, frozen=True, kw_only=True):
    """A rereceive returned."""


class ReceiveBegun(ClientEvent, frozen=True, kw_only=True):
    """A receive with a checkpoint, or `process`, is about to be called: r_rid may change."""


class AcknowledgeBegun(ClientEvent, frozen=True, kw_only=True):
    """An acknowledge is about to be called (C6): these replies may be freed from now on."""

    rids: tuple[str, ...]


class Acknowledged(ClientEvent, frozen=True, kw_only=True):
    """An acknowledge returned: these replies are freed. ckpt: the checkpoint given with it."""

    rids: tuple[str, ...]
    ckpt: bytes | None = None


class ReplyMissing(ClientEvent, frozen=True, kw_only=True):
    """A receive or a rereceive said that this reply is no longer kept (ReplyGone)."""

    rid: str


class Satisfied(ClientEvent, frozen=True, kw_only=True):
    """The client says that it has received the reply to every request that it knows it sent."""


class Executed(Event, frozen=True, kw_only=True):
    """A handler was called with an element.

    pid, backend: the process, and its session of PostgreSQL; 0: not noted.
    """

    rid: str
    eid: str
    attempt: int = 1
    pid: int = 0
    backend: int = 0


class Returned(Event, frozen=True, kw_only=True):
    """A handler returned; whether that was committed is recorded elsewhere."""

    rid: str
    eid: str
    pid: int = 0


class Started(Event, frozen=True, kw_only=True):
    """A handler's transaction was begun with an element: the evidence for a charge (G7)."""

    rid: str
    eid: str


RETRY = "Retry"
"""The code of an abort that the handler itself asked for: not charged, up to the retry limit."""


class Aborted(Event, frozen=True, kw_only=True):
    """An execution ended in some way other than a commit. code: why.

    excused: nobody is charged for it (a handler's Retry, a fault of the environment).
    """

    rid: str
    eid: str
    code: str
    excused: bool = False


class EnqueueBegun(Event, frozen=True, kw_only=True):
    """An enqueue without a client is about to be called: a datagram, which owes no reply."""

    rid: str


class Enqueued(Event, frozen=True, kw_only=True):
    """An enqueue returned."""

    rid: str
    eid: str


class KillBegun(Event, frozen=True, kw_only=True):
    """A kill, or cancel, is about to be called."""

    rid: str
    eid: str = ""


class KillAnswered(Event, frozen=True, kw_only=True):
    """A kill answered: KILLED, TOO_LATE or NOT_FOUND."""

    rid: str
    eid: str = ""
    answer: str


class KillFailed(Event, frozen=True, kw_only=True):
    """A kill raised. unknown: it may have taken effect; else nothing happened."""

    rid: str
    eid: str = ""
    unknown: bool


class Redriven(Event, frozen=True, kw_only=True):
    """A redrive of (rid, eid) answered: what it runs again as; None: there was nothing to redrive.

    A request runs as a new one; an element that owes no reply, as itself.
    """

    rid: str
    eid: str
    new_rid: str | None = None
    new_eid: str | None = None


class Doubted(Event, frozen=True, kw_only=True):
    """The answer to a commit was lost. what: receive, acknowledge, ..., or finish; eids: of it.

    A send in doubt is a `SendFailed`.
    """

    what: str
    eids: tuple[str, ...] = ()


HELD_IN_CRASH = "held as a suspect, not begun, when the database went down"
"""The fault that charges its target although it did not run: nothing tells afterwards (G7)."""


class Fault(Event, frozen=True, kw_only=True):
    """A fault was injected. what: kill -9, crash, cut, ...; target: at whom, "client": at clients.

    A target that is an actor, or the last word of one, touches nobody else; any other may.

    rid: of the element whose eid the target is, if it is one. struck: exactly whom it struck, if
    known: participants by name, sessions as `backend 4711`, and ALL. until: when it was
    over, if it lasted.
    """

    what: str
    target: str = ""
    rid: str = ""
    struck: tuple[str, ...] = ()
    until: int = 0


ALL = "all"
"""The participants that a fault of the database strikes."""


class Ended(Event, frozen=True, kw_only=True):
    """A participant's process ended. how: killed, poisoned, starved; "": by itself."""

    target: str
    pid: int
    how: str


class Effect(Event, frozen=True, kw_only=True):
    """A row of the effects ledger in the final state. The ledger has no unique key.

    xid: the transaction that wrote it, if known: all of one element's effects have the same.
    """

    key: str
    rid: str
    eid: str = ""
    xid: str = ""


def _leaves(kind: type[Event]) -> Iterator[type[Event]]:
    """Yields the kinds that have no kinds themselves, in the order of this module."""
    kinds = kind.__subclasses__()
    if not kinds:
        yield kind
    for one in kinds:
        yield from _leaves(one)


KINDS: Final = tuple(_leaves(Event))
"""Every kind of event that a file may hold."""
