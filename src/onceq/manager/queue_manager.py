"""QueueManager's operations, on connections of their own.

Made by `onceq.open`. Each method performs one Op or runs one Program;
`AsyncQueueOperations` has the same methods, awaited. Source: BHM90 4; spec Q1 to Q6.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from onceq.engine import silence
from onceq.engine.connection import Link
from onceq.engine.driver import this_process
from onceq.engine.identity import own_identity
from onceq.engine.links import Links
from onceq.engine.unwrap import Callers
from onceq.engine.waiting import Pause
from onceq.errors import IllegalState, OnceqError, OperatingError
from onceq.manager import program
from onceq.manager.registrations import RegistrationOperations
from onceq.manager.taken_over import tell_taken
from onceq.model import admin_ops, names, ops
from onceq.model.queue import Queue, QueueInfo

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack
    from uuid import UUID

    from onceq.engine.driver import PostgresDriver
    from onceq.engine.locate import Located
    from onceq.model.element import (
        Attempt,
        Element,
        EnqueueAttributes,
        KillAnswer,
        OldRequest,
        RequestState,
        Search,
    )

T = TypeVar("T")


class QueueOperations(RegistrationOperations):
    """The operations on a repository, for any number of threads: see `onceq.engine.links`."""

    def __init__(self, located: Located, repository: str) -> None:
        self.located = located
        self.repository = names.check_repository(repository)
        self._link = Links(located, repository)
        self._callers = Callers(repository)
        self._life_link = Link(located, repository)
        self._life_turn = threading.Lock()
        self._closed = threading.Event()
        self._process = uuid.uuid4()
        self._incarnation: ops.Incarnation | None = None
        self._taken: list[program.Taken] = []
        self._turn = 0

    def connect(self, *, timeout_s: float | None = None) -> Self:
        """Connects, or connects again after a loss. CannotConnect, SchemaMissing, SchemaTooNew.

        timeout_s: when to give up; at least 2 s for a host that is silent.
        """
        self._link.connect(names.check_timeout(timeout_s))
        return self

    # --- queues -----------------------------------------------------------------------------

    def declare(self, queue: Queue[Any, Any]) -> bool:
        """Creates the queue if it does not exist; returns whether it did. SettingsDiffer."""
        return self._link.run(program.declare(queue))

    def create(self, queue: Queue[Any, Any]) -> bool:
        """Creates the queue; False if one of that name exists, whatever its settings."""
        return self._link.perform(program.create_op(queue))

    def alter(self, change: ops.AlterQueue) -> None:
        """Changes settings of a queue, or starts or stops it. QueueNotFound."""
        self._link.perform(program.checked_change(change))

    def start(self, queue: str, *, enqueue: bool = True, dequeue: bool = True) -> None:
        """Starts a queue for enqueue, for dequeue, or both. QueueNotFound."""
        self._link.perform(program.start_op(queue, enqueue=enqueue, dequeue=dequeue, to=True))

    def stop(self, queue: str, *, enqueue: bool = True, dequeue: bool = True) -> None:
        """Stops a queue for enqueue, for dequeue, or both; replies are never refused."""
        self._link.perform(program.start_op(queue, enqueue=enqueue, dequeue=dequeue, to=False))

    def show(self, queue: str) -> QueueInfo:
        """Returns a queue as it is now. QueueNotFound."""
        return self._link.run(program.show(queue))

    def queues(self) -> list[QueueInfo]:
        """Returns all queues, by name."""
        return self._link.perform(ops.ListQueues())

    def rates(self, over_s: float = 60.0) -> admin_ops.Rates:
        """Returns how many requests a minute each queue finished during the last over_s seconds."""
        return self._link.perform(program.rates_op(over_s))

    def destroy(self, queue: str) -> None:
        """Destroys an empty queue. QueueNotFound, QueueNotEmpty."""
        self._link.perform(ops.DestroyQueue(queue=names.check_queue(queue)))

    # --- elements ---------------------------------------------------------------------------

    def enqueue(
        self,
        queue: Queue[T, Any],
        request: T,
        *,
        connection: Any = None,
        **attributes: Unpack[EnqueueAttributes],
    ) -> UUID:
        """Enqueues a request that wants no reply; returns its eid.

        Outside any transaction it is durable when this returns. With `connection` (psycopg's,
        SQLAlchemy's or Django's) it joins the transaction there. attributes: see
        EnqueueAttributes. Raises QueueNotFound, QueueStopped, TooLarge, InvalidValue; with
        `connection` also IllegalState, ConnectionLost: nothing happened.
        """
        op = program.enqueue_op(queue, request, attributes, own_transaction=connection is None)
        return self._on(connection).perform(op)

    def enqueue_many(self, queue: Queue[T, Any], requests: list[T]) -> list[UUID]:
        """Enqueues many requests that want no reply, in one transaction."""
        return self._link.perform(program.enqueue_many_op(queue, requests))

    def dequeue(
        self,
        queue: str,
        *,
        eid: UUID | None = None,
        timeout_s: float | None = 0.0,
        connection: Any = None,
    ) -> Element | None:
        """Dequeues the next element, or the one with this eid; None when none came in time.

        timeout_s: 0 does not wait, None waits for ever. Outside any transaction the element is
        gone when this returns, and must owe no reply. With `connection` it leaves the queue
        when, and only if, the transaction there commits; rolled back, an abort is counted; a
        kill meanwhile makes that commit fail. Whoever waits sleeps until it is rung; but one that
        waits with `eid` or `connection` looks 20 times a second: a ring wakes one, and would be
        lost on who wants another element, or is not known to wait. Raises QueueNotFound,
        IllegalState.
        """
        names.check_queue(queue)
        timeout_s = names.check_timeout(timeout_s)
        if eid is not None:
            names.check_eid(eid)
        if connection is None:
            op = ops.Dequeue(queue=queue, eid=eid)
            return self._link.run(program.dequeue(op, timeout_s), timeout_s)
        on = self._caller(connection)
        pause, first = Pause(), True
        patience = silence.waiting(timeout_s)
        while (taken := self._take(on, queue, eid, patience)) is None:
            if not self._wait(ops.Wait(key="claim", first=first, timeout_s=timeout_s), pause):
                return None
            first = False
        return taken

    def _wait(self, op: ops.Wait, pause: Pause) -> bool:
        """Waits a little, or until this is closed; False when the deadline has passed."""
        delay_s = pause.next(op, time.monotonic())
        if delay_s is not None:
            self._closed.wait(delay_s)
        return delay_s is not None

    def _take(
        self,
        on: PostgresDriver,
        queue: str,
        eid: UUID | None,
        patience: silence.Patience | None,
    ) -> Element | None:
        """Claims an element and takes it in the caller's transaction; None if there is none now."""
        with self._life_turn, self._life_link.bounded(patience):
            life = self._live()
            self._settle_taken()
            self._turn = 1 - self._turn  # due elements first, or fresh ones
            claim = program.claim(life.incarnation, queue, eid=eid, turn=self._turn)
            element = self._life_link.run(claim)
            if element is None:
                return None
            take = ops.Take(seq=element.seq, incarnation=life.incarnation)
            try:
                xid = on.perform(take)
            except OnceqError:
                self._life_link.perform(program.give_back(take))
                raise
            self._taken.append(program.Taken(element.seq, xid))
        return element

    def reply(self, connection: Any, element: Element, body: bytes) -> None:
        """Gives the reply to an element that was dequeued in the transaction on `connection`."""
        if self._incarnation is None:
            raise IllegalState("nothing was dequeued in a transaction by this queue manager")
        self._on(connection).perform(
            ops.ReplyTaken(
                seq=element.seq,
                incarnation=self._incarnation.incarnation,
                reply=names.check_bytes("reply", body),
            )
        )

    def read(self, eid: UUID) -> Element | None:
        """Reads an element wherever it is, without dequeuing it; None if no queue holds it."""
        return self._link.perform(ops.ReadElement(eid=names.check_eid(eid)))

    def kill(self, eid: UUID, *, timeout_s: float = 10.0) -> KillAnswer:
        """Kills an element, queued or running (G8). DeadlineExceeded: nothing happened."""
        return self._link.perform(program.kill_op(eid, timeout_s), timeout_s)

    def redrive(self, eid: UUID) -> tuple[UUID, str] | None:
        """Runs a failed request again (G3); returns its new (eid, rid); None if it is not held."""
        return self._link.perform(ops.Redrive(eid=names.check_eid(eid)))

    def lookup(
        self,
        rid: str | None = None,
        *,
        eid: UUID | None = None,
        registrant: str | None = None,
        state: str | None = None,
        queue: str | None = None,
        limit: int = 100,
    ) -> list[RequestState]:
        """Returns every place where requests are or were, the latest first (C9, C10)."""
        return self._link.perform(
            program.lookup_op(
                rid=rid, eid=eid, registrant=registrant, state=state, queue=queue, limit=limit
            )
        )

    def find(self, **search: Unpack[Search]) -> list[OldRequest]:
        """Returns a page of the requests that have ended, the latest first (C10); see Search."""
        return self._link.perform(program.find_op(search))

    def attempts(self, eid: UUID) -> list[Attempt]:
        """Returns how each execution of a request that did not finish was aborted (Q4)."""
        return self._link.perform(ops.ListAttempts(eid=names.check_eid(eid)))

    def resolve(self, eid_or_rid: UUID | str) -> list[RequestState]:
        """Answers a doubt: `lookup`, made final by a synchronous commit of its own (finding 9)."""
        op = program.resolve_op(eid_or_rid)
        found = self._link.perform(op)
        self._link.perform(ops.Settle())
        return found

    # --- lifetime ---------------------------------------------------------------------------

    def _on(self, connection: Any) -> Links | PostgresDriver:
        return self._link if connection is None else self._caller(connection)

    def _caller(self, connection: Any) -> PostgresDriver:
        with self._link.borrowed() as link:
            return self._callers.driver(connection, link.connection)

    def _live(self) -> ops.Incarnation:
        self._life_link.reconnect()
        life = self._incarnation
        if life is None or life.backend_pid != self._life_link.connection.info.backend_pid:
            host, pid = this_process()
            former = None if life is None else life.incarnation
            opening = ops.OpenIncarnation(
                process=self._process, host=host, pid=pid, former=former, identity=own_identity()
            )
            life = self._life_link.perform(opening)
            self._incarnation = life
            self._life_link.run(program.take_over(self._process))
            for one in self._life_link.perform(ops.ListTakenOver()):
                tell_taken(one)
            self._taken = []  # given back with the former life, charged as its end says (G7)
        return life

    def _settle_taken(self) -> None:
        if self._incarnation is not None and self._taken:
            settle = program.settle_taken(self._taken, self._incarnation.incarnation)
            self._taken = self._life_link.run(settle)

    def close(self) -> None:
        """Closes the connection; returns what was dequeued in transactions that rolled back."""
        self._closed.set()  # ends the waits
        with self._life_turn:
            life, self._incarnation = self._incarnation, None
            with contextlib.suppress(OperatingError):  # a lost connection ended the incarnation
                if life is not None:
                    settle = program.settle_taken(self._taken, life.incarnation)
                    self._taken = self._life_link.run(settle)
                    self._life_link.perform(ops.CloseIncarnation(incarnation=life.incarnation))
            self._life_link.close()
        self._link.close()
        self.located.close()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
