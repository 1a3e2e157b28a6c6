"""Clients that process replies, for test_processing_kills.

Each trial has a client of its own, which is killed by -9 at its fault point, and then lives again,
unarmed, until it has done its work.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onceq
from onceq.engine import faultpoints
from onceq.engine.perform.driver import PostgresDriver
from proof.harness.processes import say_into, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ECHO = onceq.Queue("echo", str, str)
REQUESTS = 2
WAIT_S = 60.0
LIFE_S = 150.0
WORDS = 2000
POINTS = [
    *[f"Act.{when} {times}" for times in (1, 2, 3, 4) for when in ("before", "after")],
    *[f"Send.{when} 2" for when in ("before", "after")],
    *[f"{op}.{when} 1" for op in ("Receive", "Acknowledge") for when in ("before", "after")],
]


class Paper:
    """A printer of numbered tickets, into a file: `NUMBER RID` a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def state(self) -> bytes:
        lines = self.lines()
        return (lines[-1].split()[0] if lines else "0").encode()

    def output(self, reply: onceq.Reply[str]) -> None:
        with self.path.open("a") as file:
            file.write(f"{int(self.state()) + 1} {reply.rid}\n")

    def has(self, reply: onceq.Reply[str]) -> bool:
        return any(line.split()[1] == reply.rid for line in self.lines())

    def take_back(self, reply: onceq.Reply[str]) -> None:
        kept = [line for line in self.lines() if line.split()[1] != reply.rid]
        self.path.write_text("".join(f"{line}\n" for line in kept))


POLICIES: dict[str, Callable[[Paper], onceq.ReplyPolicy]] = {
    "repeat": lambda _: onceq.ReplyPolicy.repeat(),
    "undo": lambda paper: onceq.ReplyPolicy.undo(paper.take_back),
    "test": onceq.ReplyPolicy.test,
    "late": lambda paper: onceq.ReplyPolicy.test(paper, late=True),
    "ask": lambda paper: onceq.ReplyPolicy.ask(paper.has),
    "skip": lambda _: onceq.ReplyPolicy.skip(),
}


def client(url: str, repository: str, name: str, paper: Paper, policy: onceq.ReplyPolicy) -> None:
    with (
        onceq.open(url, repository=repository) as qm,
        qm.clerk(name, ECHO) as clerk,
    ):
        clerk.process(paper.output, policy, timeout_s=WAIT_S)
        for number in range(int(clerk.last_sent or 0) + 1, REQUESTS + 1):
            clerk.send(str(number), "?")
            clerk.process(paper.output, policy, timeout_s=WAIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A client of its own, killed at a fault point. point: its name and time. files: a folder."""

    url: str
    repository: str
    files: Path
    kind: str
    point: str

    @property
    def name(self) -> str:
        """The client's, and the trial's."""
        return f"{self.kind}-{self.point.replace(' ', '-')}"

    @property
    def said(self) -> Path:
        """What its lives write to their standard output and error."""
        return self.files / f"{self.name}.said"

    def words(self) -> str:
        """The last of it, for a message."""
        said = self.said.read_text(errors="replace") if self.said.exists() else ""
        return f"; it said:\n{said[-WORDS:]}" if said else "; it said nothing"


def live(trial: Trial, armed: str) -> None:
    """One life of the client, in this process. armed: for `arm`, or empty."""
    say_into(trial.said)
    if armed:
        faultpoints.arm(armed)
        faultpoints.pointed(PostgresDriver)
    paper = Paper(trial.files / f"{trial.name}.paper")
    client(trial.url, trial.repository, trial.name, paper, POLICIES[trial.kind](paper))


def ended(trial: Trial, armed: str = "") -> int:
    """Runs a life to its end: minus the signal, or the exit code. One that hangs is an error."""
    process = start(live, trial, armed)
    process.join(LIFE_S)
    code = process.exitcode
    process.kill()
    assert code is not None, f"{trial.name} still lived after {LIFE_S:g} s{trial.words()}"
    return code


def run(trial: Trial) -> tuple[bool, list[str]]:
    """Returns whether the client died at its point, and what it had printed in the end."""
    reached = trial.files / f"{trial.name}.points"
    reached.mkdir()
    first = ended(trial, f"{trial.point} kill {reached}")
    assert first in {0, -signal.SIGKILL}, f"{trial.name} ended with {first}{trial.words()}"
    after = ended(trial)
    assert after == 0, f"{trial.name}: its next life ended with {after}{trial.words()}"
    return first != 0, Paper(trial.files / f"{trial.name}.paper").lines()
