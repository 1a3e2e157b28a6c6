"""The conductor: begins everyone, makes the faults of the schedule, ends everything, and judges.

Called through `run`. One thread, but for PostgreSQL's restarts. It looks at its participants and
its clock, never at what they say to each other. It stops at the first wrong thing that it sees.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceq.errors import InvalidValue
from onceq.history.events import Recorder
from proof.harness.ledger import store_final_state
from proof.torture.board import Board, Count
from proof.torture.database import Database
from proof.torture.evidence import store_aborts
from proof.torture.faults import CLIENTS, SERVERS, Faults
from proof.torture.fleet import Fleet
from proof.torture.judge import STATED, judge
from proof.torture.life import KILLS, LOGS, SPARK, SPARK_CLIENT, Life
from proof.torture.plan import schedule
from proof.torture.report import CRASHES, Progress, Report, reasons
from proof.torture.spark import SparkServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.torture.fleet import Participant
    from proof.torture.plan import Plan

LOOK_EVERY_S: Final = 1.0
SHOW_EVERY_S: Final = 0.5
POLL_S: Final = 0.05
BEGIN_S: Final = 60.0
WIND_UP_S: Final = 300.0
STOP_S: Final = 60.0
CUTTERS: Final = ("client", "server")
DIRECT_EVERY: Final = 3
"""One of this many of a kind goes to PostgreSQL directly, the others through a cutter."""
KILLS_WITHOUT: Final = {"fence": 0.5}
"""How often a client kills, by what is broken: only what is killed while it finishes shows the
fence, and a machine that is busy executes little within a control's time."""
LEFT_S: Final = 60.0
"""This long after the last fault nothing may wait any more (G12), except the client of Spark."""


def run(plan: Plan, watch: Callable[[Progress], None] = lambda _: None) -> Report:
    """Runs a plan to its end, and returns its report, which is also in `plan.place`.

    watch: told twice a second. Raises InvalidValue (the directory is not empty), EmbeddedError,
    CannotConnect.
    """
    place = plan.place.resolve()
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise InvalidValue(f"{place} is not empty: give a directory of its own")
    for name in ("events", "lines", LOGS):
        (place / name).mkdir()
    return _Conductor(plan, place, watch).run()


class _Conductor:
    """One run."""

    def __init__(self, plan: Plan, place: Path, watch: Callable[[Progress], None]) -> None:
        self._plan = plan
        self._place = place
        self._watch = watch
        self._board = Board(place / "board")
        self._began = self._shown = self._looked = time.monotonic()
        self._found_after_s: float | None = None
        self._late: list[str] = []
        self._database = Database(plan)
        self._spark: SparkServer | None = None

    def run(self) -> Report:
        """Runs it all."""
        keep = True
        try:
            with contextlib.ExitStack() as stack:
                recorder = stack.enter_context(
                    Recorder(self._place / "events" / "conductor.events")
                )
                self._fleet = Fleet(self._board, recorder)
                stack.callback(self._fleet.close)
                sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onceq-")))
                if self._plan.spark is not None:
                    self._spark = self._begin_spark(self._plan.spark)
                    stack.callback(self._spark.close)
                self._faults = Faults(self._fleet, self._database, self._spark, recorder)
                stack.callback(self._faults.close)
                self._begin_all(sockets)
                self._wait_begun()
                self._torture()
                lasted_s = time.monotonic() - self._began
                self._wind_up()
            self._show("judging")
            report = self._judge(lasted_s)
            keep = bool(report.violations)
            return report
        finally:
            self._database.close(keep=keep)

    def _begin_spark(self, command: tuple[str, ...]) -> SparkServer:
        where = {"url": self._database.conninfo, "repository": self._database.repository}
        return SparkServer(command, self._place, where)

    def _begin_all(self, sockets: Path) -> None:
        """Begins the participants; most of a kind go through a cutter."""
        plan, direct = self._plan, self._database.conninfo
        through: dict[str, str] = {}
        for whom in CUTTERS:
            directory = sockets / whom
            directory.mkdir(mode=0o700)
            self._faults.sockets[whom] = directory
            self._begin("cutter", f"cutter-{whom}", direct, sockets=str(directory))
            through[whom] = f"{direct} host={directory} port=5432"
            self._faults.behind[f"cutter-{whom}"] = []
        counts = {"server": plan.servers, "batch": plan.batches}
        counts |= {"clerk": plan.clerks, "stream": plan.streams, "desk": plan.desks, "notes": 1}
        for kind, count in counts.items():
            whom = "server" if kind in SERVERS else "client"
            for number in range(count):
                name = f"{kind}-{number}"
                queue = "bulk" if kind in ("stream", "batch") else "orders"
                is_direct = number % DIRECT_EVERY == 0
                if not is_direct:
                    self._faults.behind[f"cutter-{whom}"].append(name)
                self._begin(kind, name, direct if is_direct else through[whom], queue=queue)
        if self._spark is not None:
            self._begin("stream", SPARK_CLIENT, direct, queue="spark")

    def _begin(
        self, kind: str, name: str, conninfo: str, *, queue: str = "orders", sockets: str = ""
    ) -> None:
        life = Life(
            kind=kind,
            name=name,
            life=0,
            row=len(self._fleet.participants),
            conninfo=f"{conninfo} application_name={name}",
            repository=self._database.repository,
            place=str(self._place),
            seed=self._plan.seed,
            queue=queue,
            sockets=sockets,
            broken=kind == "clerk" and self._plan.broken == "clerk",
            kills=KILLS_WITHOUT.get(self._plan.broken or "", KILLS),
        )
        self._fleet.begin(life, lasts=kind not in CLIENTS)

    def _wait_begun(self) -> None:
        """Waits until all have begun; from then on time is counted. OSError: they do not."""
        end = time.monotonic() + BEGIN_S
        while not all(one.pid for one in self._fleet.participants.values()):
            if time.monotonic() > end:
                raise OSError(f"the participants did not begin within {BEGIN_S:.0f} s")
            self._fleet.poll(POLL_S)
        self._began = time.monotonic()

    def _torture(self) -> None:
        """Makes the faults of the schedule, each at its moment."""
        for fault in schedule(self._plan.seed, self._plan.seconds):
            if not self._until(fault.at_s):
                return
            self._faults.make(fault)
        self._until(self._plan.seconds)

    def _until(self, at_s: float) -> bool:
        """Tends everyone until a moment; False when something wrong was seen."""
        due = self._began + at_s
        while not self._database.found:
            now = time.monotonic()
            self._tend("torturing", now)
            self._faults.undo(now)
            if now >= due:
                return True
            self._fleet.poll(min(POLL_S, due - now))
        return False

    def _tend(self, phase: str, now: float) -> None:
        if now - self._looked > LOOK_EVERY_S:
            self._looked = now
            self._database.tend()
            if self._spark is not None:
                self._spark.tend()
        if self._found_after_s is None and (self._database.found or self._fleet.deaths.others):
            self._found_after_s = now - self._began
        if now - self._shown > SHOW_EVERY_S:
            self._shown = now
            self._show(phase)

    def _wind_up(self) -> None:
        """Lets the faults end, the clients finish, and the queues empty; bounded (G12)."""
        self._faults.stop()
        self._board.end()
        last = max(time.monotonic(), self._faults.last_ns / 1e9)
        clients = [one for one in self._fleet.participants.values() if one.life.kind in CLIENTS]
        native = [one for one in clients if one.life.name != SPARK_CLIENT]
        self._database.settle()
        if self._plan.broken is not None and self._database.found:
            self._end_servers()  # a control, which has been found: nothing more is asked of it
            return
        if not self._ends(native, last + LEFT_S, but=SPARK.name):
            waits = [one.life.name for one in native if not one.is_done]
            left = self._database.left(but=SPARK.name)
            text = f"{LEFT_S:.0f} s after the last fault {left} elements had not ended"
            self._late.append(f"G12: {text}, and these clients: {', '.join(waits) or 'none'}")
        if not self._ends(clients, last + WIND_UP_S, but=""):
            self._late += [
                f"G12 {one.life.name}: did not come to its end within {WIND_UP_S:.0f} s"
                for one in clients
                if not one.is_done
            ]
        self._end_servers()

    def _ends(self, clients: list[Participant], end: float, *, but: str) -> bool:
        """Waits until these have ended, and nothing is left but in a queue; whether it came so."""
        while not all(one.is_done for one in clients) or self._database.left(but=but):
            if time.monotonic() > end:
                return False
            self._tend("winding up", time.monotonic())
            self._fleet.poll(POLL_S)
        return True

    def _end_servers(self) -> None:
        self._fleet.is_tended = False
        for name in self._fleet.alive(*SERVERS):
            self._fleet.signal(name, signal.SIGTERM)
        end = time.monotonic() + STOP_S
        while time.monotonic() < end and self._fleet.alive(*SERVERS):
            self._fleet.poll(POLL_S)
        self._late += [
            f"G12 {name}: a server did not end within {STOP_S:.0f} s of SIGTERM"
            for name in self._fleet.alive(*SERVERS)
        ]
        self._database.settle()

    def _show(self, phase: str) -> None:
        now = time.monotonic()
        self._watch(
            Progress(
                phase=phase,
                elapsed_s=now - self._began,
                seconds=self._plan.seconds,
                acknowledged=self._board.total(Count.ACKNOWLEDGED),
                replies=self._board.total(Count.REPLIES),
                kills=self._kills(),
                unknown=self._board.total(Count.DOUBTS),
                made=dict(self._faults.made),
                violations=len(self._database.found) + len(self._fleet.deaths.others),
            )
        )

    def _kills(self) -> int:
        crashes = sum(self._faults.made[kind] for kind in CRASHES)
        return self._fleet.deaths.asked + crashes + (self._spark.kills if self._spark else 0)

    def _judge(self, lasted_s: float) -> Report:
        database, events = self._database, self._place / "events"
        final = store_final_state(database.conninfo, database.repository, events, STATED)
        store_aborts(database.conninfo, database.repository, self._place)
        found = judge(self._place, final)
        doubts, deaths, plan = found.doubts, self._fleet.deaths, self._plan
        died = [f"death: {text} (said.txt)" for text in deaths.others]
        by_itself = self._spark.deaths if self._spark is not None else []
        died += [f"death: the server on Spark: {text} (spark.txt)" for text in by_itself]
        report = Report(
            seed=plan.seed,
            seconds=round(lasted_s, 1),
            wound_up_s=round(time.monotonic() - self._began - lasted_s, 1),
            acknowledged=found.acknowledged,
            replies=self._board.total(Count.REPLIES),
            executions=self._board.total(Count.EXECUTED),
            faults=found.faults,
            not_made=reasons(self._faults.not_made),
            kills=self._kills(),
            kills_per_minute=round(60 * self._kills() / lasted_s, 1),
            crashes=database.restarts(),
            poisoned=deaths.poisoned,
            starved=deaths.starved,
            unknown={
                "sends that took effect": doubts.took_effect,
                "sends that did not": doubts.did_not,
            },
            unknown_others={
                "sends that nothing more was heard of": doubts.unheard,
                "finishes of servers": doubts.finishes,
                "others": doubts.others,
            },
            recoveries=found.recoveries,
            falls=found.falls,
            events=found.events,
            events_per_s=round(found.events / max(found.took_s, 0.001)),
            violations=[*self._database.found, *died, *self._late, *found.violations],
            found_after_s=self._found_after_s,
            repeat=_repeat(plan),
        )
        report.save(self._place)
        return report


def _repeat(plan: Plan) -> str:
    broken = f" --break {plan.broken}" if plan.broken else ""
    spark = " --spark" if plan.spark else " --no-spark"
    return (
        f"python -m proof.torture --seed {plan.seed} --minutes {plan.seconds / 60:g}{spark}{broken}"
    )
