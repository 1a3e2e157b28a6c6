"""`onceq submit` and `onceq collect`: a file of requests in, a file of replies out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onceq.cli.command import Invocation
from onceq.cli.exits import NOT_FOUND, OK, VIOLATION
from onceq.cli.output import hint
from onceq.engine.embedded.locate import locate
from onceq.errors import InvalidValue
from onceq.files import CollectOrder, SubmitOrder, collect, submit
from onceq.model.queue import Queue
from onceq.server.loading import load


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRows:
    """What to do with rows that cannot be requests."""

    rejects: Annotated[
        Path | None, typer.Option(help="Where bad rows go; default: FILE.rejects.jsonl.")
    ] = None
    max_rejects: Annotated[
        int | None,
        typer.Option(min=0, help="Stop when more rows than this are bad; default: go on."),
    ] = None


def submit_file(
    invoked: Invocation,
    file: Annotated[Path, typer.Argument(help="A .csv, .jsonl or .parquet file of requests.")],
    *,
    queue: Annotated[
        str,
        typer.Option(
            help="The queue for the requests; or MODULE:QUEUE, where it is declared: then rows "
            "that are not of its request type are rejected here."
        ),
    ],
    rid: Annotated[
        str,
        typer.Option(help="The column with each request's id; or `line`, its place in the file."),
    ],
    client: Annotated[
        str | None,
        typer.Option(help="The client that sends and gets the replies; default: file:NAME."),
    ] = None,
    bad_rows: BadRows,
) -> int:
    """Submit every row of a file as a request, exactly once; run it again after any crash.

    Bad rows go to a file of rejects, with exit code 1; the others are sent. Get the replies with
    `onceq collect` after this has ended: only one process at a time may act for a client. Counts
    are for the whole file, over all the runs that it took.
    """
    target = invoked.target
    with contextlib.closing(locate(target.url)) as located, _bar("submitting", file.name) as moved:
        order = SubmitOrder(
            path=file,
            queue=_queue(queue),
            rid=rid,
            client=client,
            rejects=bad_rows.rejects,
            rejects_max=bad_rows.max_rejects,
            progress=moved,
            told=_told,
        )
        summary = submit(order, located, target.repository)
    invoked.output.item(asdict(summary))
    if summary.rejected:
        hint(f"onceq: {summary.rejected} row(s) were rejected: {summary.rejects} says why")
    hint(f"onceq: next: onceq collect --client {summary.client!r} --out replies.csv")
    return VIOLATION if summary.rejected else OK


def _queue(said: str) -> str | Queue[Any, Any]:
    """Returns a queue's name, or the queue that MODULE:QUEUE declares. Raises InvalidValue."""
    if ":" not in said:
        return said
    found: Queue[Any, Any] = load(said, "queue")
    if type(found) is not Queue:
        raise InvalidValue(f"{said} is no onceq.Queue, but of type {type(found).__name__}")
    return found


def collect_replies(
    invoked: Invocation,
    *,
    client: Annotated[
        str, typer.Option(help="The client whose replies to collect; `onceq submit` shows it.")
    ],
    out: Annotated[Path, typer.Option(help="A .csv, .jsonl or .parquet file.")],
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", min=0.0, help="Seconds to wait for the next reply."),
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(help="Fields of the reply, comma separated, one column each (not .jsonl)."),
    ] = None,
) -> int:
    """Collect all replies of a client into a file, each exactly once; run it again after a crash.

    Ends when nothing is outstanding; exit 1 if --timeout ended it before that.
    """
    target = invoked.target
    with contextlib.closing(locate(target.url)) as located, _bar("collecting", out.name) as moved:
        order = CollectOrder(
            client=client,
            out=out,
            timeout_s=timeout_s,
            fields=tuple(name.strip() for name in fields.split(",")) if fields else (),
            progress=moved,
            told=_told,
        )
        summary = collect(order, located, target.repository)
    values = asdict(summary)
    if not invoked.as_json:
        values["outcomes"] = ", ".join(f"{n} {what}" for what, n in summary.outcomes.items()) or "-"
    invoked.output.item(values)
    if not summary.known:
        hint(f"onceq: client {client!r} was never connected: `onceq submit` names the client")
        return NOT_FOUND
    if summary.outstanding:
        hint(f"onceq: {summary.outstanding} request(s) have no reply yet: run this again")
        return VIOLATION
    return OK


def _told(text: str) -> None:
    hint(f"onceq: {text}")


@contextlib.contextmanager
def _bar(doing: str, name: str) -> Generator[Callable[[int, int, int], Any]]:
    """Shows progress on standard error, if it is a terminal: how far, how fast, how long to go."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[rows]:,} rows, {task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    began, first = time.monotonic(), -1

    def moved(done: int, total: int, rows: int) -> None:
        nonlocal began, first
        if first < 0:  # done by an earlier run, or by this one's first batch
            began, first = time.monotonic(), rows
        rate = (rows - first) / max(0.001, time.monotonic() - began)
        progress.update(bar, completed=done, total=total, rows=rows, rate=rate)

    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"{doing} {name}", total=None, rows=0, rate=0.0)
        yield moved
