"""A repository in which everything has happened that may: what an audit must find nothing in."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Final
from uuid import UUID

import psycopg

import onceq
from onceq import errors
from proof.audit.plants import Of
from proof.harness.ledger import ask
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

EACH: Final = 2
ORDERS: Final = onceq.Queue("orders", bytes, bytes, abort_limit=2, backoff_ms=1)
RIDS: Final = {
    Of.DONE: [
        "good-1",
        "good-d1",
        "good-d5",
        "good-t1",
        "good-w1",
        "good-w2",
        "good-w3",
        "good-w6",
        "good-w7",
    ],
    Of.CHARGED: ["flaky-d3"],
    Of.REPLIED: ["good-w0", "good-w4", "good-w5"],
    Of.LAST: ["good-5"],
    Of.TOLD: ["good-6"],
    Of.HELD: ["bad-3", "bad-d4"],
    Of.REJECTED: ["rejected-4"],
    Of.REDRIVEN: ["bad-w8"],
    Of.KILLED: ["good-k1"],
}
"""What a violation may be planted at."""


class Ground:
    """The repository. eids: of the requests, by rid."""

    def __init__(self, url: str, qm: onceq.QueueManager) -> None:
        self.url = url
        self.qm = qm
        self.name = qm.repository
        self.eids: dict[str, UUID] = {}
        self.do("create table {r}.booked (eid uuid, key text, xid text, rid text)")

    def do(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Performs a statement; {r} stands for the repository."""
        return ask(self.url, query.replace("{r}", self.name), *values)

    def count(self, table: str) -> int:
        """Returns how many rows a table of the repository has."""
        ((rows,),) = ask(self.url, f"select count(*) from {self.name}.{table}")
        return int(rows)

    def handle(self, request: bytes, context: onceq.Context) -> bytes:
        """Fails what is bad, rejects what is to be rejected, and books what is good."""
        if request == b"bad" or (request == b"flaky" and context.attempt == 1):
            raise ValueError("it is bad")
        if request == b"rejected":
            raise onceq.Reject("it is not wanted")
        for key in ("booked", "billed"):
            insert = f"insert into {self.name}.booked values (%s, %s, pg_current_xact_id(), %s)"
            context.connection.execute(insert.encode(), (context.eid, key, context.rid))
        return request

    def send(self, clerk: onceq.Clerk[bytes, bytes], *rids: str) -> None:
        """Sends requests; the body is the rid without its number."""
        for rid in rids:
            self.eids[rid] = clerk.send(rid, rid.rpartition("-")[0].encode()).eid

    def ended(self, *rids: str) -> bool:
        """Whether all have ended."""
        query = "select count(distinct rid) from {r}.history where rid = any(%s)"
        return self.do(query, list(rids)) == [(len(rids),)]

    @contextlib.contextmanager
    def served(self) -> Generator[None]:
        """Runs a server."""
        with serving(self.url, self.name, ORDERS.handled_by(self.handle)):
            yield


def live(ground: Ground) -> None:
    """Lets it all happen."""
    qm = ground.qm
    qm.declare(ORDERS)
    with qm.clerk("killed", ORDERS, window=4) as clerk:
        ground.send(clerk, "good-k1", "good-k2")
        for rid in ("good-k1", "good-k2"):
            assert qm.kill(ground.eids[rid]) is onceq.KillAnswer.KILLED
        clerk.send("good-k3", b"good", expires_at=dt.datetime.now(dt.UTC))
        clerk.receive(rid="good-k3", timeout_s=60)
    with ground.served():
        _one_after_the_other(ground)
        _several_at_a_time(ground)
        _datagrams(ground)
        _processed(ground)
    with qm.clerk("waits", ORDERS) as clerk:
        ground.send(clerk, "good-q1")


def _one_after_the_other(ground: Ground) -> None:
    with ground.qm.clerk("till", ORDERS) as clerk:
        for rid in ("good-1", "flaky-2", "bad-3", "rejected-4", "good-5"):
            ground.send(clerk, rid)
            clerk.receive(timeout_s=60)
    with ground.qm.clerk("leaver", ORDERS) as clerk:
        ground.send(clerk, "good-6")
        clerk.receive(timeout_s=60)
        clerk.disconnect()


def _several_at_a_time(ground: Ground) -> None:
    qm, rids = ground.qm, [f"good-w{n}" for n in range(8)]
    with qm.clerk("bulk", ORDERS, window=11, thread="t2") as clerk:
        ground.send(clerk, *rids, "bad-w8", "bad-w9", "bad-w10")
        for rid in rids:
            clerk.receive(rid=rid, timeout_s=60)
        clerk.acknowledge([rids[n] for n in (1, 2, 3, 6, 7)], checkpoint=b"so far")
        wait_until(lambda: ground.ended("bad-w8", "bad-w9", "bad-w10"))
    for rid in ("bad-w8", "bad-w9"):
        found = qm.redrive(ground.eids[rid])
        assert found is not None
        ground.eids[f"{rid} again"] = found[0]
    again = [str(ground.eids[f"{rid} again"]) for rid in ("bad-w8", "bad-w9")]
    wait_until(lambda: ground.ended(*again))


def _datagrams(ground: Ground) -> None:
    qm = ground.qm
    for rid in ("good-d1", "bad-d2", "flaky-d3", "bad-d4"):
        ground.eids[rid] = qm.enqueue(ORDERS, rid.rpartition("-")[0].encode(), rid=rid)
    wait_until(lambda: ground.ended("good-d1", "bad-d2", "flaky-d3", "bad-d4"))
    assert qm.redrive(ground.eids["bad-d2"]) is not None
    wait_until(lambda: ground.do("select count(*) from {r}.history where rid = 'bad-d2'") == [(2,)])
    named = qm.enqueue(ORDERS, b"good", rid="good-d5", correlation_id=str(ground.eids["bad-w10"]))
    wait_until(lambda: ground.ended("good-d5"))
    ground.eids["good-d5"] = named


def _processed(ground: Ground) -> None:
    """A reply whose processing fails until it is held."""
    with ground.qm.clerk("taker", ORDERS) as clerk, psycopg.connect(ground.url) as own:
        ground.send(clerk, "good-t1")
        with contextlib.suppress(errors.ReplyHeld):
            while True:
                clerk.receive(connection=own, timeout_s=60)
                own.rollback()
