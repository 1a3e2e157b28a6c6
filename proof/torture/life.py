"""A life of a participant: what a forked process is told, and what all of them have.

Made by the fleet, sent through the nursery, read by clients, servers and cutters. A value; the
process makes a `Living` of it, with its recorder and its row of the board.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import msgspec

from onceq import Queue
from onceq.clerk.clerk import Clerk
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import locate
from onceq.engine.wake.waiting import Wakes
from onceq.history.events import Recorder
from proof.harness.ledger import Order, Receipt
from proof.torture.board import Board

ABORT_LIMIT: Final = 5
LIMIT_S: Final = 3
"""The execution limit of queues: what is frozen for longer loses its session."""
ORDERS: Final = Queue(
    "orders",
    Order,
    Receipt,
    abort_limit=ABORT_LIMIT,
    backoff_ms=50,
    backoff_max_ms=2000,
    execution_limit_s=LIMIT_S,
)
BULK: Final = Queue(
    "bulk",
    Order,
    Receipt,
    abort_limit=ABORT_LIMIT,
    backoff_ms=50,
    backoff_max_ms=2000,
    execution_limit_s=LIMIT_S,
)
NOTES: Final = Queue(
    "notes",
    Order,
    Receipt,
    abort_limit=ABORT_LIMIT,
    backoff_ms=50,
    backoff_max_ms=2000,
    execution_limit_s=LIMIT_S,
)
SPARK: Final = Queue(
    "spark", Order, Receipt, abort_limit=ABORT_LIMIT, backoff_ms=50, backoff_max_ms=2000
)
LOGS: Final = "logs"
"""Where each server's log is, in the directory of a run."""
QUEUES: Final = {queue.name: queue for queue in (ORDERS, BULK, NOTES, SPARK)}
SPARK_CLIENT: Final = "stream-spark"
"""The client of Spark, whose tasks record no execution."""
SILENCE_S: Final = 1.0
"""How long a client bears that nothing is heard after its deadline: elsewhere it is more."""
BATCH: Final = 25
"""What a crash of PostgreSQL finds claimed runs alone from then on: of larger ones, most of it."""
KILLS: Final = 0.08


class Life(msgspec.Struct, kw_only=True, frozen=True):
    """One life of a participant.

    kind: which program it runs. name: of the participant, lasting; life: counted from 1. row: of
    the board. sockets: a short directory, of a cutter. broken: that its recovery is to be wrong on
    purpose. kills: the share of requests, or of sends of many, that their sender kills at once.
    """

    kind: str
    name: str
    life: int
    row: int
    conninfo: str
    repository: str
    place: str
    seed: int
    queue: str = "orders"
    sockets: str = ""
    broken: bool = False
    kills: float = KILLS

    @property
    def actor(self) -> str:
        """As events name it."""
        return f"{self.kind} {self.name}"


class Living:
    """What a process has while it lives."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.place = Path(life.place)
        self.board = Board(self.place / "board")
        events = self.place / "events" / f"{life.name}-{life.life}.events"
        self.recorder = Recorder(events, life.actor)
        self.chance = random.Random(f"{life.seed} {life.name} {life.life}")
        self.queue = QUEUES[life.queue]

    def link(self) -> Link:
        """Returns a link to the repository, not yet connected."""
        return Link(locate(self.life.conninfo), self.life.repository, wakes=Wakes())

    def clerk(self, link: Link, window: int) -> Clerk[Order, Receipt]:
        """Returns this participant's clerk, not yet connected."""
        return Clerk(link, self.life.name, self.queue, window=window)
