"""`onceq request show` and `find`, `kill`: requests, wherever they are."""

from __future__ import annotations

import textwrap
import uuid
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from onceq import QueueManager
from onceq.cli.command import Invocation, command
from onceq.cli.exits import NOT_FOUND, OK, VIOLATION
from onceq.cli.old_requests import Shown, as_eid, find_all, look_up
from onceq.cli.output import hint, plain
from onceq.errors import InvalidValue
from onceq.model.element import (
    ElementState,
    KillAnswer,
    OldRequest,
    RequestOutcome,
    RequestState,
    Role,
    Search,
)

request_app: Final = typer.Typer(no_args_is_help=True, help="Requests: show and find them.")

COLUMNS: Final = ("rid", "registrant", "queue", "state", "outcome", "attempts", "times", "server")
OLD_COLUMNS: Final = (
    *("rid", "registrant", "queue", "outcome", "attempts", "code", "enqueued_at", "finished_at"),
    *("waited_s", "service_s"),
)
BODIES: Final = {"body", "reply"}
ATTRIBUTES: Final = (
    *("type", "message_id", "reply_to", "content_type", "code_page", "properties", "scratch"),
)
"""Of what has not ended: history does not keep them."""

KILL_CODES: Final = {
    KillAnswer.KILLED: OK,
    KillAnswer.TOO_LATE: VIOLATION,
    KillAnswer.NOT_FOUND: NOT_FOUND,
}


def as_row(state: RequestState) -> dict[str, Any]:
    """Returns one place of a request as the command line shows it."""
    row = asdict(state)
    row["attempts"] = state.attempts
    return row


def _shown(qm: QueueManager, place: Shown, *, body: bool) -> dict[str, Any]:
    """Returns a place of a request: with its attributes, the aborts of its executions, its end."""
    row = as_row(place.state)
    is_over = place.state.state is ElementState.FINISHED
    element = None if is_over else qm.read(place.state.eid)
    if element is not None:
        row |= {name: getattr(element, name) for name in ATTRIBUTES}
    if place.old is not None:
        row |= {name: value for name, value in old_row(place.old).items() if name not in row}
    if body and place.old is None:
        row["body"] = None if element is None else element.body
    row["aborted"] = [asdict(one) for one in place.aborts]
    return row


def _code(missed: str | None) -> int:
    """Returns the exit code of an answer; says so if the archive could not be asked."""
    if missed is None:
        return OK
    hint(f"onceq: {missed}; this is what PostgreSQL holds")
    return VIOLATION


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of `show` with its list of aborts as one line each."""
    aborts = row.pop("aborted")
    shown: str | None = None
    for number, one in enumerate(aborts, 1):
        where = f"{one['host']} {one['pid']}" if one["host"] else f"incarnation {one['server']}"
        said = f"{one['charge'].value}: {one['code']}: {one['error']} ({where})"
        row[f"abort {number}"] = f"{plain(one['ended_at'])} {said}"
        trace: str | None = one["traceback"]
        if trace is not None and trace != shown:  # do not show the same one again
            row[f"abort {number}"] += "\n" + textwrap.indent(trace, "    ").rstrip()
            shown = trace
    return row


@command(request_app, "show")
def show(
    invoked: Invocation,
    rid: Annotated[str, typer.Argument(metavar="RID", help="The request's id, or its eid.")],
    *,
    client: Annotated[str | None, typer.Option(help="Only this client's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most this many places.")] = 100,
    body: Annotated[
        bool, typer.Option("--body", help="Show the request and its reply too, if they are kept.")
    ] = False,
) -> int:
    """Show every place where a request is or was: state, times, attempts, errors, server.

    Requests that were trimmed from PostgreSQL are looked up in the archive.
    """
    with invoked.open() as qm:
        found, missed = look_up(qm, rid, client, limit)
        rows = [_shown(qm, one, body=body) for one in found]
    if not body and not invoked.as_json:
        rows = [{name: row[name] for name in row if name not in BODIES} for row in rows]
    if not found:
        hint(f"onceq: no request {rid!r} is or was here (as far as history is kept)")
        return NOT_FOUND
    for number, row in enumerate(rows):
        if number and not invoked.as_json:
            invoked.output.text("")
        invoked.output.item(row if invoked.as_json else _for_people(row))
    return _code(missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which requests `request find` looks for."""

    registrant: Annotated[str | None, typer.Option(help="Only this client's.")] = None
    queue: Annotated[str | None, typer.Option(help="Only in this queue.")] = None
    outcome: Annotated[
        RequestOutcome | None, typer.Option(help="Only requests with this outcome.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(help="Only if they ended at this time or later: 2026-01-31T12:00:00+01:00."),
    ] = None
    until: Annotated[str | None, typer.Option(help="Only if they ended before this time.")] = None

    @property
    def search(self) -> Search:
        """The search in the queue manager's form. InvalidValue: not a time."""
        return Search(
            registrant=self.registrant,
            queue=self.queue,
            outcome=self.outcome,
            since=as_time("--since", self.since),
            until=as_time("--until", self.until),
        )


@command(request_app, "find")
def find(
    invoked: Invocation,
    wanted: Wanted,
    *,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 100,
) -> int:
    """Find requests that have ended, the latest first; exit 3 if there are none.

    Requests that were trimmed from PostgreSQL are looked up in the archive.
    """
    with invoked.open() as qm:
        found, missed = find_all(qm, wanted.search, limit)
    if not found:
        return NOT_FOUND
    invoked.output.rows(OLD_COLUMNS, [old_row(one) for one in found])
    return _code(missed)


def old_row(old: OldRequest) -> dict[str, Any]:
    """Returns a request that has ended as the command line shows it; bodies as bytes."""
    row = asdict(old)
    row |= {"outcome": old.outcome.value, "attempts": old.attempts}
    row["waited_s"] = None if old.waited is None else old.waited.total_seconds()
    row["service_s"] = None if old.service is None else old.service.total_seconds()
    return row


def as_time(option: str, text: str | None) -> datetime | None:
    """Returns a point in time; without a time zone it is in this machine's."""
    try:
        return None if text is None else datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise InvalidValue(f"{option} is a time like 2026-01-31T12:00:00, not {text!r}") from None


def kill(
    invoked: Invocation,
    request: Annotated[str, typer.Argument(metavar="EID|RID", help="The request to kill.")],
    *,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Seconds to wait if it is just finishing.")
    ] = 10.0,
) -> int:
    """Kill a request, queued or running: KILLED (exit 0), TOO_LATE (1) or NOT_FOUND (3)."""
    with invoked.open() as qm:
        eid = _eid_of(qm, request)
        answer = KillAnswer.NOT_FOUND if eid is None else qm.kill(eid, timeout_s=timeout_s)
    invoked.output.item({"request": request, "eid": eid, "answer": answer.value})
    return KILL_CODES[answer]


def _eid_of(qm: QueueManager, text: str) -> uuid.UUID | None:
    """Returns the eid of a request given by eid or rid; prefers one that is not finished."""
    eid = as_eid(text)
    if eid is not None and qm.lookup(eid=eid, limit=1):
        return eid
    found = [one for one in qm.lookup(text, limit=100) if one.role in {Role.REQUEST, Role.DATAGRAM}]
    open_ones = {one.eid for one in found if one.state is not ElementState.FINISHED}
    if len(open_ones) > 1:
        listed = ", ".join(str(one) for one in sorted(open_ones))
        raise InvalidValue(
            f"{len(open_ones)} requests have the rid {text!r}: give an eid: {listed}"
        )
    return next(iter(open_ones), found[0].eid if found else None)
