"""`onceq error` and `redrive`: what failed or is held, and its next run."""

from __future__ import annotations

import re
from collections.abc import Callable
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
from onceq.model.element import ElementState, Unheld
from onceq.model.held import Held, HeldSearch, Redriven, Released

error_app: Final = typer.Typer(
    no_args_is_help=True, help="Errors: list requests that failed and are held."
)

ERROR_COLUMNS: Final = ("eid", "rid", "registrant", "queue", "attempts", "code", "where", "error")
GROUP_COLUMNS: Final = ("count", "queue", "code", "first_at", "last_at", "eid", "where", "text")
REDRIVEN_COLUMNS: Final = ("old_eid", "eid", "rid")
RELEASED_COLUMNS: Final = ("eid", "rid", "registrant", "queue", "attempts", "code", "fate")
DRY_COLUMNS: Final = ("eid", "rid", "registrant", "queue", "failed_at", "code", "error")
FRAME: Final = re.compile(r'^ *File "(.*[/\\])?([^/\\"]+)", line (\d+), in (.+)$', re.MULTILINE)
NOT_THE_USERS: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]"
)
"""Directories of packages and of the standard library."""
Eid = Annotated[
    str | None, typer.Argument(metavar="[EID]", help="The eid, as `error list` shows it.")
]
Every = Annotated[bool, typer.Option("--all", help="Everything that the other options choose.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Do nothing; only say how many it would be, and which.")
]
Most = Annotated[int, typer.Option(min=1, help="At most this many, those that failed first.")]
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
    """List what failed and is held for an operator, the latest first, or in groups.

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
    eid: Eid = None,
    *,
    every: Every = False,
    dry_run: DryRun = False,
    limit: Most = 100_000,
) -> int:
    """Run failed requests again, as new requests linked to the old ones.

    One by its EID, or with --all everything that the other options choose.
    """
    _check_choice(chosen, eid, every=every, dry_run=dry_run)
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


def _check_choice(chosen: Chosen, eid: str | None, *, every: bool, dry_run: bool) -> None:
    """Raises InvalidValue unless one is meant, or what to choose and that all of it is meant."""
    if (eid is not None, chosen.is_some, every) not in (DRY if dry_run else REDRIVES):
        raise InvalidValue(
            "give an EID; or which are meant (--queue, --code, --text, --client, --since, --until) "
            "and --all, or --dry-run to see it first"
        )


@command(error_app, "retry")
def retry(
    invoked: Invocation,
    chosen: Chosen,
    eid: Eid = None,
    *,
    every: Every = False,
    dry_run: DryRun = False,
    limit: Most = 100_000,
) -> int:
    """Have what its own queue holds (--on-failure hold) run again, as itself, counted anew.

    One by its EID, or with --all everything that the other options choose.
    """
    return _release(invoked, _Choice(chosen, eid, every, dry_run, limit), QueueManager.retry_held)


@command(error_app, "give-up")
def give_up(
    invoked: Invocation,
    chosen: Chosen,
    eid: Eid = None,
    *,
    every: Every = False,
    dry_run: DryRun = False,
    limit: Most = 100_000,
) -> int:
    """Fail what its own queue holds (--on-failure hold) for good, with its failure reply.

    One by its EID, or with --all everything that the other options choose.
    """
    return _release(invoked, _Choice(chosen, eid, every, dry_run, limit), QueueManager.give_up_held)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What was given to `retry` and `give-up`."""

    chosen: Chosen
    eid: str | None
    every: bool
    dry_run: bool
    limit: int


def _release(invoked: Invocation, given: _Choice, act: Callable[..., list[Released]]) -> int:
    """Retries or gives up what is meant, and says what became of each."""
    _check_choice(given.chosen, given.eid, every=given.every, dry_run=given.dry_run)
    search = given.chosen.search
    search["limit"] = given.limit
    with invoked.open() as qm:
        if given.eid is not None:
            search["eid"] = _required_eid(qm, given.eid)
        released = act(qm, dry_run=given.dry_run, **search)
    rows = [asdict(one.old) | {"fate": one.fate and one.fate.value} for one in released]
    invoked.output.rows(RELEASED_COLUMNS, rows)
    if given.dry_run:
        text = f"onceq: {len(released)} would be, and nothing was done: it is a dry run"
        invoked.output.event("dry_run", text, count=len(released))
        return OK
    if not released:
        hint("onceq: no queue holds such a one: `onceq error list` shows what is held, and where")
        return NOT_FOUND if given.eid is not None else OK
    done = {Unheld.RETRIED, Unheld.GIVEN_UP}
    return OK if all(one.fate in done for one in released) else VIOLATION


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
