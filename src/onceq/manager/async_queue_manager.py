"""The queue manager's operations, on connections of their own.

Made by `onceq.open_async`. Each method performs one Op or runs one Program; `resolve` performs two
Ops. Source: BHM90 4; spec Q1 to Q6.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

from onceq.engine.connect.async_links import AsyncLinks
from onceq.engine.connect.unwrap import AsyncCallers
from onceq.engine.embedded.locate import Located
from onceq.errors import IllegalState
from onceq.manager import held, program, scanning, ticking
from onceq.manager.async_explaining import AsyncExplaining
from onceq.manager.async_old_requests import AsyncOldRequests
from onceq.manager.async_registrations import AsyncRegistrationOperations
from onceq.manager.async_taker import AsyncTaker
from onceq.manager.metrics import Metrics
from onceq.model import admin_ops, names, ops
from onceq.model.element import (
    Attempt,
    Element,
    KillAnswer,
    OldRequest,
    Places,
    RequestState,
    Search,
)
from onceq.model.explaining import Explanation
from onceq.model.held import Held, HeldGroup, HeldSearch, Redriven, Released
from onceq.model.periodic import Periodic
from onceq.model.queue import Queue, QueueInfo
from onceq.model.scan import Scan, Scanned
from onceq.model.send_attributes import EnqueueAttributes
from onceq.model.terms import Terms

T = TypeVar("T")


class AsyncQueueOperations(AsyncRegistrationOperations):
    """Operations on a repository, by many tasks at once: see `onceq.engine.connect.async_links`."""

    def __init__(self, located: Located, repository: str) -> None:
        self.located = located
        self.repository = names.check_repository(repository)
        self._link = AsyncLinks(located, repository)
        self._old = AsyncOldRequests(self._link, repository)
        self._explaining = AsyncExplaining(self._link, self._old)
        self._callers = AsyncCallers(repository)
        self._taker = AsyncTaker(located, repository)

    async def connect(self, *, timeout_s: float | None = None) -> Self:
        """Connects, or connects again after a loss. CannotConnect, SchemaMissing, SchemaTooNew.

        timeout_s: when to give up; at least 2 s for a host that is silent.
        """
        await self._link.connect(names.check_timeout(timeout_s))
        self._taker.closed.clear()
        return self

    # --- queues -----------------------------------------------------------------------------

    async def declare(self, declared: Queue[Any, Any] | Periodic[Any]) -> bool:
        """Creates the queue, or the periodic request, if there is none of its name.

        Returns whether it did. SettingsDiffer. For a periodic request also QueueNotFound, TooLarge
        and IllegalState: its queue is not one of requests.
        """
        if isinstance(declared, Periodic):
            return await self._link.run(ticking.declare(declared))
        return await self._link.run(program.declare(declared))

    async def create(self, queue: Queue[Any, Any]) -> bool:
        """Creates the queue; False if one of that name exists, whatever its settings."""
        return await self._link.perform(program.create_op(queue))

    async def alter(self, change: ops.AlterQueue) -> None:
        """Changes settings of a queue, or starts or stops it. QueueNotFound."""
        await self._link.perform(program.checked_change(change))

    async def start(self, queue: str, *, enqueue: bool = True, dequeue: bool = True) -> None:
        """Starts a queue for enqueue, for dequeue, or both. QueueNotFound."""
        await self._link.perform(program.start_op(queue, enqueue=enqueue, dequeue=dequeue, to=True))

    async def stop(self, queue: str, *, enqueue: bool = True, dequeue: bool = True) -> None:
        """Stops a queue for enqueue, for dequeue, or both; replies are never refused."""
        await self._link.perform(
            program.start_op(queue, enqueue=enqueue, dequeue=dequeue, to=False)
        )

    async def show(self, queue: str) -> QueueInfo:
        """Returns a queue as it is now. QueueNotFound."""
        return await self._link.run(program.show(queue))

    async def queues(self) -> list[QueueInfo]:
        """Returns all queues, by name."""
        return await self._link.perform(ops.ListQueues())

    async def rates(self, over_s: float = 60.0) -> admin_ops.Rates:
        """Returns how many requests a minute were done in each queue in the last over_s seconds."""
        return await self._link.perform(program.rates_op(over_s))

    async def load(self) -> admin_ops.Load:
        """Returns what each queue of requests has to do, and what each session of a server does."""
        return await self._link.run(program.load())

    async def metrics(self, *, after: Metrics | None = None) -> Metrics:
        """Returns what `onceq metrics` says of the repository. InvalidValue.

        after: a former look at it, from which this one goes on: then it reads only what has ended
        since, else all that ended today, in UTC.
        """
        return await self._link.run(program.metrics(after))

    async def destroy(self, queue: str) -> None:
        """Destroys an empty queue. QueueNotFound, QueueNotEmpty."""
        await self._link.perform(ops.DestroyQueue(queue=names.check_queue(queue)))

    # --- elements ---------------------------------------------------------------------------

    async def enqueue(
        self,
        queue: Queue[T, Any],
        request: T,
        *,
        connection: Any = None,
        **attributes: Unpack[EnqueueAttributes],
    ) -> UUID:
        """Enqueues a request that wants no reply; returns its eid.

        Outside any transaction it is durable when this returns. With `connection` (of psycopg, or
        of what docs/connections.md names) it joins the transaction there. attributes: see
        EnqueueAttributes. Raises QueueNotFound, QueueStopped, QueueFull, TooLarge, InvalidValue;
        with `connection` also IllegalState, ConnectionLost: nothing happened.
        """
        op = program.enqueue_op(queue, request, attributes, own_transaction=connection is None)
        return await (await self._on(connection)).run(iter(op))

    async def enqueue_many(self, queue: Queue[T, Any], requests: list[T]) -> list[UUID]:
        """Enqueues many requests that want no reply, in one transaction."""
        return await self._link.run(iter(program.enqueue_many_op(queue, requests)))

    async def dequeue(
        self,
        queue: str,
        *,
        eid: UUID | None = None,
        timeout_s: float | None = 0.0,
        connection: Any = None,
        **terms: Unpack[Terms],
    ) -> Element | None:
        """Dequeues the next element, or the one with this eid; None when none came in time.

        timeout_s: 0 does not wait, None waits for ever. Outside any transaction the element is
        gone when this returns, and must owe no reply. With `connection` it leaves the queue
        when, and only if, the transaction there commits; rolled back, an abort is counted; a
        kill meanwhile makes that commit fail. Whoever waits sleeps until it is rung; but one that
        waits with `eid` or `connection` looks 20 times a second: a ring wakes one waiter, and would
        be lost on one that wants another element, or that nobody knows to wait. terms: with
        `connection`, the abort limit and the error queue that hold for this dequeue; see Terms.
        Raises QueueNotFound, IllegalState.
        """
        names.check_queue(queue)
        timeout_s = names.check_timeout(timeout_s)
        if eid is not None:
            names.check_eid(eid)
        op = program.on_terms(ops.Dequeue(queue=queue, eid=eid), terms, connection)
        return await self._dequeue(op, timeout_s, connection)

    async def reply(self, connection: Any, element: Element, body: bytes) -> None:
        """Gives the reply to an element that was dequeued in the transaction on `connection`."""
        life = self._taker.life
        if life is None:
            raise IllegalState("nothing was dequeued in a transaction by this queue manager")
        await (await self._on(connection)).perform(
            ops.ReplyTaken(
                seq=element.seq,
                incarnation=life.incarnation,
                reply=names.check_bytes("reply", body),
            )
        )

    async def read(self, eid: UUID, *, connection: Any = None) -> Element | None:
        """Reads an element wherever it is, without dequeuing it; None if no queue holds it.

        With `connection` it sees what the transaction there sees: its own enqueues too, and not
        what others have not committed; under REPEATABLE READ, what was there when it began. It
        locks nothing: whoever wants the element may take it at once.
        """
        op = ops.ReadElement(eid=names.check_eid(eid))
        return await (await self._on(connection)).perform(op)

    async def peek(self, queue: str, n: int = 10, *, connection: Any = None) -> list[Element]:
        """Returns the first n elements of a queue that wait and are due; all stay (BHM90 Read).

        By priority and time; those that waited for their time come after the others, and suspects
        last. A queue that is stopped is read too; what an error queue holds is not shown (see
        `lookup`). n: 1 to 1,000; the bodies come with them. connection: as for `read`.
        QueueNotFound.
        """
        first = ops.Peek(queue=names.check_queue(queue), n=names.check_range("n", n, 1, 1_000))
        return await (await self._on(connection)).perform(first)

    def scan(
        self, queue: str, *, locked: bool = False, connection: Any = None
    ) -> AsyncIterator[Scanned]:
        """Returns an iterator over the elements of a queue, in its order; all stay (BHM90 Read).

        Of any queue, stopped or not: what waits, waits for its time, is a suspect or is executing,
        what an error queue holds, and the replies that a client has not acknowledged; `state` says
        which. It reads by pages, keeps no transaction open between two, and gets no slower on the
        way. What is in the queue all the time, from the first element to the last, comes exactly
        once, even if it is claimed, given back or delayed meanwhile, as long as nobody sets the
        database's clock back. What is enqueued or redriven after the first element was asked for
        does not come, and what leaves the queue meanwhile comes or does not; nothing comes twice.

        connection: as for `read`; under REPEATABLE READ, what was there when that transaction
        began. locked: only what is unclaimed, and each element is locked until the transaction
        there ends: nobody claims, kills or expires it meanwhile; others skip it, and a kill waits
        for it. What others have locked is passed over. It locks up to 100 elements at once, before
        it gives out the first of them. QueueNotFound; InvalidValue: locked without a connection;
        IllegalState: locked, and it is the reply queue of a client, or not READ COMMITTED.
        """
        has_connection = connection is not None
        scan = scanning.checked(queue, locked=locked, has_connection=has_connection)
        return self._scan(scan, connection)

    async def _scan(self, scan: Scan, connection: Any) -> AsyncIterator[Scanned]:
        while found := await (await self._on(connection)).run(scanning.following(scan)):
            for one in found:
                yield one

    async def kill(self, eid: UUID, *, timeout_s: float = 10.0) -> KillAnswer:
        """Kills an element, queued or running (G8). DeadlineExceeded: nothing happened."""
        return await self._link.perform(program.kill_op(eid, timeout_s), timeout_s)

    async def redrive(self, eid: UUID) -> tuple[UUID, str] | None:
        """Runs a failed request again (G3); returns its new (eid, rid); None if it is not held."""
        return await self._link.perform(ops.Redrive(eid=names.check_eid(eid)))

    async def held(self, **search: Unpack[HeldSearch]) -> list[Held]:
        """Returns what failed and is held, the latest first; see HeldSearch.

        limit: 100 unless one is given. QueueNotFound, InvalidName, InvalidValue.
        """
        return await self._link.run(held.find(search))

    async def held_groups(self, **search: Unpack[HeldSearch]) -> list[HeldGroup]:
        """Returns the same in groups that failed alike, the largest first; limit: of groups."""
        return await self._link.run(held.group(search))

    async def redrive_held(
        self, *, dry_run: bool = False, **search: Unpack[HeldSearch]
    ) -> list[Redriven]:
        """Redrives everything that `held` finds, those that failed first before; see `redrive`.

        Each is a transaction of its own: if this raises, some were redriven, and `held` says what
        is left. What fails again meanwhile is left alone. limit: 100,000 unless one is given.
        dry_run: nothing is redriven; the answer says what would be. Raises as `held` does.
        """
        return await self._link.run(held.redrive(search, dry_run=dry_run))

    async def retry_held(
        self, *, dry_run: bool = False, **search: Unpack[HeldSearch]
    ) -> list[Released]:
        """Has what its own queue holds (`on_failure="hold"`) run again, as itself; see HeldSearch.

        With the same rid, and its aborts counted anew; those that failed first before, each in a
        transaction of its own. What has expired or was killed meanwhile is not run: see `fate`.
        limit: 100,000 unless one is given. dry_run: nothing happens. Raises as `held` does.
        """
        return await self._link.run(held.retry(search, dry_run=dry_run))

    async def give_up_held(
        self, *, dry_run: bool = False, **search: Unpack[HeldSearch]
    ) -> list[Released]:
        """Fails what its own queue holds, for good: the failure reply, and the error queue.

        Otherwise like `retry_held`.
        """
        return await self._link.run(held.give_up(search, dry_run=dry_run))

    async def lookup(
        self, rid: str | None = None, *, archive: bool = False, **search: Unpack[Places]
    ) -> list[RequestState]:
        """Returns the places where requests are or were, the latest first (C9); see Places.

        archive: also those whose history is only in the archive; see `find`.
        """
        op = program.lookup_op(rid, search)
        if names.check_flag("archive", archive):
            return await self._old.look_up(op)
        return await self._link.perform(op)

    async def find(self, *, archive: bool = False, **search: Unpack[Search]) -> list[OldRequest]:
        """Returns a page of the requests that have ended, the latest first (C10); see Search.

        archive: also those that were trimmed, from the archive's files, which must be where they
        were written. Raises MissingExtra (pyarrow is needed), FileMismatch (the archive is not
        here, is another repository's, or a file cannot be read).
        """
        if names.check_flag("archive", archive):
            return await self._old.find(search)
        return await self._link.perform(program.find_op(search))

    async def attempts(self, eid: UUID, *, archive: bool = False) -> list[Attempt]:
        """Returns how each execution of a request that did not finish was aborted (Q4).

        archive: also those in the archive, which have no tracebacks; see `find`.
        """
        names.check_eid(eid)
        if names.check_flag("archive", archive):
            return await self._old.attempts(eid)
        return await self._link.perform(ops.ListAttempts(eid=eid))

    async def explain(
        self,
        registrant: str | None = None,
        rid: str | None = None,
        *,
        eid: UUID | None = None,
        archive: bool = False,
    ) -> Explanation:
        """Returns what happened to a request, and why it does not run (Q14).

        It is given by its client's name and its rid, or by its eid. For one that is nowhere, the
        reasons say what may be the matter. It changes nothing, and costs the same however much
        waits. archive: as for `find`. InvalidName, InvalidValue: also where threads of the client
        share the rid.
        """
        asked = program.asked(registrant, rid, eid, archive=archive)
        return await self._explaining.explain(asked)

    async def resolve(self, eid_or_rid: UUID | str) -> list[RequestState]:
        """Answers a doubt: `lookup`, made final by a synchronous commit of its own (finding 9)."""
        op = program.resolve_op(eid_or_rid)
        found = await self._link.perform(op)
        await self._link.perform(ops.Settle())
        return found

    # --- lifetime ---------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes the connections; gives back what was dequeued in transactions that rolled back."""
        await self._taker.close()
        await self._link.close()
        self.located.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
