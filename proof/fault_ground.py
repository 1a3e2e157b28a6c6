"""One trial of a fault point: real processes on a real PostgreSQL, one of which meets the fault.

Called by proof/faultpoints.py. The process under trial is restarted as long as it dies,
as a supervisor would. Then what all of them recorded, and what is in the repository, is checked
against the guarantees. Only processes that a trial started are ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import onceq
from onceq.engine.bind.binding import BINDINGS
from onceq.engine.embedded import open_embedded
from onceq.engine.faultpoints import EAR, NOWHERE
from onceq.engine.perform.driver import PostgresDriver, connect
from onceq.engine.schema.migrate import apply_with
from onceq.history import check
from onceq.history.events import Fault, load
from onceq.model.admin_ops import ListServers
from onceq.model.ops import CloseIncarnation
from proof.fault_calls import POINTS_AT, times
from proof.fault_programs import ALERTS, PLANNED, QUEUE, ROUNDS, Errand, enter
from proof.fault_scenes import SCENES, Left
from proof.harness.ledger import ask, final_state, make_ledger
from proof.harness.processes import hearing, start
from proof.harness.proxy import Cut, Proxy, Side
from proof.running import MARK, folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.process import BaseProcess
    from typing import Any, Self

    from onceq.engine.bind.statement import Binding
    from onceq.history.events import Event, FinalState
    from onceq.model.ops import Op
    from proof.fault_programs import Orders
    from proof.fault_scenes import Scene

LIMIT_S: Final = 90.0
"""How long a trial may take, from its first process to its last."""
SETTINGS: Final = {"max_prepared_transactions": "20"}
"""A ledger in another database prepares its transactions."""
REVOKED_S: Final = 25.0
"""How long the other process may take; this is less than a process waits at its point."""
TICK_S: Final = 0.005
KILL: Final = "kill"
RAISE: Final = "raise"
CUTS: Final = {f"cut-{side.value}": side for side in Side}
REVOKE: Final = "revoke"
"""The process is taken for dead at the point, and another does all its work before it goes on."""
FAULTS: Final = (KILL, RAISE, *CUTS)
DEATHS: Final = {KILL: [-signal.SIGKILL], RAISE: [PLANNED]}
"""The exit codes of the one process that a fault ends; every other death is a finding."""


def writing(bindings: Mapping[type[Op[Any]], Binding]) -> re.Pattern[str]:
    """Returns a pattern for the SQL of single statements that change something."""
    rows = [row for kind, row in bindings.items() if kind.in_doubt]
    rows += [row.plain for row in rows if row.plain is not None]
    found = [re.findall(r"\{schema\}\.(\w+)\(", row.sql) for row in rows]
    return re.compile(rf"\.(?:{'|'.join(sorted({name for names in found for name in names}))})\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried. point: NOWHERE to see only what is reached."""

    scene: str
    point: str = NOWHERE
    occurrence: int = 0
    what: str = KILL

    def __str__(self) -> str:
        return f"{self.what} at {self.point}, time {self.occurrence}, in {self.scene}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a trial. reached: how often each point was.

    came: whether the point was reached often enough. lost: connections lost at a commit. revoked:
    lives that were ended while their process went on.
    """

    trial: Trial
    reached: dict[str, int]
    came: bool
    lost: int
    revoked: int
    kills: int
    events: int
    seconds: float
    violations: list[str] = field(default_factory=list[str])

    @property
    def struck(self) -> bool:
        """Whether the fault happened: a connection is lost only if a commit follows the point."""
        made = {REVOKE: self.revoked} | dict.fromkeys(CUTS, self.lost)
        return self.came and made.get(self.trial.what, 1) > 0


class Ground:
    """A PostgreSQL for trials. Several may run at once."""

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._count = 0
        self.place = Path()
        self.conninfo = ""

    def __enter__(self) -> Self:
        # No disk is struck. Temporary files of a part lie where it may, and are removed with it.
        where = None if MARK in os.environ else folder(in_memory=True)
        made = tempfile.mkdtemp(prefix="oqf-", dir=where)  # short, as a socket's path must be
        self._undo.callback(shutil.rmtree, made, ignore_errors=True)
        self.place = Path(made)
        server = open_embedded(self.place / "postgresql", settings=SETTINGS)
        self._undo.callback(server.close)
        self.conninfo = server.conninfo
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def run(
        self, trial: Trial, make: Callable[[Ground, Trial, str, Path], Run] | None = None
    ) -> Verdict:
        """Runs a trial to its end, or to its limit. make: what runs it; None: a `Run`."""
        with self._lock:
            self._count += 1
            number = self._count
        place = self.place / f"t{number}"
        (place / POINTS_AT).mkdir(parents=True)
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, place, ignore_errors=True)
            return (make or Run)(self, trial, f"trial_{number}", place).verdict(undo)


class Run:
    """One trial under way. deaths: the exit codes that a fault explains.

    writes: the single statements at which a connection is lost, besides every COMMIT.
    """

    scenes: ClassVar[Mapping[str, Scene]] = SCENES
    queue: ClassVar[Orders] = QUEUE
    deaths: ClassVar[Mapping[str, list[int]]] = DEATHS
    writes: ClassVar[re.Pattern[str]] = writing(BINDINGS)

    def __init__(self, ground: Ground, trial: Trial, repository: str, place: Path) -> None:
        self._ground = ground
        self._trial = trial
        self._scene = self.scenes[trial.scene]
        self._repository = repository
        self._place = place
        self._codes: list[int] = []
        is_told = trial.what == RAISE and self._scene.goes_on
        is_survived = trial.point == NOWHERE or is_told
        self._wanted = [] if is_survived else self.deaths.get(trial.what, [])
        self._revoked = 0
        self._problems: list[str] = []

    def verdict(self, undo: contextlib.ExitStack) -> Verdict:
        """Runs it and judges."""
        began = time.monotonic()
        with contextlib.ExitStack() as asked:
            proxy = self._prepare(undo, asked)
            problems = self._processes(proxy.conninfo)
        events = load(self._place.glob("*.events"))
        came = self._came()
        problems += [*self._problems, *self._deaths(self._wanted if came else [])]
        if not problems:
            problems = self._check(events)
        points = [path for path in (self._place / POINTS_AT).iterdir() if path.name != EAR]
        return Verdict(
            trial=self._trial,
            reached={path.name: path.stat().st_size for path in points},
            came=came,
            lost=len(proxy.made),
            revoked=self._revoked,
            kills=self._kills(),
            events=len(events),
            seconds=time.monotonic() - began,
            violations=[f"{self._trial}: {text}" for text in problems],
        )

    def _came(self) -> bool:
        """Returns whether the point was reached often enough."""
        return times(self._place, self._trial.point) >= self._trial.occurrence

    def _kills(self) -> int:
        """Returns how many processes were killed with -9."""
        return self._codes.count(-signal.SIGKILL)

    def _prepare(self, undo: contextlib.ExitStack, asked: contextlib.ExitStack) -> Proxy:
        conninfo, repository = self._ground.conninfo, self._repository
        apply_with(conninfo, repository)
        undo.callback(ask, conninfo, f"drop schema {repository} cascade")
        make_ledger(conninfo, repository)
        ask(conninfo, f"create table {repository}.enqueued (number int primary key)")
        with onceq.open(conninfo, repository=repository) as qm:
            qm.declare(self.queue)
            qm.declare(ALERTS)
        proxy = undo.enter_context(Proxy(conninfo, self._place))
        ear = self._place / POINTS_AT / EAR
        asked.enter_context(hearing(ear, lambda word: self._do(proxy, word)))
        return proxy

    def _do(self, proxy: Proxy, word: str) -> None:
        """Does what a process has asked for at its point."""
        what, pid = word.split()
        if what in CUTS:
            proxy.plan(Cut(side=CUTS[what], pattern=self.writes))
        else:
            self._revoke(int(pid))

    def _revoke(self, pid: int) -> None:
        """Ends the lives of a process that goes on, and lets another do all that remains."""
        with contextlib.closing(connect(self._ground.conninfo)) as connection:
            driver = PostgresDriver(connection, self._repository)
            for one in driver.perform(ListServers()):
                if one.pid == pid:
                    driver.perform(CloseIncarnation(incarnation=one.incarnation))
                    self._revoked += 1
        other = self._start("standing_by", self._ground.conninfo)
        pause = threading.Event()
        end = time.monotonic() + REVOKED_S
        while not (self._place / f"round-{ROUNDS}").exists() and time.monotonic() < end:
            pause.wait(TICK_S)
        if not (self._place / f"round-{ROUNDS}").exists():
            self._problems.append(f"G12: the other was not done after {REVOKED_S:.0f} s")
        other.kill()
        other.join()

    def _start(self, program: str, url: str, armed: str = "") -> BaseProcess:
        return start(
            enter,
            Errand(
                program=program,
                url=url,
                repository=self._repository,
                place=self._place,
                armed=armed,
                rounds=self._trial.occurrence or ROUNDS,
            ),
        )

    def _armed(self) -> str:
        """Returns the fault that the process under trial is armed with."""
        trial = self._trial
        return f"{trial.point} {trial.occurrence} {trial.what} {self._place / POINTS_AT}"

    def _processes(self, url: str) -> list[str]:
        """Runs the program under trial until it has ended well, beside the others."""
        end = time.monotonic() + LIMIT_S
        started = [self._start(one, self._ground.conninfo) for one in self._scene.beside]
        try:
            while time.monotonic() < end:
                tried = self._start(self._scene.program, url, self._armed())
                started.append(tried)
                tried.join(max(0.0, end - time.monotonic()))
                if tried.exitcode == 0:
                    return self._others(started, end)
                if tried.exitcode is not None:
                    self._codes.append(tried.exitcode)
                if len(self._codes) > len(self._wanted):
                    return []
            return [f"G12: not done after {LIMIT_S:.0f} s: {self._said()}"]
        finally:
            for process in started:
                process.kill()
                process.join()

    def _others(self, started: list[BaseProcess], end: float) -> list[str]:
        """Waits for those that end by themselves."""
        for process, program in zip(started, self._scene.beside, strict=False):
            if program not in self._scene.endless:
                process.join(max(0.0, end - time.monotonic()))
                if process.exitcode != 0:
                    return [f"G12: {program} ended with {process.exitcode}: {self._said()}"]
        return []

    def _deaths(self, wanted: list[int]) -> list[str]:
        """Returns the deaths that the fault does not explain."""
        if self._codes == wanted:
            return []
        return [f"processes ended with {self._codes}, and not {wanted}: {self._said()}"]

    def _said(self) -> str:
        path = self._place / "said"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return " | ".join(lines[-12:])

    def _check(self, events: list[Event]) -> list[str]:
        conninfo, repository = self._ground.conninfo, self._repository
        final = final_state(conninfo, repository, self._scene.abort_limit)
        what = self._trial.what
        faults = [Fault(what=what, target=self._scene.program) for _ in self._codes]
        left = Left(place=self._place, conninfo=conninfo, repository=repository, final=final)
        judged = _without_alerts(final) if self._scene.leaves_alerts else final
        found = check([*events, *faults], _of_requests(judged))
        return [*map(str, found), *self._scene.check(left)]


def _of_requests(final: FinalState) -> FinalState:
    """Returns the state without effects of elements only dequeued: their scene counts them."""
    dequeued = {one.eid for one in final.places if one.outcome == "dequeued"}
    kept = tuple(one for one in final.effects if one.eid not in dequeued)
    return dataclasses.replace(final, effects=kept)


def _without_alerts(final: FinalState) -> FinalState:
    """Returns the state without elements that wait for no server: their scene counts them."""
    waits = {("datagram", "queued"), ("datagram", "waiting")}
    places = tuple(one for one in final.places if (one.role, one.state) not in waits)
    return dataclasses.replace(final, places=places)
