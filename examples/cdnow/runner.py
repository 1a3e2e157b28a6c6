"""The runner: prepares a run, starts its parts, waits while they are struck, checks, reports.

Used by `run.py` and by tests. It ends by itself within its limit, whatever happens, and ends only
what it has started; a run that was interrupted keeps its files.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from examples.cdnow import faults
from examples.cdnow.checks import judge
from examples.cdnow.data import COLUMNS, Order, prepare_orders, read_orders
from examples.cdnow.database import Database
from examples.cdnow.floor import Floor, GivenUp, Striker
from examples.cdnow.options import Options
from examples.cdnow.report import Facts, as_object, as_tables, exit_code, read_receipts
from examples.cdnow.shop import SPARK, Outage, Pipeline, RunDirectory, Setup
from examples.running.child import Child
from examples.running.directories import fresh_directory, tell_of_former
from examples.running.progress import Display
from onceq import errors
from onceq.history.events import Recorder

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from examples.cdnow.checks import Verdict

LOOK_S = 0.05
STOP_S = 20.0
PIPELINE = "examples.cdnow.pipeline"
PIPELINE_S = 180.0
STRIKING_SHARE = 0.55
"""Of the limit, in which strikes may begin: the rest is for the last recovery and the last work."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Run:
    """One run: its options, its orders, its files, its display, its parts."""

    options: Options
    display: Display
    directory: RunDirectory
    orders: list[Order]
    source: str
    struck: list[faults.Struck] = dataclasses.field(default_factory=list[faults.Struck])
    missed: list[faults.Strike] = dataclasses.field(default_factory=list[faults.Strike])
    unasked: list[str] = dataclasses.field(default_factory=list[str])
    sending_s: float = 0.0
    cut_short: str | None = None

    @property
    def names(self) -> list[str]:
        return [f"till-{n}" for n in range(1, self.options.clients + 1)]

    def share(self, place: int) -> list[Order]:
        """The orders of the client at this place: every n-th."""
        return self.orders[place :: self.options.clients]

    def setup(self) -> Setup:
        """Sizes fit for the number of orders: several windows and batches a client, so that there
        is work at every moment, and at most what is quick with many.
        """
        share = max(1, len(self.orders) // self.options.clients)
        return Setup(
            url=f"embedded:{self.directory.database}",
            window=min(2_000, max(4, share // 4)),
            chunk=min(500, max(2, share // 16)),
            batch=min(5_000, max(8, len(self.orders) // 14)),
        )

    def prepare(self) -> Database:
        """Gives each client its orders; makes the database."""
        for place, name in enumerate(self.names):
            path = self.directory.orders(name)
            path.parent.mkdir(parents=True)
            _write_orders(path, self.share(place))
        self.directory.log(SPARK).parent.mkdir()
        self.directory.events.mkdir()
        setup = self.setup()
        self.directory.write_setup(setup)
        return Database(setup.url)

    def children(self) -> tuple[Child, list[Child]]:
        """The Spark server and the clients, not started."""
        root = str(self.directory.root)
        spark = Child(SPARK, self.options.server, [root], self.directory.log(SPARK))
        clients = [
            Child(name, "examples.cdnow.client", [root, name], self.directory.log(name))
            for name in self.names
        ]
        return spark, clients


def _write_orders(path: Path, orders: Sequence[Order]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([o.order_id, o.customer_id, o.date, o.quantity, o.amount] for o in orders)


def work(run: Run, database: Database) -> None:
    """Starts everything, strikes, and waits until every client has its receipts, or the limit."""
    spark, clients = run.children()
    shares = [len(run.share(place)) for place in range(len(clients))]
    floor = Floor(database, spark, clients, shares)
    schedule = faults.draw_schedule(run.options.seed, run.options.kills, _delay_max_s(run))
    run.display.note("kills: " + ("; ".join(map(str, schedule)) or "none"))
    until_s = run.display.seconds + STRIKING_SHARE * run.options.limit_s
    with (
        Recorder(run.directory.events / "kills.events", "runner") as recorder,
        _ended(run, spark, clients),
        run.display.bars(dict.fromkeys(("sent", "booked", "receipts"), len(run.orders))),
    ):
        striker = Striker(floor, run.display, schedule, until_s, recorder)
        for child in (spark, *clients):
            child.start()
        try:
            _wait_done(run, floor, striker)
        except GivenUp as error:
            run.cut_short = str(error)
        finally:
            run.struck, run.missed, run.unasked = striker.struck, striker.pending, floor.unasked


def _delay_max_s(run: Run) -> float:
    return min(1.0, len(run.orders) / 20_000)


def _wait_done(run: Run, floor: Floor, striker: Striker) -> None:
    display = run.display
    end = display.seconds + run.options.limit_s
    first_sent_s: float | None = None
    with contextlib.ExitStack() as phases:
        phases.enter_context(display.phase("until the first booking, Spark starting"))
        begun = False
        while not floor.is_done:
            floor.look()
            striker.step()
            display.show(sent=floor.sent, booked=floor.booked, receipts=floor.received)
            if floor.booked and not begun:
                begun = True
                phases.close()
                phases.enter_context(display.phase("work, with kills"))
            if first_sent_s is None and floor.sent:
                first_sent_s = display.seconds
            if display.seconds > end:
                raise GivenUp(f"not all was done after {run.options.limit_s:.0f} s")
            time.sleep(LOOK_S)
        display.show(sent=floor.sent, booked=floor.booked, receipts=floor.received)
    if first_sent_s is not None:
        run.sending_s = display.seconds - first_sent_s


@contextlib.contextmanager
def _ended(run: Run, spark: Child, clients: Sequence[Child]) -> Generator[None]:
    """Ends the children at the end of the block: in order, or, when that fails, at once."""
    try:
        yield
    except BaseException:
        for child in (spark, *clients):
            child.kill()
        raise
    with run.display.phase("stop"):
        for child in (spark, *clients):
            child.ask_to_end()
        for child in (spark, *clients):
            if not child.end(STOP_S):
                run.unasked.append(f"{child.name} did not stop within {STOP_S:.0f} s: killed")


def carry_out(options: Options, display: Display) -> int:
    """Does a run from beginning to end, and prints its report. Raises FileMismatch."""
    with display.phase("prepare"):
        source = options.orders or prepare_orders()
        orders = list(read_orders(source))
        if not orders:
            raise errors.FileMismatch(f"{source}: there is no order in it")
        tell_of_former(options.runs, display)
    with fresh_directory(options.runs, options.seed) as root:
        run = Run(
            options=options,
            display=display,
            directory=RunDirectory(root),
            orders=orders,
            source=str(source),
        )
        facts, verdict = _work_and_check(run)
        _print_report(run, facts, verdict)
        run.directory.finished.touch()
    return exit_code(facts, verdict)


def _work_and_check(run: Run) -> tuple[Facts, Verdict]:
    with run.display.phase("make the database"):
        database = run.prepare()
    with database:
        work(run, database)
        with run.display.phase("check"):
            paths = [run.directory.receipts(name) for name in run.names]
            verdict = judge(database.evidence(run.orders, list(read_receipts(paths))))
            latencies_s = database.latencies_s()
        pipeline = None
        if run.options.pipeline and run.cut_short is None:
            with run.display.phase("archive, audit, report"):
                pipeline = _pipeline(run)
    return _facts(run, latencies_s, pipeline), verdict


def _pipeline(run: Run) -> Pipeline | None:
    """Archives, audits and reports; None, and why, when that failed."""
    directory = run.directory
    directory.write_outages([_outage(run.display, one) for one in run.struck])
    child = Child("pipeline", PIPELINE, [str(directory.root)], directory.log("pipeline"))
    child.start()
    try:
        in_time = child.end(PIPELINE_S)
    except BaseException:
        child.kill()
        raise
    if child.exit_code == 0:
        return directory.read_pipeline()
    why = f"exit code {child.exit_code}" if in_time else f"took more than {PIPELINE_S:.0f} s"
    run.cut_short = f"archive, audit and report: {why}; the log ends with\n{child.log_tail()}"
    return None


def _outage(display: Display, one: faults.Struck) -> Outage:
    over_s = None if one.recovery_s is None else one.at_s + one.recovery_s
    return Outage(
        what=f"kill -9: {one.kind} ({one.target})",
        at=display.moment(one.at_s),
        over_at=None if over_s is None else display.moment(over_s),
    )


def _facts(run: Run, latencies_s: Mapping[str, float], pipeline: Pipeline | None) -> Facts:
    return Facts(
        seed=run.options.seed,
        source=run.source,
        directory=str(run.directory.root),
        phases_s=run.display.phases_s,
        sending_s=run.sending_s,
        latencies_s=latencies_s,
        struck=tuple(run.struck),
        missed=tuple(run.missed),
        unasked=tuple(run.unasked),
        cut_short=run.cut_short,
        pipeline=pipeline,
    )


def _print_report(run: Run, facts: Facts, verdict: Verdict) -> None:
    report = as_object(facts, verdict)
    run.directory.report.write_text(json.dumps(report, indent=1), encoding="utf-8")
    if run.options.json:
        print(json.dumps(report))
        return
    console = Console(highlight=False)
    for part in as_tables(facts, verdict):
        console.print(part, soft_wrap=isinstance(part, str))  # no path is broken


def main(options: Options) -> int:
    """Carries out and returns the exit code."""
    try:
        return carry_out(options, Display(Console(stderr=True)))
    except errors.UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except errors.OperatingError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the children were ended, the run's files are kept", file=sys.stderr)
        return 130
