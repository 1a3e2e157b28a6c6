"""A process of clients at one desk: each in a thread, one request at a time, on two connections.

Run by the nursery, and killed at any moment, with all of its clients. What they have sent and
received they learn from their clerks.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from onceq import ClientState
from onceq.clerk.clerk import Clerk
from onceq.engine.desk.desk import Desk
from onceq.engine.desk.seat import Seat
from onceq.engine.embedded.locate import locate
from onceq.history.events import Recorder
from proof.harness.ledger import Order, Receipt
from proof.harness.orders import RecordedClerk
from proof.torture.board import Count
from proof.torture.clients import KILL_TIMEOUT_S, ODD, TIMEOUT_S, before_kill_s, order, persist
from proof.torture.life import Living

if TYPE_CHECKING:
    from proof.torture.life import Life

SEATS: Final = 8
CONNECTIONS: Final = 2


def desk_clients(life: Life) -> None:
    """Lets clients share a desk until the end."""
    living = Living(life)
    desk = Desk(locate(life.conninfo), life.repository, CONNECTIONS)
    counting = threading.Lock()
    with ThreadPoolExecutor(SEATS) as threads:
        seats = [_AtDesk(living, desk, counting, number) for number in range(SEATS)]
        for done in [threads.submit(one.live) for one in seats]:
            done.result()
    desk.close()


class _AtDesk:
    """One of them. number: of its requests in this process, so that no rid is used again."""

    def __init__(self, living: Living, desk: Desk, counting: threading.Lock, seat: int) -> None:
        self._living = living
        self._desk = desk
        self._counting = counting
        life = living.life
        self._name = f"{life.name}.{seat}"
        self._chance = random.Random(f"{life.seed} {self._name} {life.life}")
        events = living.place / "events" / f"{self._name}-{life.life}.events"
        clerk: Clerk[Order, Receipt] = Clerk(Seat(desk, self._name), self._name, living.queue)
        self._clerk = RecordedClerk(
            clerk, Recorder(events, f"client {self._name}"), limit_s=TIMEOUT_S
        )
        self._number = 0

    def live(self) -> None:
        """Asks for one thing after another, whatever fails."""
        persist(self._living, self._converse)

    def _converse(self) -> None:
        self._desk.connect(TIMEOUT_S)
        self._clerk.connect()
        if self._clerk.clerk.state is ClientState.REQ_SENT:
            self._receive()
        while not self._living.board.is_ending:
            self._ask()
        self._clerk.satisfied()
        self._clerk.disconnect()

    def _ask(self) -> None:
        life, chance = self._living.life, self._chance
        self._number += 1
        rid = f"{self._name}.{life.life}.{self._number}"
        cancels = chance.random() < life.kills
        wanted = order(chance, ODD, rid)
        sent = self._clerk.send_many([(rid, wanted)], expects=None if cancels else "done")
        self._count(Count.ACKNOWLEDGED)
        if cancels:
            time.sleep(before_kill_s(chance))
            self._clerk.cancel_last_request(str(sent[0].eid), timeout_s=KILL_TIMEOUT_S)
        self._receive()

    def _receive(self) -> None:
        self._clerk.receive(timeout_s=TIMEOUT_S)
        self._count(Count.REPLIES)

    def _count(self, what: Count) -> None:
        with self._counting:
            self._living.board.add(self._living.life.row, what)
