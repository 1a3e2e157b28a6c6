"""`onceq error list` and `redrive`: what failed and is held in error queues, and its next run."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from onceq import QueueManager
from onceq.cli.command import Invocation, command
from onceq.cli.exits import NOT_FOUND, OK, VIOLATION
from onceq.cli.old_requests import as_eid
from onceq.cli.output import hint
from onceq.cli.requests import as_row, as_time
from onceq.errors import InvalidValue
from onceq.model.element import ElementState
from onceq.model.held import Held, HeldSearch, Redriven

error_app: Final = typer.Typer(
    no_args_is_help=True, help="Errors: list requests that failed and are held."
)

ERROR_COLUMNS: Final = ("eid", "rid", "registrant", "queue", "attempts", "code", "where", "error")
GROUP_COLUMNS: Final = ("count", "queue", "code", "first_at", "last_at", "eid", "where", "text")
REDRIVEN_COLUMNS: Final = ("old_eid", "eid", "rid")
DRY_COLUMNS: Final = ("eid", "rid", "registrant", "queue", "failed_at", "code", "error")
FRAME: Final = re.compile(r'^ *File "(.*[/\\])?([^/\\"]+)", line (\d+), in (.+)$', re.MULTILINE)
NOT_THE_USERS: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]"
)
"""Directories of packages and of the standard library."""
REDRIVES: Final = {(True, False, False), (False, True, True)}
"""What may be given together: an EID alone, or what to choose with --all."""
DRY: Final = {(True, False, False), (False, True, True), (False, True, False)}
"""The same with --dry-run, which needs no --all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which held elements are meant."""

    queue: Annotated[
        str | None, typer.Option(help="Only what failed in this queue, or is in this error queue.")
    ] = None
    code: Annotated[str | None, typer.Option(help="Only with this code: KeyError.")] = None
    text: Annotated[
        str | None, typer.Option(help="Only with this error text; its numbers do not matter.")
    ] = None
    client: Annotated[str | None, typer.Option(help="Only this client's.")] = None
    since: Annotated[
        str | None,
        typer.Option(help="Only if it failed at this time or later: 2026-01-31T12:00:00+01:00."),
    ] = None
    until: Annotated[str | None, typer.Option(help="Only if it failed before this time.")] = None

    @property
    def search(self) -> HeldSearch:
        """The search in the queue manager's form. InvalidValue: not a time."""
        return HeldSearch(
            queue=self.queue,
            code=self.code,
            text=self.text,
            registrant=self.client,
            since=as_time("--since", self.since),
            until=as_time("--until", self.until),
        )

    @property
    def is_some(self) -> bool:
        """Whether anything is chosen."""
        return any(value is not None for value in asdict(self).values())


def where_in(traceback: str | None) -> str | None:
    """Returns the last line in the user's own code that a traceback names; failing that, any."""
    found = FRAME.findall(traceback or "")
    own = [one for one in found if not NOT_THE_USERS.search(one[0]) and not one[1].startswith("<")]
    return "{1}:{2} in {3}".format(*(own or found)[-1]) if found else None


def _traceback(qm: QueueManager, eid: UUID) -> str | None:
    """Returns the traceback of an element's last abort, if there is one."""
    aborts = qm.attempts(eid)
    return aborts[-1].traceback if aborts else None


def _error_rows(qm: QueueManager, held: list[Held]) -> list[dict[str, Any]]:
    """Returns what failed as `error list` shows it: where it is, with its last traceback."""
    rows: list[dict[str, Any]] = []
    for one in held:
        traceback = _traceback(qm, one.eid)
        more = {"failed_at": one.failed_at, "where": where_in(traceback), "traceback": traceback}
        places = qm.lookup(eid=one.eid, state=ElementState.HELD)
        rows += [as_row(place) | more for place in places]
    return rows


@command(error_app, "list")
def list_errors(
    invoked: Invocation,
    chosen: Chosen,
    *,
    group: Annotated[
        bool, typer.Option("--group", help="Count what failed alike, numbers in the text apart.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most this many.")] = 100,
) -> None:
    """List what failed and is held in error queues, the latest first, or in groups.

    WHERE is the line of the handler that raised; --json shows the whole traceback. Of a group it is
    that of the example, EID: the one that failed last.
    """
    search = chosen.search
    search["limit"] = limit
    with invoked.open() as qm:
        if not group:
            invoked.output.rows(ERROR_COLUMNS, _error_rows(qm, qm.held(**search)))
            return
        groups = [
            asdict(one) | {"where": where_in(_traceback(qm, one.eid))}
            for one in qm.held_groups(**search)
        ]
    invoked.output.rows(GROUP_COLUMNS, groups)


def redrive(
    invoked: Invocation,
    chosen: Chosen,
    eid: Annotated[
        str | None, typer.Argument(metavar="[EID]", help="The eid, as `error list` shows it.")
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Everything that the other options choose.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many would be redriven, and which.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, help="At most this many, those that failed first.")
    ] = 100_000,
) -> int:
    """Run failed requests again, as new requests linked to the old ones.

    One by its EID, or with --all everything that the other options choose.
    """
    if (eid is not None, chosen.is_some, every) not in (DRY if dry_run else REDRIVES):
        raise InvalidValue(
            "give an EID; or what to redrive (--queue, --code, --text, --client, --since, --until) "
            "and --all, or --dry-run to see it first"
        )
    search = chosen.search
    search["limit"] = limit
    with invoked.open() as qm:
        if eid is not None:
            one = search["eid"] = _required_eid(qm, eid)
            if not dry_run:
                return _redrive_one(invoked, qm, one)
        redriven = qm.redrive_held(dry_run=dry_run, **search)
    if dry_run:
        return _say_which(invoked, [one.old for one in redriven])
    return _say_what(invoked, redriven)


def _redrive_one(invoked: Invocation, qm: QueueManager, eid: UUID) -> int:
    new = qm.redrive(eid)
    rows = [] if new is None else [{"old_eid": eid, "eid": new[0], "rid": new[1]}]
    invoked.output.rows(REDRIVEN_COLUMNS, rows)
    if new is None:
        hint(f"onceq: {eid} is not held in an error queue: `onceq error list` shows what is")
        return NOT_FOUND
    return OK


def _say_which(invoked: Invocation, held: list[Held]) -> int:
    """Says what would be redriven."""
    invoked.output.rows(DRY_COLUMNS, map(asdict, held))
    text = f"onceq: {len(held)} would be redriven, and nothing was: it is a dry run"
    invoked.output.event("dry_run", text, count=len(held))
    return OK


def _say_what(invoked: Invocation, redriven: list[Redriven]) -> int:
    """Says what was redriven, and what was not, and why."""
    done = [one for one in redriven if one.eid is not None]
    rows = [{"old_eid": one.old.eid, "eid": one.eid, "rid": one.rid} for one in done]
    invoked.output.rows(REDRIVEN_COLUMNS, rows)
    refused = [one for one in redriven if one.refused is not None]
    for one in refused:
        hint(f"onceq: {one.old.eid} was not redriven: {one.refused}")
    if not redriven:
        hint("onceq: nothing was there to redrive: `onceq error list` shows what is held")
    return VIOLATION if refused else OK


def _required_eid(qm: QueueManager, text: str) -> UUID:
    eid = as_eid(text)
    if eid is not None:
        return eid
    held = qm.lookup(text, state=ElementState.HELD, limit=2)
    if len(held) != 1:
        raise InvalidValue(f"{text!r} is neither an eid nor the rid of one held request")
    return held[0].eid
