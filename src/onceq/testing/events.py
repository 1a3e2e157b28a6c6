"""What happened, as values: the events of a history, and how processes write them down.

Used by the simulator and by every test that crashes real processes. A process appends each event
to a file of its own, by one write, so that what it did before a kill -9 is there afterwards.
Never interprets: `onceq.testing.history` does.

One JSON object a line: {"event": "SendOk", "at": ..., "actor": ..., and the fields of the class}.
Bytes are base64. `at` orders events within one life of an actor: a step of a simulation, or
nanoseconds of the machine's monotonic clock. `epoch` orders the lives of a registrant.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import Self

Client: TypeAlias = tuple[str, str]
"""(registrant, thread)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened. at, actor: filled in by the Recorder when left out."""

    at: int = 0
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEvent(Event):
    """Something that a client saw, in the life `epoch` of (registrant, thread)."""

    registrant: str
    thread: str = ""
    epoch: int

    @property
    def client(self) -> Client:
        """Whose event this is."""
        return (self.registrant, self.thread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected(ClientEvent):
    """A connect returned."""

    was: str
    s_rid: str | None
    r_rid: str | None
    ckpt: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisconnectBegun(ClientEvent):
    """A disconnect is about to be called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected(ClientEvent):
    """A disconnect returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBegun(ClientEvent):
    """A send is about to be called.

    expects: how this request must end unless it is killed or expires: 'done', 'failed', or None.
    alone: one request is outstanding at a time (no window, C6).
    """

    rid: str
    expects: str | None = None
    alone: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOk(ClientEvent):
    """A send returned. state: of `Sent`: new, queued, replied, done."""

    rid: str
    state: str = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFailed(ClientEvent):
    """A send raised. unknown: it may have taken effect."""

    rid: str
    unknown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEvent(ClientEvent):
    """A reply was handed out. digest: of its content. answers: the rid that its content names."""

    rid: str
    eid: str
    outcome: str
    digest: str = ""
    answers: str | None = None
    ckpt: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(ReplyEvent):
    """A receive returned; ckpt: the checkpoint given with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rereceived(ReplyEvent):
    """A rereceive returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveBegun(ClientEvent):
    """A receive with a checkpoint, or an acknowledge, is about to be called: r_rid may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Satisfied(ClientEvent):
    """The client says that it has received the reply to every request that it knows it sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed(Event):
    """A handler was called with an element."""

    rid: str
    eid: str
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A handler's transaction was begun with an element: the evidence for a charge (G7)."""

    rid: str
    eid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted(Event):
    """An execution ended otherwise than by a commit. code: why."""

    rid: str
    eid: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillBegun(Event):
    """A kill, or cancel, is about to be called."""

    rid: str
    eid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillAnswered(Event):
    """A kill answered: KILLED, TOO_LATE or NOT_FOUND."""

    rid: str
    eid: str = ""
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubted(Event):
    """The answer to a commit was lost. what: receive, acknowledge, ..., or finish; eids: of these.

    A send in doubt is a `SendFailed`.
    """

    what: str
    eids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Event):
    """A fault was injected. what: kill -9, crash, cut, ...; target: of whom."""

    what: str
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Event):
    """A row of the effects ledger, as the final state has it. It has no unique key."""

    key: str
    rid: str
    eid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rid is at the end: a row of the requests view. state: as in `RequestState`."""

    registrant: str | None
    thread: str | None
    rid: str
    eid: str
    role: str
    state: str
    outcome: str | None
    aborts: int = 0
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalState:
    """What is there in the end.

    places: every row of the requests view. effects: the ledger. finished: faults had stopped and
    all had time to finish (G12). effects_expected: each 'done' has exactly one effect.
    abort_limit: of the queues, None when they differ.
    """

    places: tuple[Place, ...]
    effects: tuple[Effect, ...]
    finished: bool = True
    effects_expected: bool = True
    abort_limit: int | None = None


EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        Connected,
        DisconnectBegun,
        Disconnected,
        SendBegun,
        SendOk,
        SendFailed,
        Received,
        Rereceived,
        ReceiveBegun,
        Satisfied,
        Executed,
        Started,
        Aborted,
        KillBegun,
        KillAnswered,
        Doubted,
        Fault,
        Effect,
    )
}


def digest(content: bytes) -> str:
    """Returns a short fingerprint of a reply's content."""
    return hashlib.sha256(content).hexdigest()[:16]


class Recorder:
    """Appends events to a file; each is there, whatever becomes of this process, on return.

    One process, any of its threads. actor: who records, unless the event says it.
    """

    def __init__(self, path: Path, actor: str = "") -> None:
        self._actor = actor
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def record(self, event: Event) -> None:
        """Appends an event, in one write."""
        complete = dataclasses.replace(
            event, at=event.at or time.monotonic_ns(), actor=event.actor or self._actor
        )
        fields: dict[str, Any] = msgspec.to_builtins(complete)
        line = msgspec.json.encode({"event": type(event).__name__, **fields}) + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes of an event were written")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(paths: Iterable[Path]) -> list[Event]:
    """Returns the events in these files, by time. A last line cut off by a death is left out."""
    events = [event for path in paths for event in _read(path)]
    events.sort(key=lambda event: event.at)
    return events


def _read(path: Path) -> Iterator[Event]:
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            fields: dict[str, Any] = msgspec.json.decode(line)
            yield msgspec.convert(fields, type=EVENTS[fields.pop("event")])
