"""The two trials of the scoreboard, the same for every system.

Kills: requests that each write one row, while the server process is killed with -9 whenever it has
said which request it runs, at a moment that a seed decides; a new process is started at once. Then
it is left alone until all is finished, or until nothing has happened for longer than any lease.
Poison: one request that kills its process, which is restarted, at most ten times.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from proof.scoreboard.servers.base import HALF_S, LEASE_S, POISON

if TYPE_CHECKING:
    from random import Random
    from typing import LiteralString, Self

    from proof.scoreboard.subjects import Subject

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = 60
KILLS = 11
KILLS_EACH_MAX = 2
"""How often one request is killed at most, so that no limit of attempts is reached."""
STARTS = 10
QUIET_S = 5.0 * LEASE_S
LOOK_S = 0.005
STEP_S = 60.0
TRIAL_S = 240.0
WORDS = 300


class ContestError(Exception):
    """A system did not do what it was asked to, for a reason that is not the trial's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial of the kills. moments_s: from which to which moment of the work a kill may fall.

    With the time until the harness has seen the start (LOOK_S) that is before the work's end.
    """

    requests: int = REQUESTS
    kills: int = KILLS
    moments_s: tuple[float, float] = (0.0, 1.4 * HALF_S)


TRIAL = Trial()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """What became of the requests. twice: rows too many. unfinished: not done well by its count."""

    kills: int
    twice: int
    missing: int
    unfinished: int
    seconds: float


@dataclass
class Stand:
    """A system in a database of its own, with a directory of its own."""

    subject: Subject
    python: str
    conninfo: str
    place: Path
    limit: int | None = None
    _process: subprocess.Popen[bytes] | None = None

    @property
    def reports(self) -> Path:
        """The file in which its processes say what they run."""
        return self.place / "reports"

    def _command(self, do: str, rids: tuple[str, ...] = ()) -> list[str]:
        asked = {"do": do, "conninfo": self.conninfo, "setting": self.subject.setting}
        rest = {"rids": rids, "reports": str(self.reports), "limit": self.limit}
        given = json.dumps({**asked, **rest})
        module = f"proof.scoreboard.servers.{self.subject.system}_server"
        return [self.python, "-m", module, given]

    def ask(self, do: str, rids: tuple[str, ...] = ()) -> None:
        """Let it do something that ends; ContestError with its last words if it fails."""
        done = subprocess.run(
            self._command(do, rids), cwd=ROOT, capture_output=True, timeout=STEP_S, check=False
        )
        if done.returncode:
            raise ContestError(f"{do}: {done.stderr.decode(errors='replace').strip()[-WORDS:]}")

    def start(self) -> None:
        """Start its server process."""
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("serve"), cwd=ROOT, stdout=log, stderr=log
            )

    def has_died(self) -> bool:
        """Whether the process was killed; ContestError if it ended in another way."""
        code = None if self._process is None else self._process.poll()
        if code is not None and code != -9:
            said = (self.place / "log").read_bytes().decode(errors="replace").strip()
            raise ContestError(f"its server ended with {code}: {said[-WORDS:]}")
        return code is not None

    def kill(self) -> None:
        """Kill the server process with -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def begun(self) -> list[str]:
        """Return the requests of the executions that have begun."""
        return self.reports.read_text().split() if self.reports.exists() else []

    def number(self, query: LiteralString) -> int:
        """Return the one number that a query finds."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            row = connection.execute(query).fetchone()
        return 0 if row is None else int(row[0])

    def __enter__(self) -> Self:
        self.place.mkdir(parents=True)
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute("create table effect (rid text)")
        self.ask("prepare")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def try_kills(stand: Stand, chance: Random, trial: Trial = TRIAL) -> Kills:
    """Run the trial of the kills."""
    began = time.monotonic()
    stand.ask("send", tuple(f"r{n}" for n in range(trial.requests)))
    stand.start()
    killed: Counter[str] = Counter()
    for _ in range(trial.kills):
        _kill_one(stand, chance.uniform(*trial.moments_s), chance.randrange(3), killed)
    _wait_quiet(stand, trial, began + TRIAL_S)
    rows = stand.number("select count(*) from effect")
    distinct = stand.number("select count(distinct rid) from effect")
    return Kills(
        kills=killed.total(),
        twice=rows - distinct,
        missing=trial.requests - distinct,
        unfinished=trial.requests - stand.number(stand.subject.finished),
        seconds=time.monotonic() - began,
    )


def _kill_one(stand: Stand, moment_s: float, passed: int, killed: Counter[str]) -> None:
    """Kill the process while it runs a request, after some have passed; not if none begins."""
    wanted = len(stand.begun()) + 1 + passed
    end = time.monotonic() + QUIET_S
    while time.monotonic() < end:
        stand.has_died()
        begun = stand.begun()
        if len(begun) >= wanted and killed[begun[-1]] < KILLS_EACH_MAX:
            time.sleep(moment_s)
            stand.kill()
            stand.start()
            killed[begun[-1]] += 1
            return
        time.sleep(LOOK_S)


def _wait_quiet(stand: Stand, trial: Trial, end: float) -> None:
    """Wait until all is finished, or nothing has happened for QUIET_S, or until the end."""
    seen, since = (-1, -1), time.monotonic()
    while time.monotonic() < min(end, since + QUIET_S):
        stand.has_died()
        now = (len(stand.begun()), stand.number(stand.subject.finished))
        if now[1] >= trial.requests:
            return
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(10 * LOOK_S)


def try_poison(stand: Stand) -> int:
    """Run the trial of the poison; return how many processes it killed."""
    stand.ask("send", (POISON,))
    deaths = 0
    for _ in range(STARTS):
        stand.start()
        if not _dies(stand):
            break
        deaths += 1
    return deaths


def _dies(stand: Stand) -> bool:
    """Whether the poison kills the process, or is given up, or nothing happens for QUIET_S."""
    end = time.monotonic() + QUIET_S
    while time.monotonic() < end:
        if stand.has_died():
            return True
        if stand.number(stand.subject.gave_up):
            return False
        time.sleep(10 * LOOK_S)
    return False
