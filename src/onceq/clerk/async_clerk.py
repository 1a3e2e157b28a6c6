"""AsyncClerk: the client's operations.

Made by `AsyncQueueManager.clerk`. A clerk has a connection of its own and serves one of its
program's tasks. Leaving its block closes the connection and keeps the session: only `disconnect`
ends it. Source: BHM90 3 and 5.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from onceq.clerk import program, transactions
from onceq.clerk.calls import Calls
from onceq.clerk.late import async_waits_on
from onceq.engine.connect.unwrap import AsyncCallers
from onceq.engine.sessions.silence import waiting, within
from onceq.errors import OnceqError, ReceiveTimeout
from onceq.model.names import check_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType
    from typing import Self, Unpack

    from onceq.clerk import recovery
    from onceq.clerk.calls import ClerkOptions
    from onceq.clerk.late import AsyncOnTimeout
    from onceq.clerk.policy import Processed, ReplyPolicy
    from onceq.clerk.session import Reply
    from onceq.clerk.streaming import Stream
    from onceq.engine.connect.async_connection import AsyncLink
    from onceq.engine.sessions.silence import Patience
    from onceq.model.client_state import Recovery
    from onceq.model.element import KillAnswer, RequestAttributes, Whereabouts
    from onceq.model.ops import Program, Sent, ThreadTags
    from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")


class AsyncClerk(Calls[T, R]):
    """A client's session with a repository.

    One call at a time: another of the program's tasks is refused, and changes nothing. Every
    method raises Fenced when a newer life of this registrant has connected, IllegalState when the
    client's state forbids the call, InDoubt when the answer to a commit was lost: then `connect()`
    tells the outcome.
    Source: BHM90 3.
    """

    _awaits = True

    def __init__(
        self, link: AsyncLink, name: str, queue: Queue[T, R], **options: Unpack[ClerkOptions]
    ) -> None:
        super().__init__(name, queue, asyncio.current_task, **options)
        self._link = link
        self._callers = AsyncCallers(link.repository)

    async def connect(self, *, timeout_s: float | None = None) -> Self:
        """Begins a new life, on a new connection if the old one broke; fences the former life.

        timeout_s: when to give up, with CannotConnect or InDoubt; at least 2 s for a host that is
        silent. None: when TCP gives up, and after `connect_timeout`.
        """
        with self._alone:
            self._refuse_open()
            with self._link.bounded(within(check_timeout(timeout_s))):
                await self._link.reconnect()
                await self._link.run(program.connect(self._session))
            self._is_taking = False
        return self

    async def _run(self, call: Program[A], patience: Patience | None = None) -> A:
        with self._alone, self._link.bounded(patience):
            return await self._link.run(call)

    async def disconnect(self) -> None:
        """Ends the session. IllegalState while a request is outstanding. Source: BHM90 3."""
        await self._run(self._settled(program.disconnect(self._session)))

    async def send(
        self,
        rid: str,
        request: T,
        *,
        timeout_s: float | None = None,
        **attributes: Unpack[RequestAttributes],
    ) -> Sent:
        """Sends a request; request and rid are stable when it returns (G6).

        rid: 1 to 200 bytes, never used before with other content (RidReused). timeout_s: when to
        give up, with InDoubt; None: when TCP does. attributes: see RequestAttributes. Sending
        acknowledges the previous reply (C17). Raises QueueNotFound, QueueStopped, TooLarge,
        InvalidValue: nothing happened.
        """
        patience = within(check_timeout(timeout_s))
        return await self._run(self._send(rid, request, attributes), patience)

    async def send_one_way(
        self, rid: str, request: T, **attributes: Unpack[RequestAttributes]
    ) -> None:
        """Sends a request without waiting until it is stable (C2).

        It returns as soon as the request is on its way, so the caller waits for one commit less. If
        this process or the connection then dies, the request may be lost. In that case no reply
        comes, `receive` raises ReceiveTimeout or the error that `send` would have raised, and
        `connect` shows whether the request arrived. The next call of this clerk first reads the
        answer. Source: BHM90 5.
        """
        await self._run(self._send_one_way(rid, request, attributes))

    async def send_many(self, requests: Iterable[tuple[str, T]]) -> list[Sent]:
        """Sends (rid, request) pairs in one transaction: either all become stable, or none."""
        return await self._run(self._send_many(requests))

    async def receive(
        self,
        checkpoint: bytes | None = None,
        *,
        timeout_s: float | None = None,
        rid: str | None = None,
        connection: Any = None,
        on_timeout: AsyncOnTimeout | None = None,
    ) -> Reply[R]:
        """Returns the next reply, or the reply to `rid`. Without timeout_s it waits for ever.

        checkpoint: at most 64 KiB, stable together with the reply's rid before this returns.
        connection: psycopg's, SQLAlchemy's or Django's, to the same database (InvalidValue); the
        reply is received, with the checkpoint, if and only if the transaction there commits (C15).
        After a rollback it comes again. After as many rollbacks as the abort limit of the reply
        queue, the reply is held, and ReplyHeld is raised once.
        on_timeout: called when no reply came in time; it may use this clerk, and returns True to
        wait as long again (C9). Raises ReceiveTimeout (nothing is lost), ReplyGone.
        """
        self._check_on_timeout(on_timeout)
        while True:
            try:
                if connection is not None:
                    with self._alone:
                        return await self._receive_in(connection, checkpoint, timeout_s, rid)
                receive = self._receive(checkpoint, timeout_s, rid, 1)
                replies = await self._run(receive, waiting(timeout_s))
                return replies[0]
            except ReceiveTimeout as late:
                if on_timeout is None or not await async_waits_on(on_timeout, late):
                    raise

    async def _receive_in(
        self, connection: Any, checkpoint: bytes | None, timeout_s: float | None, rid: str | None
    ) -> Reply[R]:
        """Receives a reply in the transaction of the caller's connection."""
        caller = await self._callers.driver(connection, self._link.connection)
        reply = await self._run(self._begin(rid, timeout_s), waiting(timeout_s))
        take = self._take(reply.rid, checkpoint)
        self._session.sure = False  # if this is cut short, the next life must look
        self._caller, self._is_taking = caller, True
        try:
            xid = await caller.perform(take)
        except OnceqError:
            self._session.sure, self._is_taking = True, False
            await self._run(transactions.give_back(self._session, reply.rid))
            raise
        self._session.taken = (reply.rid, xid, checkpoint)
        self._session.sure, self._is_taking = True, False
        return reply

    async def receive_many(
        self, limit: int, *, checkpoint: bytes | None = None, timeout_s: float | None = None
    ) -> list[Reply[R]]:
        """Returns the replies that are waiting, at least one and at most `limit` (C6)."""
        receive = self._receive(checkpoint, timeout_s, None, limit)
        return await self._run(receive, waiting(timeout_s))

    def stream(
        self,
        requests: Iterable[tuple[str, T]],
        *,
        timeout_s: float | None = None,
        on_timeout: AsyncOnTimeout | None = None,
    ) -> AsyncIterator[Reply[R]]:
        """Sends (rid, request) pairs, up to the window ahead, and yields replies as they come (C6).

        A reply is acknowledged some time after the loop has come back for the next one. Replies not
        acknowledged come again after a crash, or from the next `stream`, and so do replies to
        earlier outstanding requests. After a crash, connect, and give it the requests after
        `last_sent`, or all of them again: those already done and acknowledged yield nothing.
        Memory holds the rids of the window, and at most 1,000 requests and 100 replies. requests:
        read whenever there is room; reading may block. timeout_s, on_timeout: as for `receive`, for
        each wait. After ReceiveTimeout or any other error, stream again from `last_sent` on.
        """
        self._check_on_timeout(on_timeout)
        return self._streamed(self._stream(requests, timeout_s), timeout_s, on_timeout)

    async def _streamed(
        self,
        stream: Stream[R],
        timeout_s: float | None,
        on_timeout: AsyncOnTimeout | None,
    ) -> AsyncIterator[Reply[R]]:
        while True:
            try:
                replies = await self._run(self._step(stream), waiting(timeout_s))
            except ReceiveTimeout as late:
                if on_timeout is None or not await async_waits_on(on_timeout, late):
                    raise
                continue
            if not replies:
                return
            for reply in replies:
                yield reply

    async def rereceive(self, rid: str | None = None) -> Reply[R]:
        """Returns the reply of the last receive again, identical (G5).

        rid: that reply instead, if it is received but not acknowledged, or one of the last `keep`
        acknowledged ones. ReplyGone: it is no longer kept.
        """
        return await self._run(self._rereceive(rid))

    async def transceive(
        self,
        rid: str,
        request: T,
        *,
        checkpoint: bytes | None = None,
        timeout_s: float | None = None,
    ) -> Reply[R]:
        """Sends a request and receives its reply."""
        await self._run(self._send(rid, request, {}), waiting(check_timeout(timeout_s)))
        return await self.receive(checkpoint, timeout_s=timeout_s, rid=rid)

    async def process(
        self,
        handler: Callable[[Reply[R]], object],
        policy: ReplyPolicy,
        *,
        timeout_s: float | None = None,
    ) -> list[Processed[R]]:
        """Calls `handler` with each outstanding reply, and returns what became of each.

        First the policy settles the reply whose processing was cut short, by the end of a former
        life or by an exception of the handler. If nothing is in doubt or outstanding, this
        returns an empty list. timeout_s: for each reply; None waits for ever. Raises what the
        handler raises, ReceiveTimeout or ReplyGone; call it again. With asyncio the handler, the
        device and whoever is asked may be awaitable. Source: BHM90 3, CSEP 9.2.
        """
        process = self._process(handler, policy, timeout_s)
        return await self._run(process, waiting(timeout_s))

    async def acknowledge(self, rids: list[str], *, checkpoint: bytes | None = None) -> int:
        """Frees replies whose content the client has recorded (C6)."""
        return await self._run(self._acknowledge(rids, checkpoint))

    async def where(self, rid: str | None = None) -> Whereabouts | None:
        """Returns where a request is; without rid, the last one. None: it was never sent (C9)."""
        return await self._run(self._where(rid))

    async def alert_late(self, queue: str, *, late_s: float, rid: str | None = None) -> list[str]:
        """Enqueues an alert for each request (or just `rid`) without a reply after late_s (C9).

        Each request is alerted once, however often and by whomever this is called, as long as
        history is kept. The alert is JSON with client, thread, rid, eid, queue and sent_at. Returns
        the rids that this call alerted. QueueNotFound, QueueStopped.
        """
        return await self._run(self._alert_late(queue, late_s, rid))

    async def threads(self) -> list[ThreadTags]:
        """Returns the tags of every thread of this client, by thread; it fences nobody (C7)."""
        return await self._run(self._threads())

    async def cancel_last_request(self, *, timeout_s: float = 10.0) -> KillAnswer:
        """Kills the last request (G8). DeadlineExceeded: nothing happened. Source: BHM90 7."""
        return await self._run(self._cancel(timeout_s), waiting(timeout_s))

    async def recover(
        self,
        rid: str | None = None,
        *,
        acknowledged: bool = False,
        by: recovery.Basis = "session",
    ) -> Recovery:
        """Returns where the last request stands, A to E, what that rests on and what to do.

        rid: the request that the client last meant to send, if it knows. acknowledged: it knows
        that this send returned. by: what may be looked at; the "reply queue" alone cannot tell
        A, B and D apart, and "history" needs the rid. Source: BN09 4.3.
        """
        return await self._run(self._recover(rid, acknowledged=acknowledged, by=by))

    async def close(self) -> None:
        """Closes the connection; the session stays. Idempotent."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
