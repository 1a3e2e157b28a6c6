"""A client: sends its orders as requests and records each receipt exactly once.

    python -m examples.cdnow.client DIRECTORY NAME

Started, and started again after a kill -9, by the runner. It is given only its name and
its orders: its clerk recovers how far it had come. What makes the output exactly once is
that the length of the receipts file is the checkpoint: lines are written and synced first, then
acknowledged together with that length; a life that finds more in the file than the checkpoint
says cuts it off, and receives those replies again. Source: BHM90 3 (testable devices); spec C6, C8.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

import onceq
from examples.cdnow.data import Order, read_orders
from examples.cdnow.shop import (
    ORDERS,
    REPOSITORY,
    Purchase,
    Receipt,
    Recorded,
    RunDirectory,
    Setup,
)
from examples.cdnow.witness import Witness
from examples.running.lifeline import end_in_order, hold_lifeline
from examples.running.status import say
from onceq import errors
from onceq.history.events import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from examples.cdnow.witness import Clerk

LOOK_S = 0.2
"""How often a client looks for receipts, which come by the thousand, a batch every second or so. A
clerk that waits by itself looks 20 times a second: here that would be a fifth of two processors.
"""
LOSSES_MAX = 40
"""Losses of the repository in a row, with nothing received in between, until it gives up."""
PAUSE_MAX_S = 1.0


class ReceiptsFile:
    """The output of a client: one line a receipt, as long as its checkpoint says.

    Opening it cuts off what was written and never acknowledged.
    """

    def __init__(self, path: Path, checkpoint: bytes | None) -> None:
        self._length = int(checkpoint or b"0")
        path.touch()
        if (found := path.stat().st_size) < self._length:
            raise errors.FileMismatch(
                f"{path} has {found} bytes, and {self._length} were acknowledged: it was damaged"
            )
        self._file = path.open("r+b")
        self._file.truncate(self._length)
        self._file.seek(0)
        self.lines = sum(1 for _ in self._file)

    def append(self, receipts: Iterable[Recorded]) -> bytes:
        """Writes lines, on disk when it returns; returns the checkpoint that includes them."""
        lines = [msgspec.json.encode(one) + b"\n" for one in receipts]
        self._length += self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines += len(lines)
        return str(self._length).encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@dataclasses.dataclass(slots=True)
class Client:
    """A client's name and orders; everything else it learns from its clerk."""

    name: str
    setup: Setup
    orders: Sequence[Order]
    receipts: Path
    recorder: Recorder
    losses: int = 0

    def run(self) -> None:
        """Goes on until every order has its receipt, through every loss of the repository."""
        while True:
            try:
                self._live()
            except errors.OperatingError as error:
                self.losses += 1
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                if self.losses >= LOSSES_MAX:
                    raise
                threading.Event().wait(min(0.05 * self.losses, PAUSE_MAX_S))
            else:
                return

    def _live(self) -> None:
        with (
            onceq.open(self.setup.url, repository=REPOSITORY) as qm,
            qm.clerk(self.name, ORDERS, window=self.setup.window) as clerk,
            ReceiptsFile(self.receipts, clerk.checkpoint) as file,
        ):
            (myself,) = qm.clients(self.name)
            witness = Witness(clerk, self.name, myself.epoch, self.recorder)
            self._converse(clerk, witness, file)

    def _converse(self, clerk: Clerk, witness: Witness, file: ReceiptsFile) -> None:
        """Sends while the window has room, else receives; from where the former life stopped."""
        sent = self._already_sent(clerk.last_sent)
        waiting = len(clerk.outstanding)
        say(ready=True, sent=sent, received=file.lines)
        while sent < len(self.orders) or waiting:
            part = self.orders[sent : sent + self.setup.chunk]
            if part and waiting + len(part) <= self.setup.window:
                witness.send_many([(order.order_id, _request(order)) for order in part])
                sent += len(part)
                waiting += len(part)
            else:
                waiting -= self._receive(witness, file)
            say(sent=sent, received=file.lines)
        witness.satisfied()

    def _already_sent(self, rid: str | None) -> int:
        """How many orders were sent, when `rid` was the last of them."""
        ids = [order.order_id for order in self.orders]
        return 0 if rid is None else ids.index(rid) + 1

    def _receive(self, witness: Witness, file: ReceiptsFile) -> int:
        try:
            replies = witness.receive_many(self.setup.chunk)
        except errors.ReceiveTimeout:
            threading.Event().wait(LOOK_S)
            return 0
        checkpoint = file.append(_recorded(reply) for reply in replies)
        witness.acknowledge([reply.rid for reply in replies], checkpoint)
        self.losses = 0
        return len(replies)


def _request(order: Order) -> Purchase:
    return Purchase(order.order_id, order.customer_id, order.date, order.quantity, order.amount)


def _recorded(reply: onceq.Reply[Receipt]) -> Recorded:
    try:
        return Recorded(reply.rid, reply.value)
    except errors.ReplyError as error:
        return Recorded(reply.rid, failed=f"{error.code}: {error.text}")


def main() -> None:
    directory, name = RunDirectory(Path(sys.argv[1])), sys.argv[2]
    signal.signal(signal.SIGTERM, end_in_order)
    hold_lifeline()
    orders = list(read_orders(directory.orders(name)))
    with Recorder(directory.events / f"{name}.events") as recorder:
        Client(name, directory.read_setup(), orders, directory.receipts(name), recorder).run()


if __name__ == "__main__":
    main()
