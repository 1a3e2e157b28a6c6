"""The clients: careful ones, with a testable device, and streaming ones, with many outstanding.

Run by the nursery, one process each, and killed at any moment. They are told only
their name: what they have sent, received and printed they learn from their clerk and their device.
After any failure they connect again. The program of BHM90 figure 2.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, TypeAlias

from onceq import ClientState
from onceq.errors import OperatingError, Outcome
from onceq.history.events import KillAnswered, KillBegun, KillFailed
from onceq.model.ops import Kill
from onceq.server.lives import UNMENDABLE
from onceq.testing.device import Device
from proof.harness.ledger import Order, Receipt
from proof.harness.orders import RecordedClerk
from proof.torture.board import Count
from proof.torture.life import Living

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from onceq.engine.connect.connection import Link
    from proof.torture.life import Life

TIMEOUT_S: Final = 1.5
"""The time-out of calls that have one; a silent link is given up then or soon after (SILENCE_S)."""
SPARK_TIMEOUT_S: Final = 5.0
KILL_TIMEOUT_S: Final = 1.0
AT_ONCE: Final = {"bulk": 100, "spark": 40}
"""How many are sent in one transaction, while no more than twice as many are outstanding.

Of those that a query of Spark had begun when it died, each is run alone.
"""
WINDOW: Final = 400
DISCONNECTS: Final = 0.01
Odd: TypeAlias = tuple[tuple[str, float], ...]
ODD: Final[Odd] = (("fail", 0.006), ("poison", 0.0006), ("sudden", 0.0002))
"""Which share of the careful clients' orders must not succeed."""
ODD_IN_BULK: Final[Odd] = (("fail", 0.004), ("poison", 0.00006), ("sudden", 0.00002))
WORK: Final = 0.1
WORK_IN_BULK: Final = 0.005
"""The share of orders that take some milliseconds."""
PAUSE_S: Final = 0.05


def order(chance: random.Random, odd: Odd, key: str) -> Order:
    """Returns an order, nearly always to book, sometimes with work to do."""
    kinds, shares = [name for name, _ in odd], [share for _, share in odd]
    kind = chance.choices(["book", *kinds], [1 - sum(shares), *shares])[0]
    works = chance.random() < (WORK if odd is ODD else WORK_IN_BULK)
    return Order(kind, chance.uniform(1, 8) if works else 0, key)


def before_kill_s(chance: random.Random) -> float:
    """Returns how long a client waits before it kills: a server may begin at once, or when it can.

    From 0.1 ms to 0.2 s, as often in each order of magnitude: on an idle machine what is sent is
    executed within milliseconds, on one that is tortured often much later.
    """
    return 10 ** chance.uniform(-4, -0.7)


def persist(living: Living, work: Callable[[], None]) -> None:
    """Works, and after each failure of the environment begins again, until the work is done."""
    while True:  # until it is done, or this process is killed
        try:
            work()
        except UNMENDABLE:
            raise
        except OperatingError as error:
            if error.outcome is Outcome.UNKNOWN:
                living.board.add(living.life.row, Count.DOUBTS)
            time.sleep(living.chance.uniform(0, PAUSE_S))
        else:
            return


def clerk_client(life: Life) -> None:
    """A careful client: one request at a time, each reply printed exactly once."""
    _Careful(life).live()


class _Careful:
    """A careful client. number: of its requests in this process, so that no rid is used again."""

    def __init__(self, life: Life) -> None:
        self._living = Living(life)
        self._clerk: RecordedClerk[Order, Receipt] = RecordedClerk(
            self._living.clerk(self._living.link(), 1), self._living.recorder, limit_s=TIMEOUT_S
        )
        self._device = Device(self._living.place / "lines" / life.name)
        self._number = 0
        self._again: Order | None = None

    def live(self) -> None:
        persist(self._living, self._converse)

    def _converse(self) -> None:
        self._clerk.connect()
        clerk = self._clerk.clerk
        if clerk.state is ClientState.REQ_SENT:
            self._process_reply()
        elif clerk.last_sent is not None and clerk.checkpoint == self._device.state():
            self._device.output(self._clerk.rereceive().rid)
        while not self._living.board.is_ending:
            self._ask()
            if self._living.chance.random() < DISCONNECTS:
                self._part()
                self._clerk.connect()
        self._part()

    def _part(self) -> None:
        self._clerk.satisfied()
        self._clerk.disconnect()

    def _ask(self) -> None:
        chance, life = self._living.chance, self._living.life
        self._number += 1
        rid = f"{life.name}.{life.life}.{self._number}"
        cancels = chance.random() < life.kills
        wanted, self._again = self._again or order(chance, ODD, rid), None
        if life.broken:  # a clerk that orders again whenever it does not know
            self._again = wanted
        sent = self._clerk.send_many([(rid, wanted)], expects=None if cancels else "done")
        self._again = None
        self._living.board.add(life.row, Count.ACKNOWLEDGED)
        if cancels:
            time.sleep(before_kill_s(chance))
            self._clerk.cancel_last_request(str(sent[0].eid), timeout_s=KILL_TIMEOUT_S)
        self._process_reply()

    def _process_reply(self) -> None:
        reply = self._clerk.receive(self._device.state(), timeout_s=TIMEOUT_S)
        self._device.output(reply.rid)
        self._living.board.add(self._living.life.row, Count.REPLIES)


def stream_client(life: Life) -> None:
    """A streaming client: sends many at once, and resends under the same rids what did not go."""
    _Streaming(life).live()


class _Streaming:
    """A streaming client. Its rids are numbered, and what it orders follows from the number."""

    def __init__(self, life: Life) -> None:
        self._living = Living(life)
        self._link: Link = self._living.link()
        self._clerk: RecordedClerk[Order, Receipt] = RecordedClerk(
            self._living.clerk(self._link, WINDOW),
            self._living.recorder,
            alone=False,
            limit_s=TIMEOUT_S,
        )
        self._timeout_s = SPARK_TIMEOUT_S if life.queue == "spark" else TIMEOUT_S
        self._at_once = AT_ONCE[life.queue]

    def live(self) -> None:
        persist(self._living, self._converse)

    def _converse(self) -> None:
        self._clerk.connect()
        clerk = self._clerk.clerk
        number = int((clerk.last_sent or "0").rpartition(".")[2])
        while True:  # until the end is near and nothing is outstanding
            kept = len(clerk.unacknowledged)
            if kept >= self._at_once or (kept and not clerk.outstanding):
                self._clerk.acknowledge(clerk.unacknowledged)
            elif not self._living.board.is_ending and len(clerk.outstanding) <= 2 * self._at_once:
                self._send(number)
                number += self._at_once
            elif clerk.outstanding:
                replies = self._clerk.receive_many(self._at_once, timeout_s=self._timeout_s)
                self._living.board.add(self._living.life.row, Count.REPLIES, len(replies))
            else:
                break
        self._clerk.satisfied()
        self._clerk.disconnect()

    def _send(self, last: int) -> None:
        life, chance = self._living.life, self._living.chance
        requests: list[tuple[str, Order]] = []
        for number in range(last + 1, last + 1 + self._at_once):
            rid = f"{life.name}.{number}"
            odd = ODD_IN_BULK if life.queue == "bulk" else ()
            own = random.Random(f"{life.seed} {rid}")  # a seeded schedule, no secret
            requests.append((rid, order(own, odd, rid)))
        kills = life.queue == "bulk" and chance.random() < life.kills
        sent = self._clerk.send_many(requests, expects=None if kills else "done")
        self._living.board.add(life.row, Count.ACKNOWLEDGED, len(sent))
        if kills:
            index = chance.randrange(self._at_once)
            self._kill(requests[index][0], sent[index].eid)

    def _kill(self, rid: str, eid: UUID) -> None:
        record = self._living.recorder.record
        record(KillBegun(rid=rid, eid=str(eid)))
        try:
            answer = self._link.perform(Kill(eid=eid, timeout_s=KILL_TIMEOUT_S))
        except OperatingError as error:
            unknown = error.outcome is Outcome.UNKNOWN
            record(KillFailed(rid=rid, eid=str(eid), unknown=unknown))
            raise
        record(KillAnswered(rid=rid, eid=str(eid), answer=answer.value))
