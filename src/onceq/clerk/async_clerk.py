"""AsyncClerk: `Clerk`, for asyncio. Made by `AsyncQueueManager.clerk`."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from onceq.clerk import program, transactions
from onceq.clerk.calls import Calls
from onceq.engine.silence import waiting, within
from onceq.engine.unwrap import AsyncCallers
from onceq.errors import OnceqError, ReceiveTimeout
from onceq.model.names import check_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from types import TracebackType
    from typing import Self, Unpack

    from onceq.clerk import recovery
    from onceq.clerk.calls import ClerkOptions
    from onceq.clerk.policy import Processed, ReplyPolicy
    from onceq.clerk.session import Reply
    from onceq.clerk.streaming import Stream
    from onceq.engine.async_connection import AsyncLink
    from onceq.engine.silence import Patience
    from onceq.model.client_state import Recovery
    from onceq.model.element import KillAnswer, RequestAttributes, Whereabouts
    from onceq.model.ops import Program, Sent, ThreadTags
    from onceq.model.queue import Queue

    OnTimeout = Callable[[ReceiveTimeout], Awaitable[bool | None] | bool | None]

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")


class AsyncClerk(Calls[T, R]):
    """`Clerk` for asyncio: the same methods, awaited."""

    _awaits = True

    def __init__(
        self, link: AsyncLink, name: str, queue: Queue[T, R], **options: Unpack[ClerkOptions]
    ) -> None:
        super().__init__(name, queue, asyncio.current_task, **options)
        self._link = link
        self._callers = AsyncCallers(link.repository)

    async def connect(self, *, timeout_s: float | None = None) -> Self:
        """See Clerk.connect."""
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
        """See Clerk.disconnect."""
        await self._run(self._settled(program.disconnect(self._session)))

    async def send(
        self,
        rid: str,
        request: T,
        *,
        timeout_s: float | None = None,
        **attributes: Unpack[RequestAttributes],
    ) -> Sent:
        """See Clerk.send."""
        patience = within(check_timeout(timeout_s))
        return await self._run(self._send(rid, request, attributes), patience)

    async def send_one_way(
        self, rid: str, request: T, **attributes: Unpack[RequestAttributes]
    ) -> None:
        """See Clerk.send_one_way."""
        await self._run(self._send_one_way(rid, request, attributes))

    async def send_many(self, requests: Iterable[tuple[str, T]]) -> list[Sent]:
        """See Clerk.send_many."""
        return await self._run(self._send_many(requests))

    async def receive(
        self,
        checkpoint: bytes | None = None,
        *,
        timeout_s: float | None = None,
        rid: str | None = None,
        connection: Any = None,
        on_timeout: OnTimeout | None = None,
    ) -> Reply[R]:
        """See Clerk.receive; connection: an async one; on_timeout is async, or a plain def."""
        self._check_on_timeout(on_timeout)
        while True:
            try:
                if connection is not None:
                    with self._alone:
                        return await self._receive_in(connection, checkpoint, timeout_s, rid)
                receive = self._receive(checkpoint, timeout_s, rid, 1)
                return (await self._run(receive, waiting(timeout_s)))[0]
            except ReceiveTimeout as late:
                if on_timeout is None or not await _waits_on(on_timeout, late):
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
        """See Clerk.receive_many."""
        receive = self._receive(checkpoint, timeout_s, None, limit)
        return await self._run(receive, waiting(timeout_s))

    def stream(
        self,
        requests: Iterable[tuple[str, T]],
        *,
        timeout_s: float | None = None,
        on_timeout: OnTimeout | None = None,
    ) -> AsyncIterator[Reply[R]]:
        """See Clerk.stream: `async for reply in clerk.stream(...)`."""
        self._check_on_timeout(on_timeout)
        return self._streamed(self._stream(requests, timeout_s), timeout_s, on_timeout)

    async def _streamed(
        self,
        stream: Stream[R],
        timeout_s: float | None,
        on_timeout: OnTimeout | None,
    ) -> AsyncIterator[Reply[R]]:
        while True:
            try:
                replies = await self._run(self._step(stream), waiting(timeout_s))
            except ReceiveTimeout as late:
                if on_timeout is None or not await _waits_on(on_timeout, late):
                    raise
                continue
            if not replies:
                return
            for reply in replies:
                yield reply

    async def rereceive(self, rid: str | None = None) -> Reply[R]:
        """See Clerk.rereceive."""
        return await self._run(self._rereceive(rid))

    async def transceive(
        self,
        rid: str,
        request: T,
        *,
        checkpoint: bytes | None = None,
        timeout_s: float | None = None,
    ) -> Reply[R]:
        """See Clerk.transceive."""
        await self._run(self._send(rid, request, {}), waiting(check_timeout(timeout_s)))
        return await self.receive(checkpoint, timeout_s=timeout_s, rid=rid)

    async def process(
        self,
        handler: Callable[[Reply[R]], object],
        policy: ReplyPolicy,
        *,
        timeout_s: float | None = None,
    ) -> list[Processed[R]]:
        """See Clerk.process; the handler, the device and whoever is asked may be awaitable."""
        process = self._process(handler, policy, timeout_s)
        return await self._run(process, waiting(timeout_s))

    async def acknowledge(self, rids: list[str], *, checkpoint: bytes | None = None) -> int:
        """See Clerk.acknowledge."""
        return await self._run(self._acknowledge(rids, checkpoint))

    async def where(self, rid: str | None = None) -> Whereabouts | None:
        """See Clerk.where."""
        return await self._run(self._where(rid))

    async def alert_late(self, queue: str, *, late_s: float, rid: str | None = None) -> list[str]:
        """See Clerk.alert_late."""
        return await self._run(self._alert_late(queue, late_s, rid))

    async def threads(self) -> list[ThreadTags]:
        """See Clerk.threads."""
        return await self._run(self._threads())

    async def cancel_last_request(self, *, timeout_s: float = 10.0) -> KillAnswer:
        """See Clerk.cancel_last_request."""
        return await self._run(self._cancel(timeout_s), waiting(timeout_s))

    async def recover(
        self,
        rid: str | None = None,
        *,
        acknowledged: bool = False,
        by: recovery.Basis = "session",
    ) -> Recovery:
        """See Clerk.recover."""
        return await self._run(self._recover(rid, acknowledged=acknowledged, by=by))

    async def close(self) -> None:
        """See Clerk.close."""
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


async def _waits_on(on_timeout: OnTimeout, late: ReceiveTimeout) -> bool:
    """Returns whether the client wants to wait as long again."""
    answer = on_timeout(late)
    return (await answer if inspect.isawaitable(answer) else answer) is True
