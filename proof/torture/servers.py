"""The servers: single ones and batch ones, whose handler writes down each execution and effect.

Run by the nursery, a process each. They survive the loss of their sessions by themselves; killed,
they are begun again. What a server concludes from a lost answer to a commit is nothing: the doubt
is written down, and the history must show what became of it.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from onceq import Server
from onceq.errors import InDoubt, OperatingError
from onceq.history.events import Aborted, Doubted, Fault, Returned
from onceq.server.lives import UNMENDABLE
from onceq.telemetry import BatchUndone, SessionLost
from proof.harness.ledger import LedgerHandler, Order, Receipt, is_together
from proof.torture import hot
from proof.torture.board import Count
from proof.torture.evidence import UNDONE, limited, undone
from proof.torture.life import BATCH, BULK, LOGS, NOTES, ORDERS, Living

if TYPE_CHECKING:
    from onceq import Context
    from onceq.model.queue import Handled
    from proof.torture.life import Life

PAUSE_S: Final = 0.05
STOP_TIMEOUT_S: Final = 5.0
DEADLY: Final = frozenset({"poison", "sudden"})
POISON: Final = "poison request"
LIMITED: Final = "execution limit"
LIMITS: Final = ("transaction timeout", "idle-in-transaction timeout")
"""What PostgreSQL says to a session that it ends by its limit."""


def single_server(life: Life) -> None:
    """A server of one request at a time; every third has two sessions."""
    handler = _Handler(Living(life), 1)
    handled = [ORDERS.handled_by(handler), NOTES.handled_by(handler)]
    _serve(life, handler, handled, concurrency=2 if life.row % 3 == 0 else 1)


def batch_server(life: Life) -> None:
    """A server of many requests in one transaction."""
    handler = _Handler(Living(life), BATCH)
    _serve(life, handler, [BULK.handled_by(handler, batch=BATCH)], concurrency=1)


def _serve(
    life: Life, handler: _Handler, handled: list[Handled[Any, Any]], *, concurrency: int
) -> None:
    log = logging.getLogger("onceq.server")
    log.addHandler(_Doubts(handler))
    log.addHandler(_said_by(handler.living))
    log.propagate = False  # that sessions are lost is what happens here
    log.setLevel(logging.INFO)  # so is that batches come to nothing
    server = Server(handled, concurrency=concurrency, stop_timeout_s=STOP_TIMEOUT_S)
    with server.signals():
        while True:  # until it has served, and was asked to stop
            try:
                server.run(life.conninfo, repository=life.repository)
            except UNMENDABLE:
                raise
            except OperatingError:  # PostgreSQL is down just now
                time.sleep(PAUSE_S)
            else:
                return


def _said_by(living: Living) -> logging.Handler:
    """Returns what keeps a server's log, for whoever asks afterwards why it executed again."""
    kept = logging.FileHandler(living.place / LOGS / f"{living.life.name}.log")
    kept.setFormatter(logging.Formatter("%(created).6f %(process)d %(levelname)s %(message)s"))
    return kept


class _Handler(LedgerHandler):
    """The ledger's handler, counted. latest: the eids that may be in doubt.

    What is executed ends in the history too, so that what became of it needs evidence of its own.
    """

    def __init__(self, living: Living, batch: int) -> None:
        super().__init__(living.recorder, living.life.repository)
        self.living = living
        self.latest: deque[str] = deque(maxlen=batch)
        self._add = hot.addition(living.life.repository)

    def __call__(self, order: Order, context: Context) -> Receipt:
        self.latest.append(str(context.eid))
        self.living.board.add(self.living.life.row, Count.EXECUTED)
        if order.kind in DEADLY:  # this process dies of it, if nothing else comes first
            self._die()
        try:
            receipt = super().__call__(order, context)
        except Exception as error:
            excused = not isinstance(error, ValueError) or is_together(context)  # `fail` raises it
            self.living.recorder.record(
                Aborted(
                    rid=context.rid,
                    eid=str(context.eid),
                    code=type(error).__name__,
                    excused=excused,
                )
            )
            raise
        returned = Returned(rid=context.rid, eid=str(context.eid), pid=os.getpid())
        self.living.recorder.record(returned)
        return receipt

    def called(self, first: str) -> list[str]:
        """Returns the eids of a batch, from its first on: the latest, as it has one session."""
        latest = [*self.latest]
        if first not in latest:
            return []
        return latest[len(latest) - 1 - latest[::-1].index(first) :]

    def before(self, order: Order, context: Context) -> None:
        """Adds to a hot row too, if it is one of those that do."""
        super().before(order, context)
        eid = str(context.eid)
        if hot.adds(eid):
            context.connection.execute(self._add, (hot.account(eid),))

    def _die(self) -> None:
        living = self.living
        living.board.add(living.life.row, Count.POISONED)
        name = living.life.name
        living.recorder.record(Fault(what=POISON, target=name, struck=(name,)))


LOST_IN_DOUBT: Final = (SessionLost.name(), InDoubt.__name__)


class _Doubts(logging.Handler):
    """Writes down that a session was lost by its limit, or while its commit was under way.

    And that a batch came to nothing: no fault that touches a server, but why it executes again.
    """

    def __init__(self, handler: _Handler) -> None:
        super().__init__()
        self._handler = handler

    def emit(self, record: logging.LogRecord) -> None:
        """Looks at the error that ended a session."""
        event: dict[str, Any] = getattr(record, "onceq", {})
        if event.get("event") == BatchUndone.name():
            struck = tuple(
                undone(os.getpid(), eid) for eid in self._handler.called(str(event["eid"]))
            )
            fault = Fault(what=UNDONE, target="client", struck=struck)
            self._handler.living.recorder.record(fault)
        lost = event.get("event") == SessionLost.name()
        if lost and any(one in str(event.get("error", "")) for one in LIMITS):
            name, struck = self._handler.living.life.name, (limited(os.getpid()),)
            self._handler.living.recorder.record(Fault(what=LIMITED, target=name, struck=struck))
        if (event.get("event"), event.get("code")) == LOST_IN_DOUBT:
            living = self._handler.living
            living.board.add(living.life.row, Count.DOUBTS)
            living.recorder.record(Doubted(what="finish", eids=tuple(self._handler.latest)))
