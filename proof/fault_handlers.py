"""Handlers of the servers that meet fault points, or that serve the programs that do.

Used by proof/fault_programs.py.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from onceq.history.events import Executed, Recorder
from proof.harness.ledger import LedgerHandler, Order, Receipt

if TYPE_CHECKING:
    from pathlib import Path

    import onceq

WAIT_S: Final = 20.0
LOOK_S: Final = 0.002


class AsyncLedgerHandler(LedgerHandler):
    """The same, awaited."""

    async def call(self, order: Order, context: onceq.AsyncContext) -> Receipt:
        """Records the execution, and puts down the effect."""
        self._recorder.record(
            Executed(rid=context.rid, eid=str(context.eid), attempt=context.attempt)
        )
        if order.kind == "fail":
            raise ValueError("told to fail")
        arguments = (order.key or context.rid, context.rid, str(context.eid), os.getpid())
        await context.connection.execute(self._insert.encode(), arguments)
        return Receipt(context.rid, os.getpid())


class LateHandler(LedgerHandler):
    """A handler that waits until the client has looked for late requests, so that there is one.

    place: where the client records that, by a file `looked-RID`.
    """

    def __init__(self, recorder: Recorder, repository: str, place: Path) -> None:
        super().__init__(recorder, repository)
        self._place = place

    def before(self, order: Order, context: onceq.Context) -> None:
        """Waits for the client."""
        pause = threading.Event()
        end = time.monotonic() + WAIT_S
        while not (self._place / f"looked-{context.rid}").exists() and time.monotonic() < end:
            pause.wait(LOOK_S)
        super().before(order, context)
