"""`onceq periodic ...`: what is sent by a schedule; and `onceq tend`, which sends what is due."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import msgspec
import typer

import onceq
from onceq.cli.command import Invocation, command
from onceq.cli.enqueueing import checked_json
from onceq.cli.output import duration
from onceq.model.code_pages import BINARY
from onceq.model.periodic import Periodic, PeriodicInfo

app: Final = typer.Typer(no_args_is_help=True, help="Periodic requests: list and change them.")

COLUMNS: Final = ("name", "queue", "schedule", "zone", "next", "late", "last", "state", "error")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The periodic request's name.")]
Zone = Annotated[str | None, typer.Option(help='A time zone like "Europe/Berlin"; default: UTC.')]
Missed = Annotated[
    str | None,
    typer.Option(help="What is sent for ticks that nobody saw: last (the default), all, none."),
]
Overlap = Annotated[
    bool | None,
    typer.Option(
        "--overlap/--no-overlap", help="Whether one is sent while the last one waits or runs."
    ),
]
Raw = Annotated[bool, typer.Option("--raw", help="The body's bytes as they are, not JSON.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What may be given, and else stays as it is."""

    zone: Zone = None
    missed: Missed = None
    overlap: Overlap = None
    raw: Raw = False

    @property
    def given(self) -> dict[str, Any]:
        """What was given of the schedule."""
        chosen = {"zone": self.zone, "missed": self.missed, "overlap": self.overlap}
        return {name: value for name, value in chosen.items() if value is not None}

    def content(self, body: str) -> bytes | msgspec.Raw:
        """Returns the request that is given as a body. InvalidValue: it is not JSON."""
        given = sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape")
        return given if self.raw else msgspec.Raw(checked_json(given))


def as_row(info: PeriodicInfo) -> dict[str, Any]:
    """Returns a periodic request as programs see it: a body that is JSON as a text."""
    row = asdict(info)
    if info.content_type != BINARY:
        row["body"] = info.body.decode(errors="replace")
    return row


def _for_people(info: PeriodicInfo) -> dict[str, Any]:
    states = (("paused", info.is_paused), ("refused", info.error), ("runs", info.is_under_way))
    shown = [name for name, is_so in states if is_so]
    return {
        **asdict(info),
        "next": info.next_at,
        "late": duration(info.lag_s) if info.lag_s else None,
        "last": info.ticked_at,
        "state": "+".join(shown) or None,
    }


@command(app, "list")
def list_periodics(invoked: Invocation) -> None:
    """List the periodic requests: when each comes next, how late it is, and why."""
    with invoked.open() as qm:
        found = qm.periodics()
    make = as_row if invoked.as_json else _for_people
    invoked.output.rows(COLUMNS, [make(one) for one in found])


@command(app, "show")
def show(invoked: Invocation, name: Name) -> None:
    """Show a periodic request: its settings, its next time, its last request."""
    with invoked.open() as qm:
        info = qm.show_periodic(name)
    invoked.output.item(as_row(info))


@command(app, "create")
def create(
    invoked: Invocation,
    name: Name,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Where its requests go.")],
    *,
    schedule: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help='The five fields of cron: "0 2 * * *".')
    ],
    body: Annotated[
        str, typer.Argument(metavar="[BODY]", help="The request; - reads it from standard input.")
    ] = "-",
    how: How,
) -> None:
    """Create a periodic request; doing so again with the same settings is harmless."""
    made = _periodic(name, queue, how.content(body), {"schedule": schedule, **how.given})
    with invoked.open() as qm:
        created = qm.declare(made)
        info = qm.show_periodic(name)
    invoked.output.item({"periodic": name, "created": created, "next_at": info.next_at})


@command(app, "alter")
def alter(
    invoked: Invocation,
    name: Name,
    *,
    queue: Annotated[str | None, typer.Option(help="Where its requests go.")] = None,
    schedule: Annotated[str | None, typer.Option(help="The five fields of cron.")] = None,
    body: Annotated[
        str | None, typer.Option(help="The request; - reads it from standard input.")
    ] = None,
    how: How,
) -> None:
    """Change a periodic request; what is not given stays. It goes on from now."""
    with invoked.open() as qm:
        before = qm.show_periodic(name)
        content = _former(before) if body is None else how.content(body)
        kept = {field: getattr(before, field) for field in ("zone", "missed", "overlap")}
        chosen = {**kept, "schedule": schedule or before.schedule, **how.given}
        qm.alter_periodic(_periodic(name, queue or before.queue, content, chosen))
        info = qm.show_periodic(name)
    invoked.output.item(as_row(info))


@command(app, "pause")
def pause(invoked: Invocation, name: Name) -> None:
    """Send nothing of it until it is resumed."""
    with invoked.open() as qm:
        changed = qm.pause_periodic(name)
    invoked.output.item({"periodic": name, "paused": True, "changed": changed})


@command(app, "resume")
def resume(invoked: Invocation, name: Name) -> None:
    """Go on with its next time; what came while it was paused is not sent."""
    with invoked.open() as qm:
        changed = qm.resume_periodic(name)
        info = qm.show_periodic(name)
    row = {"periodic": name, "paused": False, "changed": changed, "next_at": info.next_at}
    invoked.output.item(row)


@command(app, "remove")
def remove(invoked: Invocation, name: Name) -> None:
    """Remove a periodic request; what it has sent stays."""
    with invoked.open() as qm:
        qm.show_periodic(name)
        removed = qm.remove_periodic(name)
    invoked.output.item({"periodic": name, "removed": removed})


def tend(invoked: Invocation) -> None:
    """Send the periodic requests that are due now: only needed where no server runs.

    It also removes some of the history that queues keep no longer (--history-days). Servers do so
    once a second. Without any, let cron run this each minute.
    """
    with invoked.open() as qm:
        sent = qm.tend()
    invoked.output.item({"sent": sent})


def _former(info: PeriodicInfo) -> bytes | msgspec.Raw:
    return info.body if info.content_type == BINARY else msgspec.Raw(info.body)


def _periodic(
    name: str, queue: str, content: bytes | msgspec.Raw, how: dict[str, Any]
) -> Periodic[Any]:
    kind: Any = bytes if type(content) is bytes else msgspec.Raw  # Raw is one to mypy, too
    return Periodic(name, onceq.Queue(queue, kind, bytes), content, **how)
