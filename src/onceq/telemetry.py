"""Every event that onceq logs: each is a frozen value, and becomes a line of the log.

Those of streams are in `onceq.streams.logged`.

`tell` logs an event with the logger of the module that calls it; nothing else in onceq logs (a test
checks this). No event holds a body, a reply, a tag, a checkpoint or a password. Two fields hold
text from the user's code: `traceback` (the handler's own exception) and `error` (of a module that
cannot be loaded, or of a Spark query). docs/operations.md has the table.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast, dataclass_transform
from uuid import UUID

BARE: Final = re.compile(r"[\w.:/@+-]+", re.ASCII)
INDENT: Final = "    "


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Event:
    """Something that happened: a frozen subclass. Its fields, given by name, are those of the line.

    level: the line's log level, given with the class.
    """

    level: ClassVar[int]

    def __init_subclass__(cls, level: int = logging.INFO) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        cls.level = level

    @classmethod
    def name(cls) -> str:
        """Returns the event's name in the line: the class's, written like `queue_missing`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


class _OfRequest(Event):
    """What happened to an execution of a request. attempt: 1 for the first."""

    queue: str
    rid: str
    eid: UUID
    attempt: int


class Conflict(_OfRequest):
    """An execution met another transaction: serialization, deadlock, lock. fate: see Aborted."""

    code: str
    charge: str
    fate: str


class Aborted(_OfRequest, level=logging.WARNING):
    """An execution failed. charge: what it costs, as the server said.

    fate: returned, or failed for good. traceback: where in the handler it failed; None when the
    handler was not running, or the element's previous abort had the same code and text.
    """

    code: str
    charge: str
    fate: str
    traceback: str | None


class ClaimLost(Event, level=logging.WARNING):
    """An execution is void: the element was killed or taken over."""

    queue: str
    rid: str
    eid: UUID


class BatchUndone(Event):
    """A batch came to nothing, and runs again in pieces. code: of the error.

    eid: of its first request. requests: how many it had; called: of so many, in their order, the
    handler was called, and will be again.
    """

    queue: str
    eid: UUID
    requests: int
    called: int
    code: str


class InDoubt(_OfRequest, level=logging.WARNING):
    """The commit of a request is in doubt; the session's next life learns the truth."""


class HandlerHangs(_OfRequest, level=logging.ERROR):
    """A handler ran past its limit; its process is ended. In a batch, one of the requests hangs."""

    charge: str
    child: int
    ran_s: float
    limit_s: float


class OnErrorFailed(Event, level=logging.ERROR):
    """The server's `on_error` raised. queue, rid, eid: of the abort that it was told of."""

    queue: str
    rid: str
    eid: UUID
    code: str
    traceback: str | None


class OnErrorLate(Event, level=logging.ERROR):
    """The server's `on_error` does not return; aborts wait for it, and the newest are dropped."""

    ran_s: float
    waiting: int
    dropped: int


class TookOver(Event, level=logging.WARNING):
    """A session has ended, and its claims are taken back: uncharged, as suspects, or charged.

    of_...: whose it was. Told by whoever took it back: a server, the supervisor, a queue manager or
    Spark's driver. Of what a Spark server held nothing is charged; suspects: what it had begun.
    """

    of_incarnation: int
    of_process: UUID | None
    of_host: str | None
    of_pid: int | None
    of_spark_server: str | None
    returned: int
    suspects: int
    charged: int


class SessionLost(Event, level=logging.WARNING):
    """A session lost its life; it connects again after the delay. code: of the error."""

    incarnation: int | None
    code: str
    error: str
    delay_s: float


class Reconnected(Event):
    """A session is connected again. incarnation: its former life. losses: how many in a row."""

    incarnation: int | None
    losses: int
    away_s: float


class QueueMissing(Event, level=logging.WARNING):
    """A queue being served was destroyed; it is served again when it is created anew."""

    queue: str


class QueueStopped(Event, level=logging.WARNING):
    """A queue being served is stopped for dequeue; `onceq queue start` starts it."""

    queue: str


class QueuePaused(Event, level=logging.WARNING):
    """Nothing is dequeued for so long: the environment failed so often, with nothing done between.

    `onceq queue start` ends the pause.
    """

    queue: str
    pause_s: int
    faults: int


class QueueServed(Event):
    """A queue that was missing or stopped is served again."""

    queue: str


class TickRefused(Event, level=logging.WARNING):
    """A periodic request is due and cannot be sent, for this reason; it is tried again."""

    periodic: str
    error: str


class RetentionFailed(Event, level=logging.WARNING):
    """History that a queue keeps no longer cannot be removed; it is tried again."""

    queue: str
    error: str


class ServerBegan(Event):
    """A server begins. process: its id in the repository. sessions: how many it has."""

    process: UUID
    repository: str
    queues: tuple[str, ...]
    sessions: int


class ServerStopped(Event):
    """A server has stopped. finished: whether all that ran has ended. COUNTS: its totals."""

    COUNTS: ClassVar[tuple[str, ...]] = ("done", "failed", "returned", "claims_lost")
    process: UUID
    finished: bool
    done: int
    failed: int
    returned: int
    claims_lost: int


class SessionAbandoned(Event, level=logging.WARNING):
    """A session was still running at the deadline of the stop: it is revoked, uncharged."""

    incarnation: int


class NotListening(Event):
    """The connection for rings is lost; until it is back, sleepers look by themselves."""

    error: str
    delay_s: float


# --- the supervisor of `onceq serve` --------------------------------------------------------------


class ChildReady(Event):
    """A process is serving. child: its pid."""

    child: int


class ChildDied(Event, level=logging.WARNING):
    """A process has ended; another follows after the delay. code: exit code, or minus a signal."""

    child: int
    code: int
    delay_s: float


class ChildRetired(Event):
    """A process that is not wanted any more has ended. code: 0; 3: what ran still was revoked."""

    child: int
    code: int


class ServiceScaled(Event):
    """A service is to have more processes, or fewer.

    before: how many it has; waiting: how many requests could run, up to 10,000; oldest_s: how long
    the oldest has waited; is_open: False: its window has ended.
    """

    processes: int
    before: int
    waiting: int
    oldest_s: float
    is_open: bool


class ChildKilled(Event, level=logging.WARNING):
    """A process did not stop in time: it is revoked, uncharged, and then killed."""

    child: int


class ChildNotLoaded(Event, level=logging.WARNING):
    """A process that was restarted could not load the server; the others go on serving."""

    child: int
    error: str


class DatabaseAway(Event, level=logging.WARNING):
    """PostgreSQL is going down or coming up while `onceq serve` begins: it tries again."""

    error: str
    delay_s: float


class MetricsAway(Event, level=logging.WARNING):
    """The repository does not answer a look for metrics; the next scrape looks again."""

    error: str


class MetricsBack(Event):
    """The repository answers looks for metrics again, after so long."""

    away_s: float


class UpgradeWaits(Event, level=logging.WARNING):
    """A repository is to be made or upgraded, and its tables are locked: it tries again.

    holders: who had locks of it after the try, in words.
    """

    repository: str
    holders: str
    delay_s: float


class SupervisionFailed(Event, level=logging.WARNING):
    """The supervisor could not ask, or tell, the repository something. what: the thing it tried."""

    what: str
    error: str


class SparkBegan(Event):
    """A new life of a Spark server begins: its query is started."""

    server: str
    queue: str
    epoch: int


class SparkStopped(Event):
    """A Spark server has stopped."""

    server: str
    lives: int


class QueryEnded(Event, level=logging.WARNING):
    """A Spark server's query has ended, and is started again. verdict: whose fault it was."""

    server: str
    verdict: str
    error: str
    delay_s: float


class SparkConnectionLost(Event, level=logging.WARNING):
    """A connection of Spark's is lost; the query goes on, and the statement is tried again."""

    error: str


# --- how they are told ----------------------------------------------------------------------------


def tell(log: logging.Logger, event: Event) -> None:
    """Logs an event as a line `name field=value ...`. Its record has a dict too: `record.onceq`."""
    if log.isEnabledFor(event.level):
        extra = {"onceq": content_of(event)}
        log.log(event.level, "%s", line_of(event), extra=extra, stacklevel=2)


def content_of(event: Event) -> dict[str, Any]:
    """Returns an event's name and those of its fields that are not None."""
    known = {name: clean(value) for name, value in vars(event).items() if value is not None}
    return {"event": event.name(), **known}


def line_of(event: Event) -> str:
    """Returns an event as one line of text; a traceback follows it, each line indented."""
    content = content_of(event)
    name, trace = content.pop("event"), content.pop("traceback", None)
    line = " ".join([name, *(f"{key}={_plain(value)}" for key, value in content.items())])
    return line if trace is None else f"{line}\n{_indented(trace)}"


def clean(value: Any) -> Any:
    """Returns text without the characters that UTF-8 cannot hold; other values as they are."""
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
