"""A driver of Spark that serves trials: a process with its Java, begun again when it has died.

Used by proof/sparkpoints/trials.py. To start one costs seconds, so it lives on from trial to trial,
and may serve several at once; each is a server of the product with a query of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.spark import Server, ServerSettings, build_session, insert
from proof.harness.ledger import EFFECTS
from proof.harness.processes import say_into, start
from proof.sparkpoints.forms import EACH, FORMS
from proof.sparkpoints.source import ARMED
from proof.torture.processes import descendants

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from pyspark.sql import SparkSession

    from proof.fault_ground import Ground
    from proof.fault_programs import Orders

AT_ONCE: Final = 2
ENDED: Final = "ended"
"""The file in a trial's directory that says how its server has ended."""
QUICK: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For a Java of minutes at most, the better compiler and the better collector cost too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a driver is to serve: a trial. armed: for `arm`. form: of what it computes."""

    url: str
    repository: str
    queue: Orders
    place: Path
    armed: str
    form: str = EACH


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a server has ended. failures: of its queries, by what each came to."""

    failures: dict[str, int] = {}
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Life:
    """A driver that was begun: its process, and how it is told."""

    process: BaseProcess
    tell: Callable[[Serving | str], None]


class Driver:
    """A driver of Spark, from the side of those who give it trials; from any thread.

    master: Spark's, which says how often a task is tried. lives: how many were begun.
    """

    def __init__(self, ground: Ground, master: str) -> None:
        self._ground = ground
        self._master = master
        self._lock = threading.Lock()
        self._life: _Life | None = None
        self.lives = 0

    def serve(self, serving: Serving) -> BaseProcess:
        """Has a trial served by the process that is returned; begun, where there is none."""
        with self._lock:
            if self._life is None or self._life.process.exitcode is not None:
                self._life = self._begin()
            self._say(self._life, serving)
            return self._life.process

    def stop(self, serving: Serving) -> None:
        """Has the server of a trial end."""
        with self._lock:
            if self._life is not None:
                self._say(self._life, serving.repository)

    def kill(self) -> None:
        """Kills the driver, its Java and all that it has started, with -9."""
        if self._life is not None and self._life.process.pid is not None:
            pid = self._life.process.pid
            for one in [pid, *descendants(pid)]:
                with contextlib.suppress(ProcessLookupError):  # its parent's death was its own
                    os.kill(one, signal.SIGKILL)
            self._life.process.join()

    def _begin(self) -> _Life:
        self.lives += 1
        theirs, ours = Pipe(duplex=False)
        process = start(live, theirs, self._master, self._ground.place / "drivers")
        theirs.close()
        return _Life(process, ours.send)

    def _say(self, life: _Life, what: Serving | str) -> None:
        with contextlib.suppress(BrokenPipeError):  # its death is seen by its exit code
            life.tell(what)


def live(told: Connection, master: str, log: Path) -> None:
    """Serves what it is told to until nobody is left who could tell: the process of a driver."""
    say_into(log)
    os.environ["TMPDIR"] = str(log.parent)  # what a killed one leaves goes with the ground
    session = build_session("fault points", master=master, settings=QUICK)
    servers: dict[str, ArmedServer] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        with contextlib.suppress(EOFError):
            while True:  # until the other end is closed
                match told.recv():
                    case Serving() as serving:
                        servers[serving.repository] = server = ArmedServer(serving)
                        done = pool.submit(server.serve, session)
                        done.add_done_callback(server.tell)
                    case repository:
                        if repository in servers:  # else it was served by one that has died
                            servers[repository].stop()
        for one in servers.values():
            one.stop()


class ArmedServer(Server):
    """The server of a trial."""

    data_source = "proof.sparkpoints.source:ArmedSource"

    def __init__(self, serving: Serving) -> None:
        form = FORMS[serving.form]
        super().__init__(
            serving.queue,
            batch=form.batch,
            tables={EFFECTS: insert(into=f"{serving.repository}.{EFFECTS}")},
            settings=ServerSettings(
                backoff_s=0.01, backoff_max_s=0.1, partitions=1, **form.settings
            ),
        )
        self._serving = serving

    def source_options(self) -> dict[str, str]:
        """Returns what is armed."""
        return {ARMED: self._serving.armed}

    def serve(self, session: SparkSession) -> Ended:
        """Serves until it is stopped."""
        serving = self._serving
        checkpoint = serving.place / "checkpoint"
        self.run(serving.url, repository=serving.repository, spark=session, checkpoint=checkpoint)
        return Ended(failures=dict(self.statistics().failures))

    def tell(self, done: Future[Ended]) -> None:
        """Says how it has ended, by a file that is whole once it is there."""
        error = done.exception()
        ended = done.result() if error is None else Ended(error=repr(error))
        made = self._serving.place / f"{ENDED}.new"
        with contextlib.suppress(FileNotFoundError):  # nobody waits any more
            made.write_bytes(msgspec.json.encode(ended))
            made.rename(self._serving.place / ENDED)
