"""A client process for the crash tests: `python client_child.py JSON`; its test kills it with -9.

The client program of BHM90 figure 2. It is started with nothing but its name: what it has sent,
received and printed it learns from its clerk and its device. The device is a file of lines, and
testable: its size goes into the checkpoint of each receive, so that after a crash the client
knows whether the reply was processed (spec C8).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

import onceq
from onceq.history.events import Recorder
from onceq.testing.device import Device
from proof.harness.ledger import Order, Receipt
from proof.harness.orders import RecordedClerk
from tests.crash.server_child import order_queue


class Settings(msgspec.Struct):
    """Who the client is, and how many requests it is to make."""

    url: str
    repository: str
    files: str
    name: str
    requests: int


def client(settings: Settings, clerk: RecordedClerk[Order, Receipt], device: Device) -> None:
    def print_ticket(reply: onceq.Reply[Receipt]) -> None:
        device.output(reply.value.rid)

    clerk.connect()
    clerk.process(print_ticket, device)
    for number in range(int(clerk.clerk.last_sent or 0) + 1, settings.requests + 1):
        clerk.send_many([(str(number), Order())])
        clerk.process(print_ticket, device)
    clerk.satisfied()
    clerk.disconnect()


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    files = Path(settings.files)
    queue = order_queue({})
    with (
        onceq.open(settings.url, repository=settings.repository) as qm,
        Recorder(files / f"client-{settings.name}-{os.getpid()}.events") as recorder,
    ):
        clerk = RecordedClerk(qm.clerk(settings.name, queue), recorder)
        client(settings, clerk, Device(files / f"{settings.name}.lines"))
        clerk.clerk.close()


if __name__ == "__main__":
    main()
