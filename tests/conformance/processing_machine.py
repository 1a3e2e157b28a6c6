"""The machine of test_oracle with what clients do with replies (spec C15), and who is forgotten."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from onceq.model import admin_ops, ops
from tests.conformance.machine import NAMES, PICK, RIDS, SERVERS, OracleMachine


class ProcessingMachine(OracleMachine):
    """The same, and replies that are received in a transaction."""

    @rule(at=SERVERS, pick=PICK, rid=RIDS, ends=st.integers(0, 5))
    def process_in_transaction(self, at: int, pick: int, rid: str, ends: int) -> None:
        """A reply is begun, taken in a transaction that is open, and settled; or not all of it."""
        client = self.client(pick)
        if client is None:
            return
        reply: dict[str, Any] = {"rid": rid, **client["last"], **client["who"]}
        if ends != 0:
            self.give(ops.BeginReply, **reply)
        xid = None
        if ends > 1 and self.servers[at].is_inside:
            xid = self.heard(self.give(ops.TakeReply, self.servers[at], ckpt=b"t", **reply))
        if ends > 2:
            self.give(ops.SettleReply, xid=xid, counts=ends > 3, **reply)
        self.give(ops.LookUp, rid=rid)

    @rule(name=NAMES, pick=PICK, thread=st.sampled_from([None, "", "t"]))
    def forget(self, name: str, pick: int, thread: str | None) -> None:
        self.give(admin_ops.ListClients)
        self.give(admin_ops.ForgetClient, name=name, thread=thread, forced=pick % 3 == 0)
        self.give(admin_ops.ListClients, name=name)
        self.give(admin_ops.MeasureRates, over_s=0.5)
