"""`python -m proof.torture`: every participant and every fault at once, then a judgement."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from onceq.cli.command import Invocation, spread
from onceq.cli.exits import OK, VIOLATION
from onceq.cli.output import hint
from onceq.errors import MissingExtra
from proof.torture import Plan, Progress, run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import NoReturn

    from proof.torture import Report

SPARK_FROM_MINUTES: Final = 3.0
"""Spark takes a quarter of a minute to start: a shorter run does better without it."""
SHOWN_MAX: Final = 10


def torture(
    invoked: Invocation,
    *,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults are made for.")] = 2.0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The seed of the faults; default: from the clock.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="An empty directory for PostgreSQL, events and the report.")
    ] = None,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="With a Spark server; default: from 3 minutes on, if Spark is there.",
        ),
    ] = None,
    broken: Annotated[
        str | None,
        typer.Option(
            "--break",
            metavar="fence|clerk|charge|claim",
            help="Break this on purpose: the run must find it.",
        ),
    ] = None,
) -> int:
    """Torture clients, servers and PostgreSQL with every kind of fault, then judge their history.

    Runs on its own PostgreSQL in a fresh directory; with --url, on a scratch database, in a schema
    of its own. Exit 1: a guarantee was violated.
    """
    chosen = time.time_ns() % 10**6 if seed is None else seed
    where = directory or Path(tempfile.mkdtemp(prefix="onceq-torture-"))
    plan = Plan(
        seconds=60 * minutes,
        seed=chosen,
        place=where,
        url=invoked.url,
        spark=spark_command(minutes=minutes, wanted=spark),
        broken=broken,
    )
    hint(f"onceq: seed {chosen}, in {where}")
    with _interrupted_by(signal.SIGTERM, signal.SIGHUP):
        report = run(plan) if invoked.as_json else _watched(plan)
    if invoked.as_json:
        invoked.output.line(report.to_builtins())
    else:
        _tell(report, where)
    return VIOLATION if report.violations else OK


@contextlib.contextmanager
def _interrupted_by(*numbers: signal.Signals) -> Generator[None]:
    """Lets these signals interrupt the block, as Ctrl-C does: what it started ends with it.

    Only the first one counts; others are ignored while the block ends. Signals that were already
    ignored, as by nohup, stay so.
    """
    heard: list[int] = []

    def interrupt(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) == 1:
            raise KeyboardInterrupt

    heeded = [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]
    former = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def spark_command(*, minutes: float, wanted: bool | None) -> tuple[str, ...] | None:
    """Returns the command of a Spark server for a run, or None for none. MissingExtra."""
    there = all(importlib.util.find_spec(name) is not None for name in ("pyspark", "pandas"))
    if wanted and not there:
        raise MissingExtra("PySpark is not installed: pip install 'onceq[spark]'")
    if wanted is False or not there or (wanted is None and minutes < SPARK_FROM_MINUTES):
        return None
    serve = ("spark", "serve", "proof.torture.spark_app:server")
    return (sys.executable, "-m", "onceq.cli.main", *serve)


def _watched(plan: Plan) -> Report:
    """Runs a plan, with its progress on standard error."""
    with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as live:
        show: Callable[[Progress], None] = lambda progress: live.update(_table(progress))  # noqa: E731 # a def would need a name for what is said here
        return run(plan, show)


def _table(progress: Progress) -> Table:
    table = Table(title=f"torture: {progress.phase}", title_justify="left", box=None)
    table.add_column("what")
    table.add_column("so far", justify="right")
    rows = {
        "seconds": f"{progress.elapsed_s:.0f} of {progress.seconds:.0f}",
        "requests acknowledged": f"{progress.acknowledged:,}",
        "replies": f"{progress.replies:,}",
        "processes killed": f"{progress.kills:,} ({progress.kills_per_minute:.0f} a minute)",
        "unknown commits": f"{progress.unknown:,}",
        **{f"  {kind}": f"{count:,}" for kind, count in sorted(progress.made.items())},
        "violations": f"{progress.violations:,}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _tell(report: Report, where: Path) -> None:
    table = Table(show_header=False, box=None)
    for name, value in report.summary().items():
        table.add_row(name, value)
    Console().print(table)
    for text in report.violations[:SHOWN_MAX]:
        sys.stdout.write(f"{text}\n")
    hint(f"onceq: the whole report is {where / 'report.md'}; repeat: {report.repeat}")


def main() -> NoReturn:
    """Runs the command and exits with its code."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command("torture")(spread(torture, {}))
    app(prog_name="python -m proof.torture")
    sys.exit(0)
