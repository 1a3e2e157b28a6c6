"""Exactly-once output: a printer of numbered tickets, whose client dies at each of its steps.

Run it: at each step of a client between two tickets, a client is killed by kill -9, and
started again. No ticket is printed twice, and none is left out. This holds in both orders: the
printer's state is logged with the receive, or after it.
Source: spec C8, C14; docs/exactly-once-output.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import onceq

SEATS = onceq.Queue("seats", int, str)
STEPS = ("reads", "prints", "printed", "sends")
LAST = 3


class Printer:
    """A device that can be tested: its state is the number of the next ticket."""

    def __init__(self, paper: Path, dies: str) -> None:
        self.paper = paper
        self.dies = dies

    def next_ticket(self) -> int:
        return len(self.paper.read_text().splitlines()) + 1 if self.paper.exists() else 1

    def state(self) -> bytes:
        self.die_here("reads")
        return str(self.next_ticket()).encode()

    def output(self, reply: onceq.Reply[str]) -> None:
        self.die_here("prints")
        with self.paper.open("a") as paper:
            paper.write(f"{self.next_ticket()} {reply.value}\n")
        self.die_here("printed")

    def die_here(self, step: str) -> None:
        if self.dies == step and self.next_ticket() >= LAST - 1:
            os.kill(os.getpid(), signal.SIGKILL)


def client(url: str, paper: str, order: str, dies: str) -> None:
    """Buys the remaining seats, and prints a ticket for each."""
    printer = Printer(Path(paper), dies)
    policy = onceq.ReplyPolicy.test(printer, late=order == "after")
    with onceq.open(url) as qm, qm.clerk(Path(paper).name, SEATS) as clerk:
        clerk.process(printer.output, policy, timeout_s=30)  # what the former life has left
        for seat in range(int(clerk.last_sent or 0) + 1, LAST + 1):
            clerk.send(str(seat), seat)
            printer.die_here("sends")
            clerk.process(printer.output, policy, timeout_s=30)


def sell(seat: int, _context: onceq.Context) -> str:
    """The server's side."""
    return f"seat {seat}"


server = onceq.Server([SEATS.handled_by(sell)])


def lives(url: str, paper: Path, order: str, dies: str) -> str:
    """Runs a client that dies, and then one that does not; returns what is on the paper."""
    for step, wanted in ((dies, -signal.SIGKILL), ("never", 0)):
        command = [sys.executable, __file__, url, str(paper), order, step]
        ended = subprocess.run(command, check=False, timeout=60).returncode
        assert ended == wanted, f"it ended with {ended}"
    return ", ".join(paper.read_text().splitlines())


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(SEATS)
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            try:
                for order in ("with", "after"):
                    print(f"logged {order} the receive:")
                    for dies in STEPS:
                        paper = Path(directory) / f"{order}-{dies}"
                        print(f"  killed where it {dies}:", lives(url, paper, order, dies))
            finally:
                server.stop()
                serving.join()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        client(*sys.argv[1:])
    else:
        main()
