"""Clients that process replies, for test_processing_kills.

Each trial has a client of its own, which is killed by -9 at its fault point, and then lives again,
unarmed, until it has done its work.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
PAUSE_S = 0.05
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A client of its own, killed at a fault point. point: its name and time. files: a folder.

    begins: how its lives begin: with `process`, or with `recover` by the policy; or with the latter
    and a ledger, in a file or in the database.
    """

    url: str
    repository: str
    files: Path
    kind: str
    point: str
    begins: str = "process"

    @property
    def name(self) -> str:
        """The client's, and the trial's."""
        return f"{self.begins}-{self.kind}-{self.point.replace(' ', '-')}"

    @property
    def ledger(self) -> Any:
        """The client's, if it has one."""
        made: dict[str, Callable[[], Any]] = {
            "file": lambda: onceq.SqliteLedger(self.files / f"{self.name}.ledger"),
            "row": onceq.PostgresLedger,
        }
        return made[self.begins]() if self.begins in made else None

    @property
    def said(self) -> Path:
        """What its lives write to their standard output and error."""
        return self.files / f"{self.name}.said"

    def words(self) -> str:
        """The last of it, for a message."""
        said = self.said.read_text(errors="replace") if self.said.exists() else ""
        return f"; it said:\n{said[-WORDS:]}" if said else "; it said nothing"


def client(trial: Trial, paper: Paper, policy: onceq.ReplyPolicy) -> None:
    """What a life of a client does."""
    ledger = trial.ledger
    kept = {"ledger": ledger} if ledger else {}
    with (
        onceq.open(trial.url, repository=trial.repository) as qm,
        qm.clerk(trial.name, ECHO, **kept) as clerk,
    ):
        last = clerk.last_sent
        if trial.begins != "process":
            last = recovered(clerk, paper, policy, "resubmit" if ledger else "ask").rid
        else:
            clerk.process(paper.output, policy, timeout_s=WAIT_S)
        for number in range(int(last or 0) + 1, REQUESTS + 1):
            clerk.send(str(number), "?")
            clerk.process(paper.output, policy, timeout_s=WAIT_S)


def recovered(
    clerk: onceq.Clerk[str, str], paper: Paper, policy: onceq.ReplyPolicy, unsent: Any
) -> onceq.Recovery:
    """Recovers until no reply is outstanding: `process` then has nothing to do."""
    while True:
        found = clerk.recover(policy=unsent, handler=paper.output, reply_policy=policy)
        if not clerk.outstanding:
            assert clerk.process(paper.output, policy) == []
            return found
        time.sleep(PAUSE_S)


def live(trial: Trial, armed: str) -> None:
    """One life of the client, in this process. armed: for `arm`, or empty."""
    say_into(trial.said)
    if armed:
        faultpoints.arm(armed)
        faultpoints.pointed(PostgresDriver)
    paper = Paper(trial.files / f"{trial.name}.paper")
    client(trial, paper, POLICIES[trial.kind](paper))


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
