"""`onceq queue ...`: list, show, scan, create, alter, start, stop, destroy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Annotated, Any, Final

import typer
from msgspec import to_builtins

from onceq.api import QueueManager
from onceq.cli.command import Invocation, command
from onceq.cli.output import duration
from onceq.model import ops
from onceq.model.admin_ops import Rates
from onceq.model.queue import Limits, Queue, QueueInfo, QueueKind, QueueSettings
from onceq.model.retention import Retention
from onceq.model.scan import Scanned

app: Final = typer.Typer(no_args_is_help=True, help="Queues: list and change them.")

NOTES: Final = {
    "abort_limit": "How many charged aborts make an element fail, 1 to 1000.",
    "retry_limit": "How often Retry, or a fault of the environment, leaves an element uncharged.",
    "backoff_ms": "Milliseconds to wait after the first abort; doubled by each further one.",
    "backoff_max_ms": "The longest such wait, in milliseconds.",
    "execution_limit_s": "Seconds after which an execution is ended.",
    "body_bytes_max": "The largest body of an element.",
    "tag_bytes_max": "The largest tag.",
    "durable": "Whether the contents survive a crash of the database.",
    "keep_body": "Whether history keeps the bodies of requests and replies.",
    "order": "strict: one element at a time, the first that was sent first.",
    "depth_max": "The most elements that the queue takes.",
    "bytes_max": "The most bytes of their bodies together.",
    "on_failure": "fail, or hold: what reaches its abort limit waits here for an operator.",
    "history_days": "For how many days history tells of a request after its end.",
    "error_queue": "Where failed elements go; default: NAME.error.",
}

COUNTS: Final = ("name", "kind", "depth", "ready", "claimed", "waiting", "suspect", "held")
COLUMNS: Final = (*COUNTS, "oldest", "done/min", "open")
SCAN_COLUMNS: Final = (
    *("eid", "rid", "state", "priority", "aborts", "enqueued_at", "not_before", "expires_at"),
    *("body_bytes", "code", "error"),
)
HIDDEN: Final = ("seq", "lane", "queue_id", "send_no")

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")]
Enqueue = Annotated[bool, typer.Option("--enqueue", help="Only for enqueue.")]
Dequeue = Annotated[bool, typer.Option("--dequeue", help="Only for dequeue.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The settings that can be changed; None leaves one as it is."""

    abort_limit: int | None = None
    retry_limit: int | None = None
    backoff_ms: int | None = None
    backoff_max_ms: int | None = None
    execution_limit_s: int | None = None
    body_bytes_max: int | None = None
    tag_bytes_max: int | None = None
    keep_body: bool | None = None
    on_failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsGiven:
    """The limits of a queue, as options."""

    depth_max: int | None = None
    bytes_max: int | None = None

    def over(self, before: Limits) -> Limits:
        """Returns these limits; one that is not given stays as it was. InvalidValue."""
        return Limits(
            depth=before.depth if self.depth_max is None else self.depth_max,
            bytes=before.bytes if self.bytes_max is None else self.bytes_max,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionGiven:
    """For how long a queue keeps what has ended, as options."""

    history_days: int | None = None
    no_retention: Annotated[
        bool, typer.Option("--no-retention", help="Keep history until somebody trims it.")
    ] = False

    def over(self, before: int | None) -> Retention:
        """Returns the retention; what is not given stays as it was. InvalidValue."""
        kept = None if self.no_retention else before
        return Retention(history_days=kept if self.history_days is None else self.history_days)


def as_row(info: QueueInfo) -> dict[str, Any]:
    """Returns a queue as the command line shows it."""
    openings = (("enqueue", info.enqueue_started), ("dequeue", info.dequeue_started))
    return {
        **{name: getattr(info, name) for name in COUNTS},
        "open": "+".join(name for name, started in openings if started) or "stopped",
        "enqueue_started": info.enqueue_started,
        "dequeue_started": info.dequeue_started,
        "paused_until": info.paused_until,
        "created_at": info.created_at,
        "oldest_at": info.oldest_at,
        "settings": asdict(info.settings) | {"limits": to_builtins(info.settings.limits)},
    }


@command(app, "list")
def list_queues(
    invoked: Invocation,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Include the private reply queues of clients.")
    ] = False,
) -> None:
    """List the queues: how many elements are where, the oldest's age, requests done per minute."""
    with invoked.open() as qm:
        found = [info for info in qm.queues() if every or info.kind is not QueueKind.REPLY]
        rates = qm.rates()
    rows = [as_row(info) | _of_late(info, rates) for info in found]
    if not invoked.as_json:
        rows = [row | _for_people(row) for row in rows]
    invoked.output.rows(COLUMNS, rows)


def _of_late(info: QueueInfo, rates: Rates) -> dict[str, Any]:
    """Returns the age of a queue's oldest element, by the database's clock, and its rate."""
    age = None if info.oldest_at is None else max(0.0, (rates.at - info.oldest_at).total_seconds())
    return {"oldest_age_s": age, "done_per_minute": rates.per_minute.get(info.name)}


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    age, rate = row["oldest_age_s"], row["done_per_minute"]
    return {
        "oldest": None if age is None else duration(age),
        "done/min": None if rate is None else f"{rate:.0f}",
    }


@command(app, "show")
def show(invoked: Invocation, queue: Name) -> None:
    """Show a queue: its settings, and how many elements are where."""
    with invoked.open() as qm:
        info = qm.show(queue)
        row = as_row(info) | _of_late(info, qm.rates())
    if not invoked.as_json:
        row |= row.pop("settings")
    invoked.output.item(row)


@command(app, "scan")
def scan(
    invoked: Invocation,
    queue: Name,
    *,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    body: Annotated[bool, typer.Option("--body", help="With --json: the bodies, too.")] = False,
) -> None:
    """Show the elements of a queue, in its order, and leave them there.

    What waits or is executing, what an error queue holds, the replies of a client. What is sent
    meanwhile is not shown. With --json each is printed as it is read.
    """
    with invoked.open() as qm:
        found = islice(qm.scan(queue), limit)
        invoked.output.rows(SCAN_COLUMNS, (_scanned(one, with_body=body) for one in found))


def _scanned(one: Scanned, *, with_body: bool) -> dict[str, Any]:
    """Returns an element as the command line shows it, without what only SQL uses."""
    row = {name: value for name, value in asdict(one).items() if name not in HIDDEN}
    body = row.pop("body")
    return row | {"body_bytes": len(body)} | ({"body": body} if with_body else {})


@command(app, "create", notes=NOTES)
def create(invoked: Invocation, queue: Name, settings: QueueSettings, limits: LimitsGiven) -> None:
    """Create a queue and its error queue; doing so again with the same settings is harmless."""
    chosen = replace(settings, limits=limits.over(Limits()))
    declared: Queue[bytes, bytes] = Queue(queue, bytes, bytes, **asdict(chosen))
    with invoked.open() as qm:
        created = qm.declare(declared)
    invoked.output.item({"queue": queue, "created": created})


@command(app, "alter", notes=NOTES)
def alter(
    invoked: Invocation,
    queue: Name,
    changes: Changes,
    limits: LimitsGiven,
    *,
    retention: RetentionGiven,
    no_limits: Annotated[
        bool, typer.Option("--no-limits", help="Take away the limits that are not given.")
    ] = False,
) -> None:
    """Change settings of a queue; those not given stay as they are."""
    with invoked.open() as qm:
        before = qm.show(queue)
        given = {name: value for name, value in asdict(changes).items() if value is not None}
        QueueSettings(**{**asdict(before.settings), **given})
        chosen = limits.over(Limits() if no_limits else before.settings.limits)
        kept = retention.over(before.settings.history_days)
        qm.alter(ops.AlterQueue(queue=queue, limits=chosen, retention=kept, **given))
        after = as_row(qm.show(queue))["settings"]
    invoked.output.item({"queue": queue, **after})


@command(app, "start")
def start(
    invoked: Invocation, queue: Name, *, enqueue: Enqueue = False, dequeue: Dequeue = False
) -> None:
    """Start a queue for enqueue, for dequeue, or for both if neither option is given."""
    _open(invoked, queue, QueueManager.start, enqueue=enqueue, dequeue=dequeue)


@command(app, "stop")
def stop(
    invoked: Invocation, queue: Name, *, enqueue: Enqueue = False, dequeue: Dequeue = False
) -> None:
    """Stop a queue for enqueue, for dequeue, or for both if neither option is given."""
    _open(invoked, queue, QueueManager.stop, enqueue=enqueue, dequeue=dequeue)


def _open(
    invoked: Invocation, queue: str, change: Callable[..., None], *, enqueue: bool, dequeue: bool
) -> None:
    """Starts or stops a queue, and says for what it is started then."""
    both = enqueue == dequeue
    with invoked.open() as qm:
        change(qm, queue, enqueue=enqueue or both, dequeue=dequeue or both)
        info = qm.show(queue)
    started = {name: getattr(info, name) for name in ("enqueue_started", "dequeue_started")}
    invoked.output.item({"queue": info.name, **started})


@command(app, "destroy")
def destroy(invoked: Invocation, queue: Name) -> None:
    """Destroy an empty queue; one that holds elements is never destroyed."""
    with invoked.open() as qm:
        qm.destroy(queue)
    invoked.output.item({"queue": queue, "destroyed": True})
