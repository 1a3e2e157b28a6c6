"""One round: a load on a fresh drive, cuts of its power, and what recovers from each.

For `part`. The cuts are taken while the load runs, and judged one after the other when it has
ended. Some are taken during a checkpoint, and in some the power goes again while PostgreSQL
recovers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from onceq.engine.embedded import open_embedded
from onceq.engine.embedded.cluster import running_pid_file
from onceq.engine.embedded.directory import Layout
from onceq.engine.embedded.locks import Deadline, poll_until
from onceq.errors import EmbeddedStartFailed, OnceqError
from proof.powercut import devices
from proof.powercut.load import prepare, running
from proof.powercut.verdict import Past, Verdict, judge_finished, judge_recovered
from proof.powercut.witness import Witness, make_tables

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator

    from onceq.history.events import Event
    from proof.powercut.drive import Cut, Drive, Ground, Kind
    from proof.powercut.load import Load

SETTINGS = {"max_wal_size": "128MB", "min_wal_size": "32MB", "checkpoint_timeout": "30s"}

_BETWEEN_S = (0.05, 0.5)
_AGAIN = 0.2
_RECOVERING_S = 0.1
_LAUNCH_S = 30.0
_CHECKPOINT = 0.3
_CHECKPOINT_S = 0.05
_ERRORS = (OnceqError, psycopg.Error, TimeoutError)
# What a broken copy makes of the attempt to use it. Anything else is a fault of this program, or of
# the machine, and fails the part.


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a round does. settings: of PostgreSQL under load; it recovers with its own."""

    name: str
    kind: Kind
    cuts: int
    settings: dict[str, str]

    @property
    def is_control(self) -> bool:
        """Whether something acknowledged must get lost."""
        return self.settings.get("fsync") == "off"


@dataclass(slots=True, kw_only=True)
class Round:
    """A round, and what became of each of its cuts. place: a directory for its events."""

    plan: Plan
    ground: Ground
    place: Path
    chance: random.Random
    verdicts: list[Verdict] = field(default_factory=list[Verdict])

    def run(self, told: Callable[[], None]) -> None:
        """Runs the round; `told` is called as each cut has been judged."""
        self.place.mkdir()
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self.place)
            cuts, witness, events = self._take()
            undo.callback(self._remove, cuts)
            for cut in cuts:
                self.verdicts.append(self.judge(cut, witness, events))
                told()

    def _remove(self, cuts: list[Cut]) -> None:
        for cut in cuts:
            cut.image.unlink(missing_ok=True)

    def _take(self) -> tuple[list[Cut], Witness, list[Event]]:
        image = self.ground.fresh(f"{self.plan.name}-load", self.plan.kind.system)
        settings = {**SETTINGS, **self.plan.settings}
        with (
            self.ground.powered(image, "load", self.plan.kind) as drive,
            open_embedded(drive.cluster, settings=settings) as server,
        ):
            prepare(server.conninfo)
            make_tables(server.conninfo)
            devices.command("sync", "--file-system", drive.cluster)
            with (
                Witness(server.conninfo) as witness,
                running(server.conninfo, self.place / "events", self.chance) as load,
            ):
                cuts = [
                    self._cut(number, drive, load, server.conninfo)
                    for number in range(self.plan.cuts)
                ]
        image.unlink()
        return cuts, witness, load.events()

    def _cut(self, number: int, drive: Drive, load: Load, conninfo: str) -> Cut:
        _pass(self.chance.uniform(*_BETWEEN_S))
        load.check()
        image = self.ground.file(f"{self.plan.name}-{number}")
        with _checkpoint(conninfo) if self.chance.random() < _CHECKPOINT else _nothing():
            _pass(self.chance.uniform(0, _CHECKPOINT_S))
            return drive.cut(image, self.chance)

    def judge(self, cut: Cut, witness: Witness, events: list[Event]) -> Verdict:
        """Recovers from a cut, and says what is wrong. DeviceFailed: the machine's fault."""
        past = Past(events, cut)
        verdict = Verdict(
            acknowledged=len(past.sent), in_doubt=len(past.in_doubt), events=len(past.events)
        )
        try:
            if not self.plan.is_control and self.chance.random() < _AGAIN:
                cut, verdict.again = self._again(cut)
            self._recover(cut, past, witness, verdict)
        except _ERRORS as error:
            verdict.refused = has_refused(error)
            verdict.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            cut.image.unlink(missing_ok=True)
        return verdict

    def _again(self, cut: Cut) -> tuple[Cut, bool]:
        """Cuts the power while PostgreSQL recovers; the copy of the copy is what is judged.

        Returns also whether it was recovering, both when the cut began and when it was over.
        """
        image = cut.image.with_suffix(".again")
        with self.ground.powered(cut.image, "again", self.plan.kind) as drive:
            with ThreadPoolExecutor(1) as threads:
                opening = threads.submit(open_embedded, drive.cluster)
                poll_until(
                    lambda: opening.done() or is_recovering(drive.cluster), Deadline(_LAUNCH_S)
                )
                _pass(self.chance.uniform(0, _RECOVERING_S))
                before = is_recovering(drive.cluster)
                drive.cut(image, self.chance)
                during = before and is_recovering(drive.cluster)
            opening.result().close()
        cut.image.unlink()
        return dataclasses.replace(cut, image=image), during

    def _recover(self, cut: Cut, past: Past, witness: Witness, verdict: Verdict) -> None:
        began = time.monotonic()
        with (
            self.ground.powered(cut.image, "cut", self.plan.kind) as drive,
            open_embedded(drive.cluster) as server,
        ):
            verdict.recovery_s = time.monotonic() - began
            verdict.recovered = True
            with psycopg.connect(server.conninfo) as connection:
                verdict.lost, wrong = witness.missing(connection, cut.began_ns)
            verdict.wrong += wrong + judge_recovered(server.conninfo, past)
            verdict.lossy = bool(verdict.wrong)
            if not self.plan.is_control:
                with tempfile.TemporaryDirectory(dir=self.place) as files:
                    verdict.wrong += judge_finished(server.conninfo, past, Path(files))


def is_recovering(directory: Path) -> bool:
    """Whether a postmaster launched in a directory is running, and does not answer yet."""
    found = running_pid_file(Layout(directory))
    return found is not None and not found.ready


def has_refused(error: Exception) -> bool:
    """Whether PostgreSQL refused to recover: a machine that is too slow proves nothing."""
    return isinstance(error, EmbeddedStartFailed) and "ended while starting" in str(error)


def _pass(seconds: float) -> None:
    threading.Event().wait(seconds)


@contextlib.contextmanager
def _checkpoint(conninfo: str) -> Generator[None]:
    """A checkpoint runs, or just has, for the time of the block."""
    with (
        psycopg.connect(conninfo, autocommit=True) as connection,
        ThreadPoolExecutor(1) as threads,
    ):
        running_now = threads.submit(connection.execute, "checkpoint")
        yield
        running_now.result()


@contextlib.contextmanager
def _nothing() -> Generator[None]:
    yield
