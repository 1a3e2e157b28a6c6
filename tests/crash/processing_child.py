"""Clients that process replies, for test_processing_kills.

One process that forks: each trial has a client of its own, which is killed by -9 at its fault
point, and then lives again, unarmed, until it has done its work.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import onceq
from onceq.engine import faultpoints
from onceq.engine.perform.driver import PostgresDriver

if TYPE_CHECKING:
    from collections.abc import Callable

ECHO = onceq.Queue("echo", str, str)
REQUESTS = 2
WAIT_S = 30.0
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


def life(run: Callable[[], None]) -> int:
    """Runs a client in a process of its own; how that ended: minus the signal, or the exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:  # the child ends here, whatever was raised; the parent judges its code
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def trial(url: str, repository: str, files: Path, kind: str, point: str) -> str:
    """Returns how it went: the trial, whether its client died, and what it printed."""
    name = f"{kind}-{point.replace(' ', '-')}"
    reached = files / f"{name}.points"
    reached.mkdir()
    paper = Paper(files / f"{name}.paper")

    def whole() -> None:
        client(url, repository, name, paper, POLICIES[kind](paper))

    def cut() -> None:
        faultpoints.arm(f"{point} kill {reached}")
        faultpoints.pointed(PostgresDriver)
        whole()

    ended = life(cut)
    if ended not in {0, -signal.SIGKILL} or life(whole) != 0:
        raise RuntimeError(f"{name}: a life ended with {ended}, or the next in vain")
    return f"{name} {'died' if ended else 'lived'} {' '.join(paper.lines())}"


def main() -> None:
    url, repository, files = json.loads(sys.argv[1])
    for kind in POLICIES:
        for point in POINTS:
            sys.stdout.write(trial(url, repository, Path(files), kind, point) + "\n")


if __name__ == "__main__":
    main()
