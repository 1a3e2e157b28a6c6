"""The client that is killed: `python -m proof.windows.client JSON`. It knows its name and its plan.

It sends all of its requests, receives their replies in random order, receives some of them again,
and acknowledges them in random order. What it does is a line of its log, before and after each
call, so that whoever reads the log knows what the next life may not contradict.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from typing import TYPE_CHECKING

import msgspec

import onceq

if TYPE_CHECKING:
    from onceq import Clerk, Reply

QUEUE = onceq.Queue("work", bytes, bytes)
NAME = "streamer"
SENT_AT_ONCE = 1000
WAIT_S = 60.0


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What the client is to do. requests: rids are their numbers. keep: of the clerk."""

    conninfo: str
    log: str
    seed: int
    requests: int
    keep: int


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line of the log: what was done, with which rids; digest: of a reply, with its eid."""

    what: str
    rids: list[str] = []
    digest: str = ""


class Life:
    """One life of the client."""

    def __init__(self, plan: Plan, clerk: Clerk[bytes, bytes]) -> None:
        self._plan = plan
        self._clerk = clerk
        self._chance = random.Random(plan.seed)
        self._log = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _say(self, what: str, rids: list[str], digest: str = "") -> None:
        os.write(self._log, msgspec.json.encode(Line(what=what, rids=rids, digest=digest)) + b"\n")

    def run(self) -> None:
        """Does what is left of the plan."""
        clerk = self._clerk
        self._say("connected", clerk.outstanding + clerk.unacknowledged)
        self._send()
        while clerk.outstanding or clerk.unacknowledged:
            received = len(clerk.unacknowledged)
            if clerk.outstanding and self._chance.random() < 0.8:
                self._receive()
            elif received and self._chance.random() < 0.3:
                self._hand("again", clerk.rereceive(self._chance.choice(clerk.unacknowledged)))
            elif received:
                self._acknowledge(self._chance.randint(1, min(received, 50)))
        clerk.disconnect()
        self._say("ended", [])

    def _send(self) -> None:
        last = -1 if self._clerk.last_sent is None else int(self._clerk.last_sent)
        rids = [str(n) for n in range(last + 1, self._plan.requests)]
        while rids:
            some = rids[: self._chance.randint(1, SENT_AT_ONCE)]
            rids = rids[len(some) :]
            self._clerk.send_many([(rid, rid.encode()) for rid in some])
            self._say("sent", some)

    def _receive(self) -> None:
        """One by its rid, wherever it stands among the others, or some that wait."""
        if self._chance.random() < 0.7:
            rid = self._chance.choice(self._clerk.outstanding)
            self._hand("received", self._clerk.receive(rid=rid, timeout_s=WAIT_S))
        else:
            for reply in self._clerk.receive_many(self._chance.randint(1, 20), timeout_s=WAIT_S):
                self._hand("received", reply)

    def _hand(self, what: str, reply: Reply[bytes]) -> None:
        digest = hashlib.sha256(f"{reply.rid} {reply.eid} {reply.value!r}".encode()).hexdigest()
        self._say(what, [reply.rid], digest)

    def _acknowledge(self, count: int) -> None:
        rids = self._chance.sample(self._clerk.unacknowledged, count)
        self._say("acknowledges", rids)
        self._clerk.acknowledge(rids)
        self._say("acknowledged", rids)
        if self._plan.keep:
            self._hand("again", self._clerk.rereceive(rids[-1]))


def main() -> None:
    """Live, until the plan is done or somebody kills this process."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    window = max(1, plan.requests)
    with (
        onceq.open(plan.conninfo) as qm,
        qm.clerk(NAME, QUEUE, window=window, keep=plan.keep) as clerk,
    ):
        Life(plan, clerk).run()


if __name__ == "__main__":
    main()
