"""The runner: prepares a run, starts its parts, strikes them, checks, reports; then all unpaced.

Used by `run.py` and by tests. It ends by itself within its limit, whatever happens, and ends only
what it has started; a run that was interrupted keeps its files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console

from examples.exchange import evidence, faults
from examples.exchange.checks import Told, Verdict, judge
from examples.exchange.contents import Kept, StreamName, contents
from examples.exchange.data import Bar, bars_of_the_exchange
from examples.exchange.database import Database
from examples.exchange.floor import Floor, GivenUp, Striker
from examples.exchange.market import (
    BARS,
    FEEDS,
    MOVES,
    SESSIONS,
    RunDirectory,
    Setup,
    feed_of,
    move_of,
)
from examples.exchange.report import Facts, as_object, as_tables, as_whole, exit_code
from examples.running.child import Child
from examples.running.directories import fresh_directory, tell_of_former
from examples.running.progress import Display
from onceq import errors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from examples.exchange.options import Options

LOOK_S: Final = 0.05
STOP_S: Final = 20.0
STORE_S: Final = 30.0
HOST: Final = "127.0.0.1"
PARTS: Final = ("ledger", "relay", "mover", "tape")


@dataclasses.dataclass(slots=True, kw_only=True)
class Run:
    """One run: its options, its bars, its files, its display. rate: 0: unpaced."""

    options: Options
    display: Display
    directory: RunDirectory
    bars: Mapping[str, Sequence[Bar]]
    rate: int
    kills: int
    setup: Setup = dataclasses.field(init=False)
    kept: dict[str, dict[StreamName, Kept]] = dataclasses.field(
        default_factory=dict[str, "dict[StreamName, Kept]"]
    )
    working_s: float = 0.0
    cut_short: str | None = None

    def prepare(self) -> Database:
        """Writes what each feed sends; finds addresses; makes the database."""
        for place in ("feeds", "logs", "stores"):
            (self.directory.root / place).mkdir()
        for feed, bars in self.bars.items():
            _write_bars(self.directory, feed, bars)
        ports = _free_ports(len(faults.STORES) + len(SESSIONS) + len(FEEDS))
        places = [f"{HOST}:{port}" for port in ports]
        sources = [*SESSIONS, *(f"{feed}, successor" for feed in FEEDS)]
        self.setup = Setup(
            url=f"embedded:{self.directory.database}",
            stores=tuple(places[: len(faults.STORES)]),
            listens=dict(zip(sources, places[len(faults.STORES) :], strict=True)),
            rate=self.rate,
        )
        self.directory.write_setup(self.setup)
        return Database(self.setup.url)

    @property
    def totals(self) -> dict[str, int]:
        """How much there is to do, in all and of each feed."""
        moves = sum(move_of(bar) is not None for bars in self.bars.values() for bar in bars)
        of = {feed: len(bars) for feed, bars in self.bars.items()}
        return {"bars": sum(of.values()), "moves": moves, **of}

    @property
    def ends(self) -> dict[StreamName, int]:
        """How far each stream is to go."""
        totals = self.totals
        feeds = {(BARS.name, SESSIONS[feed]): totals[feed] for feed in FEEDS}
        relayed = {(MOVES.name, SESSIONS["relay"]): totals["moves"]} if totals["moves"] else {}
        return {**feeds, **relayed}

    def part(self, name: str, module: str, *arguments: str) -> Child:
        """A part, not started."""
        return Child(name, module, arguments, self.directory.log(name))

    def parts(self) -> dict[str, Child]:
        """All parts, not started, in the order in which they are."""
        root = str(self.directory.root)
        stores = {
            store: self.part(store, "examples.exchange.store", root, str(n))
            for n, store in enumerate(faults.STORES, start=1)
        }
        others = {name: self.part(name, f"examples.exchange.{name}", root) for name in PARTS}
        feeds = {feed: self.feed(feed, feed) for feed in FEEDS}
        return {**stores, **others, **feeds}

    def feed(self, name: str, listening: str) -> Child:
        """A feed that listens where this one is to, not started."""
        root = str(self.directory.root)
        return self.part(name, "examples.exchange.feed", root, name, self.setup.listens[listening])


def _write_bars(directory: RunDirectory, feed: str, bars: Iterable[Bar]) -> None:
    encode = msgspec.json.Encoder().encode
    directory.bars(feed).write_bytes(b"".join(encode(bar) + b"\n" for bar in bars))


def _free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody has now."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def work(run: Run, database: Database) -> Striker:
    """Starts everything, strikes, and waits until all is done, or the limit."""
    display, totals = run.display, run.totals
    floor = Floor(run.directory, run.setup, database, run.parts(), totals)
    schedule = faults.draw_schedule(run.options.seed, run.kills)
    striker = Striker(floor, display, schedule, lambda feed: run.feed(feed, f"{feed}, successor"))
    bars = totals["bars"]
    with (
        _ended(run, floor),
        display.bars({"sent": bars, "stable": bars, "booked": bars, "filed": totals["moves"]}),
    ):
        for part in floor.parts.values():
            part.start()
        try:
            _wait_done(run, floor, striker)
        except GivenUp as error:
            run.cut_short = str(error)
        else:
            _read_stores(run)
    striker.not_fenced += floor.unasked
    return striker


def _wait_done(run: Run, floor: Floor, striker: Striker) -> None:
    display = run.display
    end = display.seconds + run.options.limit_s
    began: float | None = None
    while not (floor.is_done and striker.is_idle):
        floor.look()
        striker.step()
        display.show(sent=floor.sent, stable=floor.stable, booked=floor.booked, filed=floor.filed)
        if began is None and floor.sent:
            began = display.seconds
        if display.seconds > end:
            raise GivenUp(f"not all was done after {run.options.limit_s:.0f} s")
        if not floor.is_done and began is not None:
            run.working_s = display.seconds - began
        time.sleep(LOOK_S)
    display.show(sent=floor.sent, stable=floor.stable, booked=floor.booked, filed=floor.filed)


def _read_stores(run: Run) -> None:
    """Asks the stores what they have, and has Spark read what is stable, while they are there."""
    with run.display.phase("ask each store"):
        found = contents(run.setup.stores, run.ends, STORE_S)
        run.kept = dict(zip(faults.STORES, found, strict=True))
    if not run.options.spark or not run.kills:
        return
    with run.display.phase("Spark reads what is stable"):
        child = run.part("spark", "examples.exchange.spark_read", str(run.directory.root))
        child.start()
        in_time = child.end(run.options.limit_s)
        if not in_time or child.exit_code != 0:
            run.cut_short = f"Spark did not read; its log ends with\n{child.log_tail()}"


@contextlib.contextmanager
def _ended(run: Run, floor: Floor) -> Generator[None]:
    """Ends the parts at the end of the block: in order, or, when that fails, at once."""
    try:
        yield
    except BaseException:
        for part in floor.children:
            part.kill()
        raise
    with run.display.phase("stop"):
        for part in floor.parts.values():
            part.ask_to_end()
        for part in floor.frozen:
            part.kill()  # it has ended long since, if all went well
        for part in floor.parts.values():
            if not part.end(STOP_S):
                floor.unasked.append(f"{part.name} did not stop within {STOP_S:.0f} s: killed")


def _one(
    options: Options, display: Display, bars: Mapping[str, Sequence[Bar]], rate: int
) -> tuple[Facts, Verdict]:
    kills = options.kills if rate else 0
    with fresh_directory(options.runs, options.seed) as root:
        run = Run(
            options=options,
            display=display,
            directory=RunDirectory(root),
            bars=bars,
            rate=rate,
            kills=kills,
        )
        with run.prepare() as database:
            with display.phase("work, with kills" if kills else "work, unpaced"):
                striker = work(run, database)
            with display.phase("check"):
                told = Told(striker.floor.told("sent"), striker.floor.told("stable"))
                found = evidence.gather(run.directory, database, bars, kept=run.kept, told=told)
                verdict = judge(found)
        facts = Facts(
            seed=options.seed,
            directory=str(root),
            rate=rate,
            bars=run.totals["bars"],
            working_s=run.working_s,
            struck=tuple(striker.struck),
            missed=(*striker.missed, *striker.pending),
            fenced=striker.fenced,
            kills_least=options.least_kills if rate else 0,
            unasked=tuple(striker.not_fenced),
            stable_s=evidence.latencies(run.directory),
            cut_short=run.cut_short,
        )
        run.directory.report.write_text(json.dumps(as_object(facts, verdict)), encoding="utf-8")
        run.directory.finished.touch()
    return facts, verdict


def carry_out(options: Options, display: Display) -> int:
    """Does a run from beginning to end, and prints its report."""
    with display.phase("read the bars"):
        bars: dict[str, list[Bar]] = {feed: [] for feed in FEEDS}
        for bar in bars_of_the_exchange():
            if options.bars is None or len(bars[feed_of(bar)]) < options.bars:
                bars[feed_of(bar)].append(bar)
    tell_of_former(options.runs, display)
    done = [_one(options, display, bars, options.rate)]
    if options.unpaced:
        done.append(_one(options, display, bars, 0))
    console = Console(highlight=False)
    if options.json:
        console.print_json(data=as_whole(done))
    else:
        for one in done:
            for part in as_tables(*one):
                console.print(part, soft_wrap=isinstance(part, str))
    return max(exit_code(*one) for one in done)


def main(options: Options) -> int:
    """Carries out and returns the exit code."""
    try:
        return carry_out(options, Display(Console(stderr=True)))
    except errors.OperatingError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the parts were ended, the run's files are kept", file=sys.stderr)
        return 130
