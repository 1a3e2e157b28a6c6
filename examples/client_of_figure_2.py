"""The client of [BHM90] figure 2, line for line, killed with -9 at its worst moments.

Run it: a client prints five tickets. It is killed after a send, between receiving a reply and
printing the ticket, and just after printing. Each time it is started again, and goes on where it
was. In the end each ticket is there once.

What makes that possible: the rids and the checkpoint that `connect` returns, and a printer that
can say how many tickets it has printed (a testable device). `NIL` of the paper is None here, and
the work to do is "the orders after the one that was sent last".
Source: BHM90 3 and figure 2; spec C1, C8.
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

ORDERS = onceq.Queue("orders", int, str)
LAST_ORDER = 5
DEATHS = ("sent 2", "received 3", "printed 4")


class Printer:
    """A device whose state can be read: the number of tickets that it has printed."""

    def __init__(self, paper: Path) -> None:
        self.paper = paper

    def state(self) -> bytes:
        """Returns the number of tickets."""
        return str(len(self.paper.read_text().splitlines())).encode()

    def print_ticket(self, text: str) -> None:
        """Prints a ticket, which cannot be taken back."""
        with self.paper.open("a") as paper:
            paper.write(text + "\n")


def client(clerk: onceq.Clerk[int, str], printer: Printer, dies: str) -> None:
    """Figure 2. dies: where this life of the client ends."""
    clerk.connect()
    s_rid, r_rid, ckpt = clerk.last_sent, clerk.last_received, clerk.checkpoint
    if s_rid is not None and s_rid != r_rid:
        reply = clerk.receive(printer.state())
        printer.print_ticket(reply.value)
    if s_rid is not None and s_rid == r_rid and ckpt == printer.state():  # not processed
        reply = clerk.rereceive()
        printer.print_ticket(reply.value)
    for order in range(int(s_rid or 0) + 1, LAST_ORDER + 1):  # while there's work to do
        clerk.send(str(order), order)
        die_here(f"sent {order}", dies)
        reply = clerk.receive(printer.state())
        die_here(f"received {order}", dies)
        printer.print_ticket(reply.value)
        die_here(f"printed {order}", dies)
    clerk.disconnect()


def die_here(place: str, dies: str) -> None:
    if place == dies:
        os.kill(os.getpid(), signal.SIGKILL)


def one_life(url: str, paper: str, dies: str) -> None:
    """Runs the client in this process."""
    with onceq.open(url) as qm:
        client(qm.clerk("till-7", ORDERS), Printer(Path(paper)), dies)


def sell(order: int, _context: onceq.Context) -> str:
    """The server's side."""
    return f"ticket {order}"


server = onceq.Server([ORDERS.handled_by(sell)])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        paper = Path(directory) / "paper"
        paper.touch()
        with onceq.open(url) as qm:
            qm.declare(ORDERS)
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            try:
                for dies in (*DEATHS, "never"):
                    command = [sys.executable, __file__, url, str(paper), dies]
                    ended = subprocess.run(command, check=False, timeout=60)
                    tickets = Printer(paper).state().decode()
                    print(f"exit code {ended.returncode}, killed: {dies}, tickets: {tickets}")
            finally:
                server.stop()
                serving.join()
        print(paper.read_text(), end="")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one_life(*sys.argv[1:])
    else:
        main()
