"""AsyncClerk: the client's operations.

Made by `AsyncQueueManager.clerk`. A clerk has a connection of its own and serves one of its
program's tasks. Leaving its block closes the connection and keeps the session: only `disconnect`
ends it. Source: BHM90 3 and 5.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from onceq.clerk import processing, program, receiving, recovery, streaming, watching
from onceq.clerk.async_running import AsyncRunning
from onceq.clerk.late import AsyncOnTimeout, async_waits_on, check_on_timeout
from onceq.clerk.ledger import processing as ledger_processing
from onceq.clerk.ledger import program as ledger_program
from onceq.clerk.ledger import recovery as ledger_recovery
from onceq.clerk.ledger.async_runner import AsyncLedgerLink
from onceq.clerk.ledger.refusals import needs_ledger, no_ledger, refuse_with_ledger
from onceq.clerk.ledger.whole import whole
from onceq.clerk.ledger.work import Work, still
from onceq.clerk.policy import Processed, ReplyPolicy, check_policy
from onceq.clerk.program import Outgoing
from onceq.clerk.session import WINDOW_MAX, Reply
from onceq.engine.sessions.silence import Patience, waiting, within
from onceq.errors import ReceiveTimeout
from onceq.model import names
from onceq.model.arguments import check_function
from onceq.model.client_state import Recovery
from onceq.model.element import KillAnswer, Whereabouts
from onceq.model.ops import Program, Request, Sent, ThreadTags
from onceq.model.send_attributes import RequestAttributes

if TYPE_CHECKING:
    from onceq.clerk.ledger.program import Kept

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")


class AsyncClerk(AsyncRunning[T, R]):
    """A client's session with a repository.

    One call at a time: another of the program's tasks is refused, and changes nothing. Every
    method raises Fenced when a newer life of this registrant has connected, IllegalState when the
    client's state forbids the call, InDoubt when the answer to a commit was lost: then `connect()`
    tells the outcome. With a ledger (C4) there is one request at a time, `recover()` comes first in
    each life, and after InDoubt, or a call that was cut short, `connect()` and `recover()`.
    Source: BHM90 3, BN09 4.3.
    """

    __slots__ = ()
    _awaits = True

    async def disconnect(self) -> None:
        """Ends the session. IllegalState while a request is outstanding. Source: BHM90 3."""
        await self._run(program.disconnect(self._session))

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
        give up, with InDoubt, or with QueueFull: for nine tenths of it, it waits for room in a
        queue that is full; None: when TCP does, and without a wait for room. A clerk with a ledger
        does not wait for room either, but may `resubmit`. attributes: see RequestAttributes. With a
        window of 1, sending acknowledges the previous reply (C17). Raises QueueNotFound,
        QueueStopped, QueueFull, TooLarge, InvalidValue, WindowFull: nothing happened.
        """
        wait_s = names.check_timeout(timeout_s)
        sent = program.request_of(self._session.queue, rid, request, attributes)
        return await self._send(sent, within(wait_s), program.room_s(wait_s))

    async def _send(self, request: Request, patience: Patience | None, room_s: float) -> Sent:
        if self._kept is None:
            return await self._run(program.send(self._session, request, room_s=room_s), patience)
        send = ledger_program.send(self._kept, request)
        return await self._run(whole(self._kept, send), patience)

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
        refuse_with_ledger(self._kept, "send_one_way")
        sent = program.request_of(self._session.queue, rid, request, attributes)
        await self._run(program.send_one_way(self._session, sent))

    async def send_many(
        self, requests: Iterable[Outgoing[T]], *, timeout_s: float | None = None
    ) -> list[Sent]:
        """Sends requests in one transaction: either all become stable, or none.

        requests: each (rid, request), or (rid, request, end_user). The rest is as for `send`.
        """
        refuse_with_ledger(self._kept, "send_many")
        wait_s = names.check_timeout(timeout_s)
        sent = list(program.requests_of(self._session.queue, requests))
        send = program.send_many(self._session, sent, room_s=program.room_s(wait_s))
        return await self._run(send, within(wait_s))

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
        After a rollback it comes again. After as many rollbacks and deaths of the client as the
        abort limit of the reply queue, the reply is held. ReplyHeld says so once, if the next call
        is such a receive.
        on_timeout: called when no reply came in time; it may use this clerk, and returns True to
        wait as long again (C9). Raises ReceiveTimeout (nothing is lost), ReplyGone. With a ledger
        the reply comes again after a crash, until it is `done`.
        """
        check_on_timeout(on_timeout, may_await=self._awaits)
        if connection is not None:
            refuse_with_ledger(self._kept, "receive(connection=...)")
        while True:
            try:
                if connection is not None:
                    return await self._receive_in(connection, checkpoint, timeout_s, rid)
                receive = self._receive(1, checkpoint, timeout_s, rid)
                patience = waiting(timeout_s)
                with self._alone:  # as in `_run`, whose frame each clerk that waits would hold
                    await self._settle(patience)
                    return (await self._link.run(receive, patience))[0]
            except ReceiveTimeout as late:
                if on_timeout is None or not await async_waits_on(on_timeout, late):
                    raise

    async def receive_many(
        self, limit: int, *, checkpoint: bytes | None = None, timeout_s: float | None = None
    ) -> list[Reply[R]]:
        """Returns the replies that are waiting, at least one and at most `limit` (C6)."""
        receive = self._receive(limit, checkpoint, timeout_s, None)
        return await self._run(receive, waiting(timeout_s))

    def _receive(
        self, limit: int, checkpoint: bytes | None, timeout_s: float | None, rid: str | None
    ) -> Program[list[Reply[R]]]:
        if self._kept is not None:
            ledger_program.ready(self._kept)
        return receiving.receive(
            self._session,
            ckpt=names.check_tag(checkpoint, "checkpoint"),
            rid=names.check_rid(rid),
            limit=names.check_range("limit", limit, 1, WINDOW_MAX),
            timeout_s=names.check_timeout(timeout_s),
        )

    def stream(
        self,
        requests: Iterable[Outgoing[T]],
        *,
        timeout_s: float | None = None,
        on_timeout: AsyncOnTimeout | None = None,
    ) -> AsyncIterator[Reply[R]]:
        """Sends requests, up to the window ahead, and yields replies as they come (C6).

        A reply is acknowledged some time after the loop has come back for the next one. Replies not
        acknowledged come again after a crash, or from the next `stream`, and so do replies to
        earlier outstanding requests. After a crash, connect, and give it the requests after
        `last_sent`, or all of them again: those already done and acknowledged yield nothing.
        Memory holds the rids of the window, and at most 1,000 requests and 100 replies. requests:
        as for `send_many`; read whenever there is room; reading may block. timeout_s, on_timeout:
        as for `receive`, for each wait. After ReceiveTimeout or any other error, stream again what
        is after `last_sent`.
        """
        check_on_timeout(on_timeout, may_await=self._awaits)
        refuse_with_ledger(self._kept, "stream")
        sent = program.requests_of(self._session.queue, requests)
        stream = streaming.Stream(self._session, sent, names.check_timeout(timeout_s))
        return self._streamed(stream, timeout_s, on_timeout)

    async def _streamed(
        self,
        stream: streaming.Stream[R],
        timeout_s: float | None,
        on_timeout: AsyncOnTimeout | None,
    ) -> AsyncIterator[Reply[R]]:
        while True:
            try:
                replies = await self._run(stream.step(), waiting(timeout_s))
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
        return await self._run(receiving.rereceive(self._session, names.check_rid(rid)))

    async def transceive(
        self,
        rid: str,
        request: T,
        *,
        checkpoint: bytes | None = None,
        timeout_s: float | None = None,
    ) -> Reply[R]:
        """Sends a request and receives its reply. timeout_s: of each; also of a wait for room.

        ReceiveTimeout: the request is sent, and `receive` waits on.
        """
        sent = program.request_of(self._session.queue, rid, request, {})
        wait_s = names.check_timeout(timeout_s)
        await self._send(sent, waiting(wait_s), program.room_s(wait_s))
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
        returns an empty list. With a ledger each reply that is settled is `done`. timeout_s: for
        each reply; None waits for ever. Raises what the handler raises, ReceiveTimeout or
        ReplyGone; call it again. With asyncio the handler, the device and whoever is asked may be
        awaitable. Source: BHM90 3, CSEP 9.2.
        """
        wait_s = names.check_timeout(timeout_s)
        return await self._run(self._processed(handler, policy, wait_s), waiting(wait_s))

    def _processed(
        self, handler: object, policy: object, timeout_s: float | None, *, waits: bool = True
    ) -> Program[list[Processed[R]]]:
        chosen = check_policy(policy, may_await=self._awaits)
        called = check_function("the handler of replies", handler, may_await=self._awaits)
        if self._kept is None:
            return processing.process(self._session, called, chosen, timeout_s, waits=waits)
        return ledger_processing.process(self._kept, called, chosen, timeout_s, waits=waits)

    async def acknowledge(self, rids: list[str], *, checkpoint: bytes | None = None) -> int:
        """Frees replies whose content the client has recorded; returns how many it freed (C6)."""
        refuse_with_ledger(self._kept, "acknowledge")
        chosen = [names.check_id("rid", rid) for rid in names.check_each("rids", rids)]
        ckpt = names.check_tag(checkpoint, "checkpoint")
        return await self._run(receiving.acknowledge(self._session, chosen, ckpt))

    async def where(self, rid: str | None = None) -> Whereabouts | None:
        """Returns where a request is; without rid, the last one (C9).

        None: it was never sent, or history no longer has it.
        """
        return await self._run(watching.where(self._session, names.check_rid(rid)))

    async def alert_late(self, queue: str, *, late_s: float, rid: str | None = None) -> list[str]:
        """Enqueues an alert for each request (or just `rid`) without a reply after late_s (C9).

        Each request is alerted once, however often and by whomever this is called, as long as
        history is kept. The alert is JSON with client, thread, rid, eid, queue and sent_at. Returns
        the rids that this call alerted. QueueNotFound, QueueStopped.
        """
        names.check_queue(queue)
        names.check_seconds("late_s", late_s)
        alert = watching.alert_late(self._session, queue, late_s, names.check_rid(rid))
        return await self._run(alert)

    async def threads(self) -> list[ThreadTags]:
        """Returns the tags of every thread of this client, by thread; it fences nobody (C7)."""
        return await self._run(watching.threads(self._session))

    async def cancel_last_request(self, *, timeout_s: float = 10.0) -> KillAnswer:
        """Kills the last request (G8). DeadlineExceeded: nothing happened. Source: BHM90 7."""
        wait_s = names.check_timeout(timeout_s)
        longest_s = names.TIMEOUT_S_MAX if wait_s is None else wait_s
        cancel = program.cancel_last_request(self._session, longest_s)
        return await self._run(cancel, waiting(wait_s))

    async def recover(
        self,
        rid: str | None = None,
        *,
        acknowledged: bool = False,
        by: recovery.Basis = "session",
        policy: ledger_recovery.Policy = "ask",
        handler: Callable[[Reply[R]], object] | None = None,
        reply_policy: ReplyPolicy | None = None,
    ) -> Recovery:
        """Returns where the last request stands, A to E, what that rests on and what to do.

        rid: the request that the client last meant to send, if it knows. acknowledged: it knows
        that this send returned. by: what may be looked at; the "reply queue" alone cannot tell
        A, B and D apart, and "history" needs the rid. A ledger knows all that: with one, policy
        says what is done with a request that was constructed and not submitted (A): "resubmit"
        sends it, "discard" gives it up, "ask" leaves it to `resubmit()` or `discard()`. In E, when
        the repository went back, one of these two is always a person's decision. Source: BN09 4.3.
        handler, reply_policy: both or none; as for `process`, but no reply is waited for, and in E
        none is processed. What became of each is `processed` of the answer (C14).
        """
        names.check_rid(rid)
        names.check_flag("acknowledged", acknowledged)
        names.check_choice("by", by, recovery.BASES)
        names.check_choice("policy", policy, ledger_recovery.POLICIES)
        if self._kept is None:
            if policy != "ask":
                raise no_ledger(f"recover(policy={policy!r})")
            find = partial(recovery.recover, self._session, rid, acknowledged=acknowledged, by=by)
        else:
            if rid is not None or acknowledged or by != "session":
                refuse_with_ledger(self._kept, "recover(rid)")
            find = partial(ledger_recovery.recovered, self._kept, policy)
        if handler is None and reply_policy is None:
            return await self._run(find())
        process = self._processed(handler, reply_policy, 0.0, waits=False)
        return await self._run(processing.recover(find, process))

    async def done(self, reply: Reply[R]) -> None:
        """Notes in the ledger that a reply was processed. The next send notes it too."""
        kept = needs_ledger(self._kept, "done")
        await self._run(whole(kept, ledger_program.finish(kept, reply.rid)))

    def transaction(self) -> AbstractAsyncContextManager[Work[T, R, Any]]:
        """A transaction of the client where its ledger is: its own SQL, one send, one `done`.

        All of it commits at the end of the block, or none. With SqliteLedger the send follows the
        commit: a crash between them leaves state A.
        """
        link = self._link
        if self._kept is None or not isinstance(link, AsyncLedgerLink):
            raise no_ledger("transaction")
        ledger_program.ready(self._kept)
        return self._block(self._kept, link)

    @asynccontextmanager
    async def _block(self, kept: Kept, link: AsyncLedgerLink) -> AsyncGenerator[Work[T, R, Any]]:
        await self._run(ledger_program.open_block(kept))
        work: Work[T, R, Any] = Work(kept, link.executor.connection)
        try:
            yield work
        except BaseException as error:
            with still(error):
                await self._go_on(ledger_program.close_block(kept, None))
            raise
        await self._go_on(ledger_program.close_block(kept, work.unit))

    async def resubmit(self) -> None:
        """Sends the request that the ledger has (A; or E, when a person has decided so)."""
        kept = needs_ledger(self._kept, "resubmit")
        await self._run(whole(kept, ledger_program.resubmit(kept)))

    async def discard(self) -> None:
        """Gives up the request that the ledger has (A; or E, then `recover()` again)."""
        kept = needs_ledger(self._kept, "discard")
        await self._run(whole(kept, ledger_program.discard(kept)))


class AsyncLedgerClerk(AsyncClerk[T, R], Generic[T, R, C]):
    """An AsyncClerk with a ledger, by the name that says what its transactions give: a C."""

    __slots__ = ()

    if TYPE_CHECKING:

        def transaction(self) -> AbstractAsyncContextManager[Work[T, R, C]]:
            """See AsyncClerk.transaction."""
            ...
