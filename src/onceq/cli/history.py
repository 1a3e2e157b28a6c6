"""`onceq history trim`: removes old, archived rows from PostgreSQL, without Spark or Java."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Annotated, Final

import typer

from onceq.cli.command import Invocation, command
from onceq.cli.output import hint
from onceq.cli.pipelines import counted
from onceq.engine.embedded.locate import locate
from onceq.files import TrimOrder, trim_history

app: Final = typer.Typer(no_args_is_help=True, help="History: what has ended.")


@command(app, "trim")
def trim(
    invoked: Invocation,
    *,
    keep_days: Annotated[
        int, typer.Option(min=0, max=36_500, help="Trim what ended more than this many days ago.")
    ],
    unarchived: Annotated[
        bool, typer.Option("--unarchived", help="Also trim what is not archived: it is lost.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how much would be trimmed.")
    ] = False,
) -> None:
    """Trim from PostgreSQL what ended long ago and is archived; its files are read again first.

    Refused (exit 1) if nothing was ever archived, except with --unarchived, and if a file is not
    what was archived. The records of a request stay while it, its reply or its failed element is
    in a queue, and while it is the last that a client sent or received. A trimmed rid stays known:
    if its client sends it again, it does not run again. A run that dies may be repeated.
    """
    target = invoked.target
    order = TrimOrder(keep_days=keep_days, unarchived=unarchived, dry_run=dry_run)
    with contextlib.closing(locate(target.url)) as located:
        done = trim_history(order, located, target.repository)
    invoked.output.either(
        asdict(done),
        {
            "ended before": done.before,
            "would be trimmed" if dry_run else "trimmed": counted(done.trimmed) or "nothing",
            "left, in no file yet": counted(done.left) or "nothing",
            "files to read" if dry_run else "files read": done.files,
        },
    )
    if any(done.left.values()):
        hint("onceq: what is left is archived by `onceq spark archive`, and trimmed after that")
