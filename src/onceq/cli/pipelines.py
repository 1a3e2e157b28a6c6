"""What Spark does with requests that have ended, once or again and again: `onceq spark ...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onceq.cli.command import Invocation
from onceq.cli.exits import OK
from onceq.cli.output import hint
from onceq.cli.requests import as_time
from onceq.cli.serving import require_spark, run_until_signalled
from onceq.engine.perform.stop import Stop
from onceq.errors import OperatingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onceq.spark.pipelines import Archived

MINUTE_S: Final = 60.0
BEHIND: Final = (
    "transactions are open since before this run, and what was written since may wait for the "
    "next: see pg_stat_activity and pg_prepared_xacts"
)


Every = Annotated[
    float | None,
    typer.Option(min=0.1, help="Run again after this many minutes; default: run once."),
]
Master = Annotated[str | None, typer.Option(help="Spark's master; default: local[2].")]


def spark_archive(
    invoked: Invocation,
    root: Annotated[
        str, typer.Argument(help="The archive: a directory that all of Spark's machines can see.")
    ],
    *,
    keep_days: Annotated[
        int | None,
        typer.Option(
            min=0, max=36_500, help="Trim what ended more days ago than this; default: never."
        ),
    ] = None,
    compact: Annotated[
        int | None,
        typer.Option(min=2, max=10_000, help="Join this many small runs into one; default: none."),
    ] = None,
    every: Every = None,
    master: Master = None,
) -> int:
    """Archive what has ended into Parquet files by day, each row exactly once.

    If a run dies, what it had committed is archived, each row once: run it again. Rows still
    being written are left to the next run. With --every, a run that the environment fails is
    reported and tried again; if Spark's Java has died, the command ends: start it again.
    """
    given = invoked.target.given

    def once(session: SparkSession) -> None:
        from onceq.spark.pipelines import archive  # noqa: PLC0415 # an extra

        done = archive(root, **given, keep_days=keep_days, compact=compact, spark=session)
        _tell(invoked, done)

    return run_pipeline(once, f"archiving to {root}", every=every, master=master)


def spark_delta(
    invoked: Invocation,
    tables: Annotated[str, typer.Argument(help="The directory of the Delta tables.")],
    *,
    every: Every = None,
) -> int:
    """Add what is archived to the Delta tables `history` and `attempt`, each row exactly once.

    Needs onceq[delta], and no Java. A run that dies has added all of its rows to a table or none:
    run it again.
    """
    require_spark()
    from onceq.spark.archive.delta import add_to_delta, require_delta  # noqa: PLC0415 # an extra

    require_delta()
    given = invoked.target.given

    def once() -> None:
        done = add_to_delta(tables, **given)
        told = {"added": counted(done.rows) or "nothing new", "up to record": done.until}
        invoked.output.either(asdict(done), told)

    _run(once, lambda: True, f"adding to {tables}", every)
    return OK


def spark_report(
    invoked: Invocation,
    out: Annotated[
        str, typer.Argument(help="The report's directory; all of Spark's machines must see it.")
    ],
    *,
    since: Annotated[
        str | None,
        typer.Option(help="Only what ended at this time or later: 2026-01-31T12:00:00+01:00."),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only what ended before this time.")] = None,
    every: Every = None,
    master: Master = None,
) -> int:
    """Report on load, waiting and service times, aborts, failures and recoveries.

    OUT/latest/report.html is the page; OUT/latest/ends and aborts are its tables, in Parquet. A run
    that dies leaves the former report whole.
    """
    given = invoked.target.given
    begin, end = as_time("--since", since), as_time("--until", until)

    def once(session: SparkSession) -> None:
        from onceq.spark.pipelines import Span, report  # noqa: PLC0415 # an extra

        done = report(out, **given, span=Span(since=begin, until=end), spark=session)
        told = {"open": done.page, "ended": f"{done.ended:,}", "aborts": f"{done.aborts:,}"}
        invoked.output.either(asdict(done), told)

    return run_pipeline(once, f"reporting to {out}", every=every, master=master)


def run_pipeline(
    once: Callable[[SparkSession], None], doing: str, *, every: float | None, master: str | None
) -> int:
    """Runs a pipeline in a Spark session, once or again and again; returns the exit code.

    doing: what it does, for whoever reads standard error. every: minutes. Raises MissingExtra.
    """
    require_spark()
    from onceq.spark import build_session  # noqa: PLC0415 # an extra
    from onceq.spark.session import has_java, stop_session  # noqa: PLC0415 # an extra

    session = build_session(master=master)
    try:
        _run(lambda: once(session), lambda: has_java(session), doing, every)
    finally:
        stop_session(session)
    return OK


def _run(
    once: Callable[[], None], may_go_on: Callable[[], bool], doing: str, every: float | None
) -> None:
    if every is None:
        once()
    else:
        hint(f"onceq: {doing} every {every:g} minutes; Ctrl-C stops, twice at once")
        _again_and_again(once, may_go_on, every * MINUTE_S)


def counted(rows: Mapping[str, int]) -> str:
    """Returns how many rows of each kind there are, for people; empty if there are none."""
    return ", ".join(f"{count:,} of {kind}" for kind, count in rows.items() if count)


def _again_and_again(
    once: Callable[[], None], may_go_on: Callable[[], bool], pause_s: float
) -> None:
    """Runs until SIGTERM or Ctrl-C; a failure of the environment is reported, and tried again.

    may_go_on: asked after a failure; False: this process cannot go on, and ends with that error.
    """
    stop = Stop()

    def run() -> None:
        while not stop.is_set():
            try:
                once()
            except OperatingError as error:
                if not may_go_on():
                    raise
                hint(f"onceq: {error}; the next run is in {pause_s:g} s")
            stop.wait(pause_s)

    run_until_signalled(run, stop.set)


def _tell(invoked: Invocation, done: Archived) -> None:
    if done.is_behind:
        hint(f"onceq: {BEHIND}")
    invoked.output.either(
        asdict(done),
        {
            "archived": counted(done.rows) or "nothing new",
            "files": done.files,
            "bytes": done.bytes,
            "trimmed": counted(done.trimmed) or "nothing",
            "put together": f"{done.compacted} runs" if done.compacted else "nothing",
        },
    )
