"""Registrations and tagged operations (BHM90 4.3; spec Q5). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from onceq.model.element import Element, KillAnswer
from onceq.model.ops.base import Identity, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registrant's registration with a queue: its handle, and its last operation there."""

    registrant_id: int
    epoch: int
    thread: str
    kind: str | None
    eid: UUID | None
    tag: bytes | None

    @property
    def who(self) -> Identity:
        """The registrant, in this life."""
        return Identity(registrant_id=self.registrant_id, epoch=self.epoch)


class Register(Op[list[Registered]], changes="a registrant is made, or a new epoch of it begun"):
    """Registers with a queue, durably. The first row is this thread's, the rest its siblings'.

    epoch: None begins a new life of the registrant, which fences the former; a number joins one.
    """

    queue: str
    name: str
    thread: str = ""
    stable: bool = True
    epoch: int | None = None


class Deregister(Op[bool], changes="a registrant is removed"):
    """Destroys a registration. Fenced."""

    who: Identity
    queue: str


class BeginTagged(Op[int]):
    """Begins a tagged operation in the caller's transaction: no other one of this registrant acts.

    Returns the id of the queue. Fenced, TooLarge (the tag), IllegalState (not registered),
    DeadlineExceeded: another transaction of this registrant has not ended.
    """

    who: Identity
    queue: str
    tag: bytes | None = None
    timeout_s: float = 10.0


class EnqueueTagged(Op[UUID], changes="an element and the tag of a registrant become one"):
    """Enqueues, and records this as the registrant's last operation. Fenced, TooLarge, ..."""

    who: Identity
    queue: str
    body: bytes
    tag: bytes | None = None
    own_transaction: bool = True


class ReadTagged(Op[Element | None], changes="what was read becomes the tag of a registrant"):
    """Reads an element, and records this as the last operation; None, and no record: none is there.

    Raises what BeginTagged does.
    """

    who: Identity
    queue: str
    eid: UUID
    tag: bytes | None = None


class KillTagged(Op[KillAnswer], changes="a kill and the tag of a registrant become one"):
    """Kills an element, and records it if it is KILLED. Raises what BeginTagged does."""

    who: Identity
    queue: str
    eid: UUID
    tag: bytes | None = None
    timeout_s: float = 10.0


class TakeTagged(
    Op[int], changes="an element is taken in the caller's transaction, and a registrant's tag too"
):
    """Takes a claimed element as Take does, and records it. Raises what Take and BeginTagged do."""

    who: Identity
    queue: str
    tag: bytes | None
    seq: int
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOperation:
    """A registrant's last operation on a queue, with the copy of its element."""

    kind: str | None
    eid: UUID | None
    tag: bytes | None
    body: bytes | None


class ReadLast(Op[LastOperation | None]):
    """Reads the copy of the element last operated on, even if dequeued since. Fenced."""

    who: Identity
    queue: str
