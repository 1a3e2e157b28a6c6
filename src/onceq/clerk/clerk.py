"""Clerk and AsyncClerk: the client's five operations, sync and async, over the same Programs.

Made by `QueueManager.clerk` and `AsyncQueueManager.clerk`. A clerk has a connection of its own
and serves one thread. Leaving the `with` block closes the connection and keeps the session:
only `disconnect` ends it. Source: BHM90 3 and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from onceq.clerk import program, recovery
from onceq.clerk.program import Reply, Session
from onceq.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self, Unpack

    from onceq.engine.async_connection import AsyncLink
    from onceq.engine.connection import Link
    from onceq.model.client_state import ClientState, Recovery
    from onceq.model.element import KillAnswer, SendAttributes
    from onceq.model.ops import Program, Sent
    from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")

WINDOW_MAX = 100_000


class _Calls(Generic[T, R]):
    """What both clerks know and check before anything is sent."""

    def __init__(self, name: str, queue: Queue[T, R], *, thread: str, window: int) -> None:
        names.check_id("registrant", name)
        if thread != "":
            names.check_id("thread", thread)
        names.check_range("window", window, 1, WINDOW_MAX)
        self._session: Session[T, R] = Session(name=name, thread=thread, queue=queue, window=window)

    @property
    def state(self) -> ClientState:
        """Where this client is (BHM90 figure 1); after connect, what was recovered."""
        return self._session.state

    @property
    def last_sent(self) -> str | None:
        """The rid of the last request, s_rid."""
        return self._session.s_rid

    @property
    def last_received(self) -> str | None:
        """The rid of the last reply received with a checkpoint, or acknowledged, r_rid."""
        return self._session.r_rid

    @property
    def checkpoint(self) -> bytes | None:
        """The checkpoint given with the last receive."""
        return self._session.ckpt

    @property
    def was_disconnected(self) -> bool:
        """Whether the former session had been ended by `disconnect`."""
        return self._session.was == "disconnected"

    @property
    def outstanding(self) -> list[str]:
        """The rids sent whose replies were not handed out yet, in the order of sending."""
        return list(self._session.outstanding)

    @property
    def unacknowledged(self) -> list[str]:
        """The rids whose replies were handed out and not acknowledged."""
        return list(self._session.received)

    def _send(self, rid: str, request: T, attributes: SendAttributes) -> Program[Sent]:
        queue = self._session.queue
        names.check_id("rid", rid)
        names.check_attributes(attributes)
        return program.send(self._session, rid, queue.encode_request(request), attributes)

    def _send_many(self, requests: Iterable[tuple[str, T]]) -> Program[list[Sent]]:
        queue = self._session.queue
        pairs: list[tuple[str, bytes]] = []
        for pair in names.check_each("requests", requests):
            rid, value = names.check_pair("request", pair)
            pairs.append((names.check_id("rid", rid), queue.encode_request(value)))
        rids, bodies = [rid for rid, _ in pairs], [body for _, body in pairs]
        return program.send_many(self._session, rids, bodies)

    def _receive(
        self, checkpoint: bytes | None, timeout_s: float | None, rid: str | None, limit: int
    ) -> Program[list[Reply[R]]]:
        if checkpoint is not None:
            names.check_bytes("checkpoint", checkpoint)
        names.check_range("limit", limit, 1, WINDOW_MAX)
        timeout_s = names.check_timeout(timeout_s)
        if rid is not None:
            names.check_id("rid", rid)
        return program.receive(
            self._session, ckpt=checkpoint, rid=rid, limit=limit, timeout_s=timeout_s
        )

    def _acknowledge(self, rids: list[str], checkpoint: bytes | None) -> Program[int]:
        if checkpoint is not None:
            names.check_bytes("checkpoint", checkpoint)
        chosen = [names.check_id("rid", rid) for rid in names.check_each("rids", rids)]
        return program.acknowledge(self._session, chosen, checkpoint)

    def _cancel(self, timeout_s: float) -> Program[KillAnswer]:
        wait_s = names.check_timeout(timeout_s)
        longest_s = names.TIMEOUT_S_MAX
        return program.cancel_last_request(self._session, longest_s if wait_s is None else wait_s)

    def _recover(self, rid: str | None, *, acknowledged: bool) -> Program[Recovery]:
        if rid is not None:
            names.check_id("rid", rid)
        return recovery.recover(self._session, rid, acknowledged=acknowledged)


class Clerk(_Calls[T, R]):
    """A client's session with a repository.

    Not thread-safe. Every method raises Fenced when a newer life of this registrant has connected,
    IllegalState when the client's state forbids it, InDoubt when the answer to a commit was lost:
    then `connect()` tells. Source: BHM90 3.
    """

    def __init__(
        self, link: Link, name: str, queue: Queue[T, R], *, thread: str = "", window: int = 1
    ) -> None:
        super().__init__(name, queue, thread=thread, window=window)
        self._link = link

    def connect(self) -> Self:
        """Begins a new life, on a new connection if the old one broke; fences the former life."""
        self._link.reconnect()
        self._link.run(program.connect(self._session))
        return self

    def disconnect(self) -> None:
        """Ends the session. IllegalState while a request is outstanding. Source: BHM90 3."""
        self._link.run(program.disconnect(self._session))

    def send(
        self,
        rid: str,
        request: T,
        **attributes: Unpack[SendAttributes],
    ) -> Sent:
        """Sends a request; request and rid are stable when it returns (G6).

        rid: 1 to 200 bytes, never used before with other content (RidReused). attributes: see
        SendAttributes. Sending acknowledges the reply before (C17). Raises QueueNotFound,
        QueueStopped, TooLarge, InvalidValue: nothing happened.
        """
        return self._link.run(self._send(rid, request, attributes))

    def send_many(self, requests: Iterable[tuple[str, T]]) -> list[Sent]:
        """Sends (rid, request) pairs in one transaction: then all are stable, or none."""
        return self._link.run(self._send_many(requests))

    def receive(
        self,
        checkpoint: bytes | None = None,
        *,
        timeout_s: float | None = None,
        rid: str | None = None,
    ) -> Reply[R]:
        """Returns the next reply, or that to `rid`. Without timeout_s it waits for ever.

        checkpoint: at most 64 KiB, stable together with the reply's rid before this returns.
        Raises ReceiveTimeout (nothing is lost), ReplyGone.
        """
        return self._link.run(self._receive(checkpoint, timeout_s, rid, 1))[0]

    def receive_many(
        self, limit: int, *, checkpoint: bytes | None = None, timeout_s: float | None = None
    ) -> list[Reply[R]]:
        """Returns the replies that wait, at least one and at most `limit` (C6)."""
        return self._link.run(self._receive(checkpoint, timeout_s, None, limit))

    def rereceive(self) -> Reply[R]:
        """Returns the reply of the last receive again, identical (G5)."""
        return self._link.run(program.rereceive(self._session))

    def transceive(
        self,
        rid: str,
        request: T,
        *,
        checkpoint: bytes | None = None,
        timeout_s: float | None = None,
    ) -> Reply[R]:
        """Sends a request and receives its reply."""
        self.send(rid, request)
        return self.receive(checkpoint, timeout_s=timeout_s, rid=rid)

    def acknowledge(self, rids: list[str], *, checkpoint: bytes | None = None) -> int:
        """Frees replies whose content the client has recorded (C6)."""
        return self._link.run(self._acknowledge(rids, checkpoint))

    def cancel_last_request(self, *, timeout_s: float = 10.0) -> KillAnswer:
        """Kills the last request (G8). DeadlineExceeded: nothing happened. Source: BHM90 7."""
        return self._link.run(self._cancel(timeout_s))

    def recover(self, rid: str | None = None, *, acknowledged: bool = False) -> Recovery:
        """Returns where the last request stands, A to E, what that rests on and what to do.

        rid: the request that the client last meant to send, if it knows; acknowledged: it knows
        that this send had returned. Source: BN09 4.3.
        """
        return self._link.run(self._recover(rid, acknowledged=acknowledged))

    def close(self) -> None:
        """Closes the connection; the session stays. Idempotent."""
        self._link.close()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClerk(_Calls[T, R]):
    """`Clerk`, for asyncio: the same methods, awaited."""

    def __init__(
        self, link: AsyncLink, name: str, queue: Queue[T, R], *, thread: str = "", window: int = 1
    ) -> None:
        super().__init__(name, queue, thread=thread, window=window)
        self._link = link

    async def connect(self) -> Self:
        """See Clerk.connect."""
        await self._link.reconnect()
        await self._link.run(program.connect(self._session))
        return self

    async def disconnect(self) -> None:
        """See Clerk.disconnect."""
        await self._link.run(program.disconnect(self._session))

    async def send(
        self,
        rid: str,
        request: T,
        **attributes: Unpack[SendAttributes],
    ) -> Sent:
        """See Clerk.send."""
        return await self._link.run(self._send(rid, request, attributes))

    async def send_many(self, requests: Iterable[tuple[str, T]]) -> list[Sent]:
        """See Clerk.send_many."""
        return await self._link.run(self._send_many(requests))

    async def receive(
        self,
        checkpoint: bytes | None = None,
        *,
        timeout_s: float | None = None,
        rid: str | None = None,
    ) -> Reply[R]:
        """See Clerk.receive."""
        return (await self._link.run(self._receive(checkpoint, timeout_s, rid, 1)))[0]

    async def receive_many(
        self, limit: int, *, checkpoint: bytes | None = None, timeout_s: float | None = None
    ) -> list[Reply[R]]:
        """See Clerk.receive_many."""
        return await self._link.run(self._receive(checkpoint, timeout_s, None, limit))

    async def rereceive(self) -> Reply[R]:
        """See Clerk.rereceive."""
        return await self._link.run(program.rereceive(self._session))

    async def transceive(
        self,
        rid: str,
        request: T,
        *,
        checkpoint: bytes | None = None,
        timeout_s: float | None = None,
    ) -> Reply[R]:
        """See Clerk.transceive."""
        await self.send(rid, request)
        return await self.receive(checkpoint, timeout_s=timeout_s, rid=rid)

    async def acknowledge(self, rids: list[str], *, checkpoint: bytes | None = None) -> int:
        """See Clerk.acknowledge."""
        return await self._link.run(self._acknowledge(rids, checkpoint))

    async def cancel_last_request(self, *, timeout_s: float = 10.0) -> KillAnswer:
        """See Clerk.cancel_last_request."""
        return await self._link.run(self._cancel(timeout_s))

    async def recover(self, rid: str | None = None, *, acknowledged: bool = False) -> Recovery:
        """See Clerk.recover."""
        return await self._link.run(self._recover(rid, acknowledged=acknowledged))

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
