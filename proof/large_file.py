"""A large file: submitted and collected by the command line, both killed again and again.

Every row must be one request, and every rid one reply, the right one; and neither process may grow
with the file. A native server in batches works beside them. Each kill falls at a random moment
after the process has done its share of the file.
"""

from __future__ import annotations

import contextlib
import csv
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg

import onceq
from onceq.files.track import decode
from proof import goals
from proof.part import Limits, Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from proof.part import Order

ROWS: Final = {Size.SMALL: 20_000, Size.PROOF: 1_000_000, Size.LONG: 5_000_000}
KILLS: Final = {Size.SMALL: 6, Size.PROOF: 20, Size.LONG: 100}
"""Half of them hit submit, half collect."""
MEMORY_MB_MAX: Final = 300
STALLED_S: Final = 120.0
TICK_S: Final = 0.005
HASTE_S: Final = 0.05
"""A kill falls within this time after its share of the file is done."""
BATCH: Final = 500
ORDERS: Final = onceq.Queue("orders", dict[str, str], dict[str, str])
CLIENT: Final = "shop"
TRACK: Final = ".orders.csv.rejects.jsonl.track"
SAID: Final = 3
"""How many wrong lines are quoted."""


def answer(order: dict[str, str], _: onceq.Context) -> dict[str, str]:
    """Returns the one right reply to an order."""
    return {"number": order["id"], "cents": str(int(order["cents"]) * 2)}


def row(number: int) -> tuple[str, str, str]:
    """Returns a row of the file."""
    return str(number), f"customer {number % 977}", str(number * 7919 % 100_000)


def peak_mb(pid: int) -> int:
    """Returns the most memory that a process has had since its exec; 0 if it has ended.

    The kernel's count for `wait4` will not do: in it a process begins with its parent's.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) // 1024 if found else 0


@dataclass(frozen=True, slots=True)
class Command:
    """A command of onceq, and how many rows it has dealt with so far."""

    name: str
    words: list[str]
    done: Callable[[], int]


@dataclass(slots=True)
class Trial:
    """One run of the part. peak_mb: of any process of submit, or of collect."""

    order: Order
    url: str
    chance: random.Random
    kills: int = 0
    violations: list[str] = field(default_factory=list[str])
    peak_mb: dict[str, int] = field(default_factory=dict[str, int])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return ROWS[self.order.size]

    @property
    def source(self) -> Path:
        """The file of requests."""
        return self.order.place / "orders.csv"

    @property
    def out(self) -> Path:
        """The file of replies."""
        return self.order.place / "replies.csv"

    def write(self) -> None:
        """Writes the file of requests."""
        with self.source.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(("id", "customer", "cents"))
            lines.writerows(row(number) for number in range(1, self.rows + 1))

    def run(self, command: Command) -> dict[str, Any]:
        """Runs a command until it ends by itself, after this part's kills; returns its summary."""
        began = time.monotonic()
        name, kills = command.name, KILLS[self.order.size] // 2
        for kill in range(1, kills + 1):
            share = self.rows * kill // (kills + 1)
            self.order.say(f"{name}, {self.kills} kills", share, self.rows)
            if not self._killed(command, share):
                self.violations.append(f"{name} ended before kill {kill} of {kills}")
        with self._started(command) as process:
            while self._lives(command, process):
                time.sleep(TICK_S)
        self.seconds[name] = time.monotonic() - began
        if process.returncode != 0:
            self.violations.append(f"{name} ended with exit code {process.returncode}")
            return {}
        summary: dict[str, Any] = msgspec.json.decode(self._summary(command).read_bytes())
        return summary

    def _killed(self, command: Command, share: int) -> bool:
        """Runs a command and kills it once it has done its share; False: it ended before that."""
        with self._started(command) as process:
            until = time.monotonic() + STALLED_S + self.rows / 1000
            while self._lives(command, process) and command.done() < share:
                if time.monotonic() > until:
                    break
                time.sleep(TICK_S)
            time.sleep(self.chance.uniform(0, HASTE_S))
            self._lives(command, process)
        was_killed = process.returncode == -signal.SIGKILL
        self.kills += was_killed
        return was_killed

    @contextlib.contextmanager
    def _started(self, command: Command) -> Generator[subprocess.Popen[bytes]]:
        """Starts a command, which is killed at the end of the block if it is still running."""
        line = [sys.executable, "-m", "onceq.cli.main", *command.words, "--url", self.url, "--json"]
        log = self.order.place / "said.log"
        with log.open("ab") as errors, self._summary(command).open("wb") as out:
            process = subprocess.Popen(line, stdout=out, stderr=errors)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def _summary(self, command: Command) -> Path:
        """Returns the file with a command's standard output."""
        return self.order.place / f"{command.name}.json"

    def _lives(self, command: Command, process: subprocess.Popen[bytes]) -> bool:
        """Returns whether a process is still running; notes the most memory that it has had."""
        if process.poll() is not None:
            return False
        peak = max(self.peak_mb.get(command.name, 0), peak_mb(process.pid))
        self.peak_mb[command.name] = peak
        return True

    def check_summaries(self, submitted: dict[str, Any], collected: dict[str, Any]) -> None:
        """Compares both summaries with what the commands had to do."""
        known = sum(submitted.get(name, 0) for name in ("sent", "queued", "replied", "done"))
        if (known, submitted.get("rejected")) != (self.rows, 0):
            self.violations.append(f"submit says {submitted}")
        if collected.get("outstanding") != 0:
            self.violations.append(f"collect says {collected}")

    def check_replies(self) -> None:
        """Compares the file of replies with what it must hold: each rid once, its reply."""
        found = bytearray(self.rows + 1)
        wrong: list[str] = []
        with self.out.open(newline="") as file:
            for line in csv.DictReader(file):
                number = int(line["rid"])
                found[number] = min(255, found[number] + 1)
                cents = int(row(number)[2]) * 2
                reply = (line["outcome"], line["number"], line["cents"])
                if reply != ("done", str(number), str(cents)):
                    wrong.append(f"row {number}: {line}")
        lost, doubled = found.count(0, 1), sum(found) - (self.rows - found.count(0, 1))
        if lost or doubled or wrong:
            quoted = "; ".join(wrong[:SAID])
            self.violations.append(f"{lost} lost, {doubled} doubled, {len(wrong)} wrong: {quoted}")

    def check_repository(self) -> None:
        """Checks that each row was finished once, and that nothing is left."""
        with psycopg.connect(self.url) as connection:
            (left,) = connection.execute("select count(*) from onceq.element").fetchone() or (-1,)
            ended = connection.execute(
                "select count(*), count(distinct rid) from onceq.history where outcome = 'done'"
            ).fetchone()
        if (left, ended) != (0, (self.rows, self.rows)):
            self.violations.append(f"{left} elements are left; history has {ended}")

    def check_memory(self) -> None:
        """Checks that neither process grew with the file."""
        for doing, peak in self.peak_mb.items():
            if peak > MEMORY_MB_MAX:
                self.violations.append(f"{doing} took {peak} MB, at most {MEMORY_MB_MAX} wanted")

    def submitted(self) -> int:
        """Returns how many rows are noted as dealt with."""
        with contextlib.suppress(FileNotFoundError):
            note = decode((self.order.place / TRACK).read_bytes())
            return 0 if note is None else note.row
        return 0

    def collected(self) -> int:
        """Returns roughly how many replies the file has."""
        paths = (self.out, self.out.with_name(f".{self.out.name}.growing"))
        return max(map(_size, paths)) // LINE

    def page(self) -> str:
        """Returns the section of the report."""
        lines = ["| | rows a second, with the kills | peak memory |", "|---|---|---|"]
        for doing, seconds in self.seconds.items():
            rate = round(self.rows / seconds)
            lines.append(f"| {doing} | {rate:,} | {self.peak_mb[doing]} MB |")
        head = f"{self.rows:,} rows, {self.kills} kills; one native server, {BATCH} in a batch.\n\n"
        return head + "\n".join(lines) + "\n"


LINE: Final = 26
"""Least bytes of a line of replies in a large file."""


def run(order: Order) -> Outcome:
    """Submits and collects a large file, with kills, and checks the result."""
    with onceq.open(f"embedded:{order.place}/postgresql") as qm:
        qm.declare(ORDERS)
        url = qm.located.conninfo
        trial = Trial(order, url, random.Random(order.seed))
        trial.write()
        with _serving(url, order.place):
            trial_of(trial)
    return Outcome(
        measures=[
            Measure(what=goals.FILE_ROWS, reached=0 if trial.violations else trial.rows),
            Measure(what=goals.KILLS, reached=trial.kills),
            *(Measure(what=f"peak MB of {one}", reached=mb) for one, mb in trial.peak_mb.items()),
        ],
        violations=trial.violations,
        page=trial.page(),
    )


def trial_of(trial: Trial) -> None:
    """Submits, collects, and checks."""
    submit = ["submit", str(trial.source), "--queue", "orders", "--rid", "id", "--client", CLIENT]
    collect = ["collect", "--client", CLIENT, "--out", str(trial.out), "--fields", "number,cents"]
    collect += ["--timeout", str(STALLED_S)]
    submitted = trial.run(Command("submit", submit, trial.submitted))
    collected = trial.run(Command("collect", collect, trial.collected))
    trial.order.say("checking", trial.rows, trial.rows)
    trial.check_summaries(submitted, collected)
    trial.check_replies()
    trial.check_repository()
    trial.check_memory()


@contextlib.contextmanager
def _serving(url: str, place: Path) -> Generator[None]:
    """Runs a server in a process of its own."""
    command = [sys.executable, "-m", "proof.large_file", url]
    with (place / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # it is not there yet, or has its last name now
        return 0


def main() -> None:
    """Serves until told to stop."""
    server = onceq.Server([ORDERS.handled_by(answer, batch=BATCH, effects=False)])
    with server.signals():
        server.run(sys.argv[1])


PART = Part(
    name="large-file",
    text="a large file submitted and collected, both killed: each row once, memory bounded",
    run=run,
    states=(goals.FILE_ROWS, goals.KILLS),
    alone=True,
    limits=Limits(small_s=180.0, proof_s=1200.0, long_s=2 * 3600.0),
)


if __name__ == "__main__":
    main()
