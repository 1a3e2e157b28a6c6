"""Every event that onceq logs: each is a frozen value, and becomes a line of the log.

`tell` logs an event with the logger of the module that calls it; nothing else in onceq logs (a test
checks this). No event holds a body, a reply, a tag, a checkpoint or a password. Two fields hold
text from the user's code: `traceback` (the handler's own exception) and `error` (of a module that
cannot be loaded, or of a Spark query). docs/operations.md has the table.
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
    """Something that happened; its fields are those of the line. level: the line's log level."""

    level: ClassVar[int] = logging.INFO

    @classmethod
    def name(cls) -> str:
        """Returns the event's name in the line: the class's, written like `queue_missing`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted(Event):
    """An execution failed. attempt: 1 for the first. charge: what it costs, as the server said.

    fate: returned, or failed for good. traceback: where in the handler it failed; None when the
    handler was not running, or the element's previous abort had the same traceback.
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
    """An execution is void: the element was killed or taken over. rid, eid: None for a batch."""

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
    """A handler ran past its limit; its process is ended. In a batch, one of the requests hangs."""

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
    """The server's `on_error` raised. queue, rid, eid: of the abort that it was told of."""

    level: ClassVar[int] = logging.ERROR
    queue: str
    rid: str
    eid: UUID
    code: str
    traceback: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnErrorLate(Event):
    """The server's `on_error` does not return; aborts wait for it, and the newest are dropped."""

    level: ClassVar[int] = logging.ERROR
    ran_s: float
    waiting: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TookOver(Event):
    """A session has ended, and its claims are taken back: uncharged, as suspects, or charged.

    of_...: whose it was. Told by whoever took it back: another server, or the supervisor. Of what
    a Spark server held nothing is charged; suspects: what it had begun.
    """

    level: ClassVar[int] = logging.WARNING
    of_incarnation: int
    of_process: UUID | None
    of_host: str | None
    of_pid: int | None
    of_spark_server: str | None
    returned: int
    suspects: int
    charged: int


# --- sessions, queues, servers --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLost(Event):
    """A session lost its life; it connects again after the delay. code: of the error."""

    level: ClassVar[int] = logging.WARNING
    incarnation: int | None
    code: str
    error: str
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnected(Event):
    """A session is connected again. incarnation: its former life. losses: how many in a row."""

    incarnation: int | None
    losses: int
    away_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMissing(Event):
    """A queue being served was destroyed; it is served again when it is created anew."""

    level: ClassVar[int] = logging.WARNING
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStopped(Event):
    """A queue being served is stopped for dequeue; `onceq queue start` starts it."""

    level: ClassVar[int] = logging.WARNING
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueServed(Event):
    """A queue that was missing or stopped is served again."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBegan(Event):
    """A server begins. process: its id in the repository. sessions: how many it has."""

    process: UUID
    repository: str
    queues: tuple[str, ...]
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStopped(Event):
    """A server has stopped. finished: whether all that ran has ended. COUNTS: its totals."""

    COUNTS: ClassVar[tuple[str, ...]] = ("done", "failed", "returned", "claims_lost")
    process: UUID
    finished: bool
    done: int
    failed: int
    returned: int
    claims_lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAbandoned(Event):
    """A session was still running at the deadline of the stop: it is revoked, uncharged."""

    level: ClassVar[int] = logging.WARNING
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotListening(Event):
    """The connection for rings is lost; until it is back, sleepers look by themselves."""

    error: str
    delay_s: float


# --- the supervisor of `onceq serve` --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildReady(Event):
    """A process is serving. child: its pid."""

    child: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDied(Event):
    """A process has ended; another follows after the delay. code: exit code, or minus a signal."""

    level: ClassVar[int] = logging.WARNING
    child: int
    code: int
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildKilled(Event):
    """A process did not stop in time: it is revoked, uncharged, and then killed."""

    level: ClassVar[int] = logging.WARNING
    child: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildNotLoaded(Event):
    """A process that was restarted could not load the server; the others go on serving."""

    level: ClassVar[int] = logging.WARNING
    child: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAway(Event):
    """PostgreSQL is going down or coming up while `onceq serve` begins: it tries again."""

    level: ClassVar[int] = logging.WARNING
    error: str
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionFailed(Event):
    """The supervisor could not ask, or tell, the repository something. what: the thing it tried."""

    level: ClassVar[int] = logging.WARNING
    what: str
    error: str


# --- Spark ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBegan(Event):
    """A new life of a Spark server begins: its query is started."""

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
    """A Spark server's query has ended, and is started again. verdict: whose fault it was."""

    level: ClassVar[int] = logging.WARNING
    server: str
    verdict: str
    error: str
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConnectionLost(Event):
    """A connection of Spark's is lost; the query goes on, and the statement is tried again."""

    level: ClassVar[int] = logging.WARNING
    error: str


# --- how they are told ----------------------------------------------------------------------------


def tell(log: logging.Logger, event: Event) -> None:
    """Logs an event as a line `name field=value ...`. Its record has a dict too: `record.onceq`."""
    if log.isEnabledFor(event.level):
        extra = {"onceq": content_of(event)}
        log.log(event.level, "%s", line_of(event), extra=extra, stacklevel=2)


def content_of(event: Event) -> dict[str, Any]:
    """Returns an event's name and those of its fields that are not None."""
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
    """Returns text without the characters that no encoding can hold."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="backslashreplace").decode()


def _plain(value: Any) -> str:
    """Returns a value as the line shows it: quoted, unless it is a plain word or number."""
    text = ",".join(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else str(value)
    return text if BARE.fullmatch(text) else repr(text)


def _indented(trace: str) -> str:
    """Returns a traceback indented, so that nothing in it can pass for a line of the log."""
    lines = trace.rstrip("\n").split("\n")
    return "\n".join(INDENT + "".join(_visible(one) for one in line) for line in lines)


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
