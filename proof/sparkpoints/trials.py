"""A trial of a fault point of Spark: a native client, and a Spark server that meets the fault.

Called by proof/sparkpoints/part.py. It is judged as the other fault points are; besides, queries
must fail as often as the fault explains, and for what it explains. Its queue allows one abort: an
innocent that is charged for a death has failed, which the history shows.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

import onceq
from onceq.engine.bind.spark_binding import SPARK_BINDINGS
from onceq.model.spark_ops import SparkTakeOver
from proof.fault_ground import CUTS, FAULTS, KILL, RAISE, TICK_S, Run, Trial, writing
from proof.fault_programs import QUEUE, SPARK_LIMIT_S
from proof.fault_scenes import Scene, nothing
from proof.faultpoints import OF_SPARK
from proof.harness.ledger import EFFECTS, Order, Receipt, ask
from proof.sparkpoints.driver import ENDED, Driver, Ended, Serving
from proof.sparkpoints.forms import EACH, SEVERAL, STATE

if TYPE_CHECKING:
    import contextlib
    import re
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    from proof.fault_ground import Ground
    from proof.fault_programs import Orders
    from proof.fault_scenes import Left
    from proof.harness.proxy import Proxy

DRIVER: Final = "kill-driver"
"""The driver dies at the point, with its Java and all that it has started."""
ABORT_LIMIT: Final = 1
TRIED_AGAIN: Final = frozenset({"spark.read", "spark.write", "spark.staged"})
"""Points that are met by a task, which Spark itself can try again."""
NO_POINTS: Final = frozenset[str]()
PLAIN: Final = "a Spark server"
TRYING: Final = "a Spark server that tries tasks again"
KEEPING: Final = "a Spark server that keeps a state"
"""Its ledger has the numbers that the state gave to requests."""
ADDING: Final = "a Spark server of rows of several requests"
BROKEN: Final = "a Spark server that charges whatever it held when a query ended"
"""On purpose: it must be found."""


def _numbers(left: Left) -> Iterator[str]:
    """A state that forgot a batch gives a number twice; one that has a batch twice leaves a gap."""
    query = f"select pid from {left.repository}.{EFFECTS} order by pid"
    numbers = [number for (number,) in ask(left.conninfo, query)]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"G2: the state gave the numbers {numbers}"


def _scene(points: frozenset[str], check: Callable[[Left], Iterator[str]] = nothing) -> Scene:
    return Scene(
        program="a Spark server",
        beside=("ordering_once_more",),
        points=points,
        abort_limit=ABORT_LIMIT,
        check=check,
    )


SCENES: Final[dict[str, Scene]] = {
    PLAIN: _scene(OF_SPARK),
    TRYING: _scene(TRIED_AGAIN),
    KEEPING: _scene(OF_SPARK, _numbers),
    ADDING: _scene(OF_SPARK),
    BROKEN: _scene(NO_POINTS),
}
MASTERS: Final = dict.fromkeys(SCENES, "local[2]") | {TRYING: "local[2,2]"}
FORM_OF: Final = dict.fromkeys(SCENES, EACH) | {KEEPING: STATE, ADDING: SEVERAL}
WAYS: Final = dict.fromkeys(SCENES, (*FAULTS, DRIVER)) | dict.fromkeys((KEEPING, ADDING), (DRIVER,))
"""In which ways the points of a scene are struck."""

NOT_TRIED: Final = {
    **{
        (TRYING, point, DRIVER): "the death of a driver is no task's failure"
        for point in sorted(TRIED_AGAIN)
    },
    **{
        (TRYING, "spark.staged", cut): "the commit that follows is the batch's, and no task's"
        for cut in CUTS
    },
}
"""What a scene has not, and why: the other scene has it."""

ASKED_AGAIN: Final = frozenset({"spark.claim", "spark.claimed", "spark.committed"})
"""Points behind which a connection that is lost at a commit is made again: the query goes on."""
FAILURES: Final = {KILL: "CRASH", RAISE: "CRASH"} | dict.fromkeys(CUTS, "ENVIRONMENT")
"""How a query fails that meets a fault; the death of its driver, nobody is left to count."""


CHARGES_ALL: Final = """
    create or replace function {0}.spark_examine(g {0}.spark_group, p_innocent boolean) returns void
    language plpgsql volatile as $$
    declare e {0}.element;
    begin
        for e in select * from {0}.element where claimed_by = g.group_no for update loop
            perform {0}.return_element(e, 'charge', 'server_died', 'planted', g.group_no);
        end loop;
        delete from {0}.spark_group where group_no = g.group_no;
    end $$
"""
"""The function that judges what a former life held, broken."""


def explained(trial: Trial) -> dict[str, int]:
    """Returns how often queries may fail, and must: once, unless somebody tries again."""
    goes_on = trial.what in CUTS and trial.point in ASKED_AGAIN
    if trial.scene == TRYING or goes_on or trial.what not in FAILURES:
        return {}
    return {FAILURES[trial.what]: 1}


class SparkRun(Run):
    """One trial under way, whose Spark server is served by a driver that others may share."""

    scenes: ClassVar[Mapping[str, Scene]] = SCENES
    queue: ClassVar[Orders] = onceq.Queue(
        QUEUE.name, Order, Receipt, abort_limit=ABORT_LIMIT, backoff_ms=1
    )
    deaths: ClassVar[Mapping[str, list[int]]] = {DRIVER: [-signal.SIGKILL]}
    writes: ClassVar[re.Pattern[str]] = writing(
        {op: row for op, row in SPARK_BINDINGS.items() if op is not SparkTakeOver}
    )
    """Not what the supervisor does beside the batch, every second."""

    def __init__(
        self, ground: Ground, trial: Trial, repository: str, place: Path, *, driver: Driver
    ) -> None:
        super().__init__(ground, trial, repository, place)
        self._driver = driver

    def _prepare(self, undo: contextlib.ExitStack, asked: contextlib.ExitStack) -> Proxy:
        proxy = super()._prepare(undo, asked)
        if self._trial.scene == BROKEN:
            ask(self._ground.conninfo, CHARGES_ALL.format(self._repository))
        return proxy

    def _kills(self) -> int:
        return super()._kills() + (self._came() and self._trial.what == KILL)

    def _do(self, proxy: Proxy, word: str) -> None:
        """Does what a process has asked for at its point."""
        if word.startswith(DRIVER):
            self._driver.kill()
        else:
            super()._do(proxy, word)

    def _processes(self, url: str) -> list[str]:
        """Has the client served until it has ended well, by as many drivers as that takes."""
        end = time.monotonic() + SPARK_LIMIT_S
        serving = Serving(
            url=url,
            repository=self._repository,
            queue=self.queue,
            place=self._place,
            armed=self._armed(),
            form=FORM_OF[self._trial.scene],
        )
        (program,) = self._scene.beside
        client = self._start(program, self._ground.conninfo)
        try:
            self._wait_sent(end)
            while len(self._codes) <= len(self._wanted) and time.monotonic() < end:
                code = self._life(serving, client, end)
                if code == 0:
                    return self._failures() or self._others([client], end)
                if code is not None:
                    self._codes.append(code)
            if time.monotonic() < end:
                return []
            return [f"G12: not done after {SPARK_LIMIT_S:.0f} s: {self._said()}"]
        finally:
            self._driver.stop(serving)
            client.kill()
            client.join()

    def _wait_sent(self, end: float) -> None:
        """Waits for the first round of requests, so that the first batch has some."""
        pause = threading.Event()
        query = f"select 1 from {self._repository}.element limit 1"
        while not ask(self._ground.conninfo, query) and time.monotonic() < end:
            pause.wait(TICK_S)

    def _life(self, serving: Serving, client: BaseProcess, end: float) -> int | None:
        """Waits for the end of a driver's part in this: 0 where it is done; None when too late."""
        process = self._driver.serve(serving)
        ended = self._place / ENDED
        pause = threading.Event()
        stopped = False
        while time.monotonic() < end:
            if ended.exists():
                return 0
            if process.exitcode is not None:
                return process.exitcode
            if client.exitcode is not None and not stopped:
                stopped = True
                self._driver.stop(serving)
            pause.wait(TICK_S)
        return None

    def _failures(self) -> list[str]:
        """Returns what is wrong with the failures of queries: those that the fault explains not."""
        ended = msgspec.json.decode((self._place / ENDED).read_bytes(), type=Ended)
        wanted = explained(self._trial) if self._came() else {}
        if ended == Ended(failures=wanted):
            return []
        return [f"queries failed by {ended.error or ended.failures}, and not by {wanted}"]
