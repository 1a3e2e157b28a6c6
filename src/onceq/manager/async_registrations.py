"""The queue manager's registrations, and its clients as operators see them.

And on whose connection an operation is done: one of the queue manager's, or the caller's. A part
of `AsyncQueueOperations`. Source: BHM90 4.3.
"""

from __future__ import annotations

from typing import Any, Final, Unpack
from uuid import UUID

from onceq.engine.connect.async_links import AsyncLinks
from onceq.engine.connect.unwrap import AsyncCallers
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.errors import ConnectionLost
from onceq.manager import program
from onceq.manager.async_periodics import AsyncPeriodicOperations
from onceq.manager.async_taker import AsyncTaker
from onceq.model import admin_ops, names, ops
from onceq.model.arguments import check_kind
from onceq.model.element import Element, KillAnswer
from onceq.model.terms import Terms

REGISTRANT_S: Final = 10.0
"""How long a tagged operation waits for the registrant, at most (registration.sql)."""


class AsyncRegistrationOperations(AsyncPeriodicOperations):
    """Operations on registrations and on clients."""

    _link: AsyncLinks
    _callers: AsyncCallers
    _taker: AsyncTaker

    async def register(
        self,
        queue: str,
        registrant: str,
        *,
        thread: str = "",
        stable: bool = True,
        life: ops.Registered | None = None,
    ) -> list[ops.Registered]:
        """Registers with a queue, durably. Returns this registration first, then its siblings'.

        Each tells the last operation: kind, tag, eid. life: a registration of this same life of
        the registrant, with another queue; without it a new life begins and fences the former one.
        stable: False keeps no record of operations. Source: BHM90 4.3.
        """
        return await self._link.perform(
            ops.Register(
                queue=names.check_queue(queue),
                name=names.check_id("registrant", registrant),
                thread=names.check_id("thread", thread) if thread != "" else "",
                stable=names.check_flag("stable", stable),
                epoch=None if life is None else check_kind(ops.Registered, "register", life).epoch,
            )
        )

    async def threads(self, registrant: str) -> list[ops.ThreadTags]:
        """Returns the tags of every thread of a client, by thread, and fences nobody (C7).

        Each tells what the thread sent and received last, its checkpoint and its state. A client
        that has lost everything connects its threads one by one. Source: BHM90 5.
        """
        return await self._link.perform(ops.Threads(name=names.check_id("registrant", registrant)))

    async def clients(self, name: str | None = None) -> list[admin_ops.ClientInfo]:
        """Returns every client, or those of one name: a row for each thread, with its progress."""
        wanted = None if name is None else names.check_id("registrant", name)
        return await self._link.perform(admin_ops.ListClients(name=wanted))

    async def forget(
        self,
        name: str,
        *,
        thread: str | None = None,
        forced: bool = False,
        timeout_s: float = 10.0,
    ) -> list[admin_ops.Forgotten]:
        """Forgets a client that will not return: its replies, checkpoint and registrations go.

        thread: one thread of it; None: all. The answer is empty if the client is not known. What
        remains tells a later connect that it is disconnected, and what it sent last: no rid runs
        twice.
        IllegalState: it is connected or has something outstanding, and forced is False. If forced,
        its life is ended and its requests are cancelled. DeadlineExceeded: nothing happened.
        """
        return await self._link.perform(
            program.forget_op(name, thread, forced=forced, timeout_s=timeout_s), timeout_s
        )

    async def close_client(
        self, name: str, *, forced: bool = False, timeout_s: float = 10.0
    ) -> list[admin_ops.Forgotten]:
        """Closes a client's name for ever: forgets it, and the rids of its trimmed history.

        Whoever connects by this name is refused with IllegalState from then on, so nothing that it
        sent can run twice. The answer is empty if the client is not known; its name stays free.
        IllegalState: it is connected or has something outstanding, and forced is False. If forced,
        its lives are ended and its requests are cancelled. DeadlineExceeded: nothing happened.
        """
        return await self._link.perform(
            program.close_op(name, forced=forced, timeout_s=timeout_s), timeout_s
        )

    async def deregister(self, queue: str, handle: ops.Registered) -> bool:
        """Destroys the registration of a handle with a queue. Fenced."""
        return await self._link.perform(
            ops.Deregister(
                who=check_kind(ops.Registered, "deregister", handle).who,
                queue=names.check_queue(queue),
            )
        )

    async def enqueue_tagged(
        self,
        queue: str,
        handle: ops.Registered,
        body: bytes,
        tag: bytes | None = None,
        *,
        connection: Any = None,
    ) -> UUID:
        """Enqueues, recording kind, eid, tag and a copy of the element: one commit for both.

        With `connection`, as with all tagged operations, they are part of the transaction there:
        rolled back, the former record stays. It must be READ COMMITTED. A registrant's operations
        come one after the other: until that transaction ends, another of this registrant waits, for
        10 seconds, or half a second if its transaction has written before. Then it raises
        DeadlineExceeded: nothing happened. `register` waits for the end itself, so never call it in
        between. Fenced, TooLarge, IllegalState (not registered).
        """
        op = ops.EnqueueTagged(
            who=check_kind(ops.Registered, "enqueue_tagged", handle).who,
            queue=names.check_queue(queue),
            body=names.check_bytes("body", body),
            tag=names.check_tag(tag),
            own_transaction=connection is None,
        )
        return await (await self._on(connection)).run(iter(op))

    async def dequeue_tagged(
        self,
        queue: str,
        handle: ops.Registered,
        tag: bytes | None = None,
        *,
        timeout_s: float | None = 0.0,
        connection: Any = None,
        **terms: Unpack[Terms],
    ) -> Element | None:
        """Dequeues as `dequeue` does, recording kind, eid, tag and a copy; see `enqueue_tagged`.

        None, and no record: nothing came in time. With `connection` the registrant is held while
        it waits.
        """
        op = ops.Dequeue(
            queue=names.check_queue(queue),
            who=check_kind(ops.Registered, "dequeue_tagged", handle).who,
            tag=names.check_tag(tag),
        )
        op = program.on_terms(op, terms, connection)
        return await self._dequeue(op, names.check_timeout(timeout_s), connection)

    async def read_tagged(
        self,
        queue: str,
        handle: ops.Registered,
        eid: UUID,
        tag: bytes | None = None,
        *,
        connection: Any = None,
    ) -> Element | None:
        """Reads as `read` does, recording kind, eid, tag and a copy; see `enqueue_tagged`.

        queue: of the registration; the element may be in any. None, and no record: it is in none.
        """
        op = ops.ReadTagged(
            who=check_kind(ops.Registered, "read_tagged", handle).who,
            queue=names.check_queue(queue),
            eid=names.check_eid(eid),
            tag=names.check_tag(tag),
        )
        return await (await self._on(connection)).perform(op)

    async def kill_tagged(
        self,
        queue: str,
        handle: ops.Registered,
        eid: UUID,
        tag: bytes | None = None,
        *,
        timeout_s: float = 10.0,
        connection: Any = None,
    ) -> KillAnswer:
        """Kills as `kill` does, recording kind, eid, tag and a copy; see `enqueue_tagged`.

        queue: of the registration; the element may be in any. Only what is KILLED is recorded; the
        copy is None if it had been killed before. With `connection` whoever wants to end the
        element, such as a server that runs it, waits until the transaction ends.
        """
        op = program.kill_op(eid, timeout_s)
        tagged = ops.KillTagged(
            who=check_kind(ops.Registered, "kill_tagged", handle).who,
            queue=names.check_queue(queue),
            eid=op.eid,
            tag=names.check_tag(tag),
            timeout_s=op.timeout_s,
        )
        if connection is None:
            return await self._link.perform(tagged, 2 * timeout_s)  # for the registrant, and it
        return await (await self._caller(connection)).perform(tagged)

    async def read_last(self, queue: str, handle: ops.Registered) -> ops.LastOperation | None:
        """Reads the copy of the element last operated on, even if someone has dequeued it since.

        Only what has committed counts; it waits for no transaction. Fenced.
        """
        return await self._link.perform(
            ops.ReadLast(
                who=check_kind(ops.Registered, "read_last", handle).who,
                queue=names.check_queue(queue),
            )
        )

    async def _dequeue(
        self, op: ops.Dequeue, timeout_s: float | None, connection: Any
    ) -> Element | None:
        if connection is None:
            more_s = 0.0 if op.who is None else REGISTRANT_S
            longest_s = None if timeout_s is None else timeout_s + more_s
            return await self._link.run(program.dequeue(op, timeout_s), longest_s)
        return await self._taker.dequeue(await self._caller(connection), op, timeout_s)

    async def _on(self, connection: Any) -> AsyncLinks | AsyncPostgresDriver:
        return self._link if connection is None else await self._caller(connection)

    async def _caller(self, connection: Any) -> AsyncPostgresDriver:
        async with self._link.borrowed() as link:
            try:
                return await self._callers.driver(connection, link.connection)
            except ConnectionLost:  # ours, which nobody has noticed, or the caller's, again
                await link.reconnect()
                return await self._callers.driver(connection, link.connection)
