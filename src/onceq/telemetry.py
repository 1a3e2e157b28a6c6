"""Every event that onceq logs: a frozen value each, and the line that it becomes.

`tell` logs it by the logger of the module that calls it; nothing else of onceq logs (a test). No
event holds a body, a reply, a tag, a checkpoint or a password. Two fields hold what user's code has
said: `traceback` (the handler's own exception) and `error` (of a module that cannot be loaded, of a
Spark query). docs/operations.md has the table.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

if TYPE_CHECKING:
    from uuid import UUID

BARE: Final = re.compile(r"[\w.:/@+-]+", re.ASCII)
INDENT: Final = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened. level: of its line. Its fields are those of the line."""

    level: ClassVar[int] = logging.INFO

    @classmethod
    def name(cls) -> str:
        """Returns what the line calls it: the class, as in `queue_missing`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted(Event):
    """An execution failed. attempt: 1 for the first. charge: what it costs, as the server said it.

    fate: returned, or failed for good. traceback: where in the handler; None: its code was not
    running, or the element's abort before said the same.
    """

    level: ClassVar[int] = logging.WARNING
    queue: str
    rid: str
    eid: UUID
    attempt: int
    code: str
    charge: str
    fate: str
    traceback: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict(Event):
    """An execution met another transaction: serialization, deadlock, lock. It runs again."""

    queue: str
    rid: str
    eid: UUID
    attempt: int
    code: str
    charge: str
    fate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLost(Event):
    """What was executed is void: killed meanwhile, or taken over. rid, eid: None in a batch."""

    level: ClassVar[int] = logging.WARNING
    queue: str
    rid: str | None
    eid: UUID | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt(Event):
    """The answer to the commit of a request was lost; the session's next life learns the truth."""

    level: ClassVar[int] = logging.WARNING
    queue: str
    rid: str
    eid: UUID
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerHangs(Event):
    """A handler outlived the limit; its process is ended. Of a batch, one of these hangs."""

    level: ClassVar[int] = logging.ERROR
    queue: str
    rid: str
    eid: UUID
    attempt: int
    charge: str
    child: int
    ran_s: float
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OnErrorFailed(Event):
    """The server's `on_error` raised. queue, rid, eid: of the abort that it was told."""

    level: ClassVar[int] = logging.ERROR
    queue: str
    rid: str
    eid: UUID
    code: str
    traceback: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnErrorLate(Event):
    """The server's `on_error` does not return; aborts wait for it, and the latest are dropped."""

    level: ClassVar[int] = logging.ERROR
    ran_s: float
    waiting: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TookOver(Event):
    """A session has ended, and what it held is back: returned uncharged, as suspects, charged.

    of_...: whose it was. Told by whoever took it back: another server, or the supervisor.
    """

    level: ClassVar[int] = logging.WARNING
    of_incarnation: int
    of_process: UUID | None
    of_host: str | None
    of_pid: int | None
    returned: int
    suspects: int
    charged: int


# --- sessions, queues, servers --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLost(Event):
    """A session's life is over by a loss; it connects again after the delay. code: of the error."""

    level: ClassVar[int] = logging.WARNING
    incarnation: int | None
    code: str
    error: str
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnected(Event):
    """A session has a connection again. incarnation: its former life. losses: in a row."""

    incarnation: int | None
    losses: int
    away_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMissing(Event):
    """A queue that is served was destroyed; it is served when it is made anew."""

    level: ClassVar[int] = logging.WARNING
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStopped(Event):
    """A queue that is served is stopped for dequeue: `onceq queue start`."""

    level: ClassVar[int] = logging.WARNING
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueServed(Event):
    """A queue that was missing or stopped is served again."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBegan(Event):
    """A server begins. process: by which the repository knows it. sessions: of it."""

    process: UUID
    repository: str
    queues: tuple[str, ...]
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStopped(Event):
    """A server has stopped. finished: all that ran has ended. COUNTS: of all that it has done."""

    COUNTS: ClassVar[tuple[str, ...]] = ("done", "failed", "returned", "claims_lost")
    process: UUID
    finished: bool
    done: int
    failed: int
    returned: int
    claims_lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAbandoned(Event):
    """A session still ran at the deadline of the stop: it is revoked, uncharged."""

    level: ClassVar[int] = logging.WARNING
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotListening(Event):
    """The connection for rings is lost; who waits looks by itself meanwhile."""

    error: str
    delay_s: float


# --- the supervisor of `onceq serve` --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildReady(Event):
    """A process serves. child: its pid."""

    child: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDied(Event):
    """A process has ended; another follows after the delay. code: of exit, or minus a signal."""

    level: ClassVar[int] = logging.WARNING
    child: int
    code: int
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildKilled(Event):
    """A process did not stop in time: it is revoked, uncharged, and killed."""

    level: ClassVar[int] = logging.WARNING
    child: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildNotLoaded(Event):
    """A process that was started again could not load the server; others serve."""

    level: ClassVar[int] = logging.WARNING
    child: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAway(Event):
    """PostgreSQL goes down, or comes up, while `onceq serve` begins: it tries again."""

    level: ClassVar[int] = logging.WARNING
    error: str
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionFailed(Event):
    """The supervisor could not ask, or tell, the repository something. what: it was."""

    level: ClassVar[int] = logging.WARNING
    what: str
    error: str


# --- Spark ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBegan(Event):
    """A life of a Spark server begins: a query is started."""

    server: str
    queue: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStopped(Event):
    """A Spark server has stopped."""

    server: str
    lives: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryEnded(Event):
    """A Spark server's query has ended, and is begun again. verdict: whose fault it was."""

    level: ClassVar[int] = logging.WARNING
    server: str
    verdict: str
    error: str
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConnectionLost(Event):
    """A connection of Spark's is lost; the query goes on, and it is asked again."""

    level: ClassVar[int] = logging.WARNING
    error: str


# --- how they are told ----------------------------------------------------------------------------


def tell(log: logging.Logger, event: Event) -> None:
    """Logs an event: a line `name field=value ...`. Its record has it as a dict: `record.onceq`."""
    if log.isEnabledFor(event.level):
        extra = {"onceq": content_of(event)}
        log.log(event.level, "%s", line_of(event), extra=extra, stacklevel=2)


def content_of(event: Event) -> dict[str, Any]:
    """Returns an event's name and those of its fields that are known."""
    found = {one.name: clean(getattr(event, one.name)) for one in fields(event)}
    known = {name: value for name, value in found.items() if value is not None}
    return {"event": event.name(), **known}


def line_of(event: Event) -> str:
    """Returns an event as one line of text; a traceback follows it, each line indented."""
    content = content_of(event)
    name, trace = content.pop("event"), content.pop("traceback", None)
    line = " ".join([name, *(f"{key}={_plain(value)}" for key, value in content.items())])
    return line if trace is None else f"{line}\n{_indented(trace)}"


def clean(value: Any) -> Any:
    """Returns text without what no encoding takes."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="backslashreplace").decode()


def _plain(value: Any) -> str:
    """Returns a value as it stands in a line: quoted, unless it is a plain word or number."""
    text = ",".join(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else str(value)
    return text if BARE.fullmatch(text) else repr(text)


def _indented(trace: str) -> str:
    """Returns a traceback that cannot pass for lines of the log, whatever an exception says."""
    lines = trace.rstrip("\n").split("\n")
    return "\n".join(INDENT + "".join(_visible(one) for one in line) for line in lines)


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
