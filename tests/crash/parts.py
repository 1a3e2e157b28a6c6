"""What the crash tests share: the judgement as an assertion, kills at work, killed clients.

The servers, and how they are begun again, are those of the proof's harness (proof/harness/fleet).
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onceq
from onceq.history.events import Recorder
from onceq.testing.device import Device
from proof.harness.fleet import order_queue, pid_of
from proof.harness.ledger import Order, Receipt
from proof.harness.orders import RecordedClerk
from proof.harness.processes import say_into

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from onceq.history.events import Event
    from proof.harness.fleet import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    """Who a client process is, and how many requests it is to make. files: where events go."""

    url: str
    repository: str
    files: Path
    name: str
    requests: int

    def events(self, pid: int) -> Path:
        """The file in which a process of it records what it does."""
        return self.files / f"client-{self.name}-{pid}.events"


def shop(customer: Customer) -> None:
    """The client program of BHM90 figure 2, in this process, which its test kills with -9.

    It begins with nothing but its name: what it has sent, received and printed it learns from its
    clerk and its device. The device is testable: its size goes into the checkpoint of each
    receive, so that after a crash the client knows whether the reply was processed (spec C8).
    """
    say_into(customer.files / "said")
    device = Device(customer.files / f"{customer.name}.lines")

    def print_ticket(reply: onceq.Reply[Receipt]) -> None:
        device.output(reply.value.rid)

    with (
        onceq.open(customer.url, repository=customer.repository) as qm,
        Recorder(customer.events(os.getpid())) as recorder,
    ):
        clerk = RecordedClerk(qm.clerk(customer.name, order_queue({})), recorder)
        clerk.connect()
        clerk.process(print_ticket, device)
        for number in range(int(clerk.clerk.last_sent or 0) + 1, customer.requests + 1):
            clerk.send_many([(str(number), Order())])
            clerk.process(print_ticket, device)
        clerk.satisfied()
        clerk.disconnect()
        clerk.clerk.close()


def assert_history(fleet: Fleet, conninfo: str, abort_limit: int | None = 5) -> None:
    """The whole history keeps the guarantees."""
    violations = fleet.violations(conninfo, abort_limit)
    assert not violations, "\n".join([fleet.settings.files, *violations[:20]])


def kill_at_work(
    fleet: Fleet, kills: int, work_ms: int, chance: random.Random, more: Callable[[], None]
) -> None:
    """Kills processes, each while it runs a handler that began after the kill before.

    more: makes three requests or more. It is called for each kill, so that there is work for it,
    however late it comes.
    """
    seen = 0
    for _ in range(kills):
        more()
        found = fleet.wait_executions(seen + 1)
        time.sleep(chance.uniform(0, 1.2 * work_ms / 1000))  # the moment within the work
        fleet.kill(pid_of(found[-1]))
        seen = len(fleet.executions()) + chance.randrange(3)


def report(text: str) -> None:
    """Says a measurement, for `pytest -s`."""
    sys.stdout.write(f"\n{text}\n")


def milliseconds_since(event: Event, then_ns: int) -> float:
    return (event.at - then_ns) / 1e6


def now_ns() -> int:
    """The clock of the events."""
    return time.monotonic_ns()
