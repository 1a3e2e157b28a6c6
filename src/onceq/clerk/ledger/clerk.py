"""LedgerClerk and AsyncLedgerClerk: a client that keeps a record of its own (BN09 figure 4.6).

Made by `QueueManager.clerk(..., ledger=...)`. One request at a time. After each connect comes
`recover`, before anything else.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onceq.clerk import program as clerk_program
from onceq.clerk import receiving
from onceq.clerk.calls import Calls
from onceq.clerk.ledger import program, recovery, whole
from onceq.clerk.ledger.kind import check_ledger
from onceq.clerk.ledger.program import Kept, Unit
from onceq.clerk.ledger.runner import AsyncLedgerLink, LedgerLink
from onceq.engine.silence import waiting, within
from onceq.errors import IllegalState, OnceqError
from onceq.model import names
from onceq.model.element import SendAttributes
from onceq.model.ledger import Attributes, LastRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from types import TracebackType
    from typing import Self, Unpack

    from onceq.clerk.ledger.kind import Ledger
    from onceq.clerk.ledger.recovery import Policy
    from onceq.clerk.session import Reply
    from onceq.engine.async_connection import AsyncLink
    from onceq.engine.connection import Link
    from onceq.engine.silence import Patience
    from onceq.model.client_state import Recovery
    from onceq.model.element import KillAnswer
    from onceq.model.ops import Program
    from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")
A = TypeVar("A")


class Work(Generic[T, R, C]):
    """What a transaction of the client is to do. connection: for its own SQL, where the ledger is.

    Leave committing, rolling back and preparing to the block.
    """

    def __init__(self, calls: _LedgerCalls[T, R], connection: C) -> None:
        self.connection = connection
        self.unit = Unit()
        self._calls = calls

    def send(self, rid: str, request: T, **attributes: Unpack[SendAttributes]) -> None:
        """Sends a request when the block commits; one in a block. See Clerk.send."""
        if self.unit.request is not None:
            raise IllegalState("one request in a transaction: the first is there already")
        self.unit.request = self._calls.request(rid, request, attributes)
        self._calls.check_send(self.unit)

    def done(self, reply: Reply[R]) -> None:
        """Notes, when the block commits, that a reply was processed in it."""
        program.may_finish(self._calls.kept, reply.rid)
        self.unit.done = reply.rid


class _LedgerCalls(Calls[T, R]):
    """What both ledger clerks know and check."""

    def __init__(
        self,
        name: str,
        queue: Queue[T, R],
        ledger: Ledger[Any, Any],
        who: Callable[[], object],
        *,
        repository: str,
        thread: str,
    ) -> None:
        check_ledger(f"the clerk of client {name!r}", ledger)
        super().__init__(name, queue, who, thread=thread, window=1)
        self.kept = Kept(session=self._session, joint=ledger.joint, repository=repository)

    def request(self, rid: str, request: T, attributes: SendAttributes) -> LastRequest:
        """Returns a request as the ledger keeps it. InvalidName, InvalidValue."""
        names.check_id("rid", rid)
        names.check_keywords("send, with a ledger,", attributes, SendAttributes)
        names.check_attributes(attributes)
        body = self._session.queue.encode_request(request)
        return LastRequest(rid=rid, body=body, attributes=Attributes(**attributes))

    def check_send(self, unit: Unit) -> None:
        """Raises IllegalState where nothing may be sent now."""
        if unit.done is None:
            program.may_send(self.kept)

    def _policy(self, policy: Policy) -> Policy:
        names.check_choice("policy", policy, recovery.POLICIES)
        return policy


@contextmanager
def _still(ended_by: BaseException) -> Generator[None]:
    """A rollback that fails after a cancellation, or Ctrl-C, does not take its place."""
    try:
        yield
    except OnceqError as error:
        if isinstance(ended_by, Exception):
            raise
        ended_by.add_note(f"its transaction could not be rolled back: {error}")


class LedgerClerk(_LedgerCalls[T, R], Generic[T, R, C]):
    """A client's session with a repository, and its own ledger.

    As `Clerk`, for one request at a time, and with what only a ledger can say. After InDoubt, or a
    call that was cut short, `connect()` and `recover()`. Source: BN09 4.3.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        queue: Queue[T, R],
        ledger: Ledger[C, Any],
        *,
        repository: str,
        thread: str = "",
    ) -> None:
        super().__init__(
            name, queue, ledger, threading.get_ident, repository=repository, thread=thread
        )
        self._link = LedgerLink(link, ledger)

    def _perform(self, call: Program[A], patience: Patience | None = None) -> A:
        with self._alone, self._link.bounded(patience):
            return self._link.run(call)

    def _run(self, call: Program[A], patience: Patience | None = None) -> A:
        return self._perform(whole.whole(self.kept, call), patience)

    def connect(self, *, timeout_s: float | None = None) -> Self:
        """Begins a new life, in the repository and on the ledger; fences the former one in both.

        timeout_s: as of Clerk.connect, for the repository. What a former life has left prepared
        ends as the repository decided. LedgerRefused.
        """
        with self._alone, self._link.bounded(within(names.check_timeout(timeout_s))):
            self._link.reconnect()
            self._link.run(program.connect(self.kept, uuid.uuid4().hex))
        return self

    def recover(self, *, policy: Policy = "ask") -> Recovery:
        """Returns where the last request stands, A to E, and what that rests on; first in a life.

        policy: what is done with a request that was constructed and not submitted (A): "resubmit"
        sends it, "discard" gives it up, "ask" leaves it to `resubmit()` or `discard()`. In E, when
        the repository went back, one of these two is always a person's decision.
        """
        return self._run(recovery.recover(self.kept, self._policy(policy)))

    def send(
        self,
        rid: str,
        request: T,
        *,
        timeout_s: float | None = None,
        **attributes: Unpack[SendAttributes],
    ) -> None:
        """Notes a request in the ledger, then sends it; see Clerk.send."""
        send = program.send(self.kept, self.request(rid, request, attributes))
        self._run(send, within(names.check_timeout(timeout_s)))

    def receive(self, *, timeout_s: float | None = None) -> Reply[R]:
        """Returns the reply. It comes again after a crash, until it is `done`."""
        program.ready(self.kept)
        receive = whole.beside(self.kept, self._receive(None, timeout_s, None, 1))
        return self._perform(receive, waiting(timeout_s))[0]

    def done(self, reply: Reply[R]) -> None:
        """Notes in the ledger that a reply was processed. The next send notes it too."""
        self._run(program.finish(self.kept, reply.rid))

    @contextmanager
    def transaction(self) -> Generator[Work[T, R, C]]:
        """A transaction of the client where its ledger is: its own SQL, one send, one `done`.

        All of it commits at the end of the block, or none. With SqliteLedger the send follows the
        commit: a crash between them leaves state A.
        """
        program.ready(self.kept)
        self._perform(program.open_block(self.kept))
        work: Work[T, R, C] = Work(self, self._link.executor.connection)
        try:
            yield work
        except BaseException as error:
            with _still(error):
                self._perform(program.close_block(self.kept, None))
            raise
        self._perform(program.close_block(self.kept, work.unit))

    def transceive(self, rid: str, request: T, *, timeout_s: float | None = None) -> Reply[R]:
        """Sends a request and receives its reply."""
        names.check_timeout(timeout_s)
        send = program.send(self.kept, self.request(rid, request, {}))
        self._run(send, waiting(timeout_s))
        return self.receive(timeout_s=timeout_s)

    def rereceive(self) -> Reply[R]:
        """Returns the reply of the last receive again, identical. ReplyGone: it was freed."""
        return self._perform(whole.beside(self.kept, receiving.rereceive(self._session)))

    def resubmit(self) -> None:
        """Sends the request that the ledger has (A; or E, when a person has decided so)."""
        self._run(program.resubmit(self.kept))

    def discard(self) -> None:
        """Gives up the request that the ledger has (A; or E, then `recover()` again)."""
        self._run(program.discard(self.kept))

    def cancel_last_request(self, *, timeout_s: float = 10.0) -> KillAnswer:
        """See Clerk.cancel_last_request."""
        cancel = whole.beside(self.kept, self._cancel(timeout_s))
        return self._perform(cancel, waiting(timeout_s))

    def disconnect(self) -> None:
        """Ends the session; see Clerk.disconnect. The ledger stays as it is."""
        self._perform(whole.beside(self.kept, clerk_program.disconnect(self._session)))

    def close(self) -> None:
        """Closes the connections; session and ledger stay. Idempotent."""
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


class AsyncLedgerClerk(_LedgerCalls[T, R], Generic[T, R, C]):
    """`LedgerClerk`, for asyncio: the same methods, awaited."""

    def __init__(
        self,
        link: AsyncLink,
        name: str,
        queue: Queue[T, R],
        ledger: Ledger[Any, C],
        *,
        repository: str,
        thread: str = "",
    ) -> None:
        super().__init__(
            name, queue, ledger, asyncio.current_task, repository=repository, thread=thread
        )
        self._link = AsyncLedgerLink(link, ledger)

    async def _perform(self, call: Program[A], patience: Patience | None = None) -> A:
        with self._alone, self._link.bounded(patience):
            return await self._link.run(call)

    async def _run(self, call: Program[A], patience: Patience | None = None) -> A:
        return await self._perform(whole.whole(self.kept, call), patience)

    async def connect(self, *, timeout_s: float | None = None) -> Self:
        """See LedgerClerk.connect."""
        with self._alone, self._link.bounded(within(names.check_timeout(timeout_s))):
            await self._link.reconnect()
            await self._link.run(program.connect(self.kept, uuid.uuid4().hex))
        return self

    async def recover(self, *, policy: Policy = "ask") -> Recovery:
        """See LedgerClerk.recover."""
        return await self._run(recovery.recover(self.kept, self._policy(policy)))

    async def send(
        self,
        rid: str,
        request: T,
        *,
        timeout_s: float | None = None,
        **attributes: Unpack[SendAttributes],
    ) -> None:
        """See LedgerClerk.send."""
        send = program.send(self.kept, self.request(rid, request, attributes))
        await self._run(send, within(names.check_timeout(timeout_s)))

    async def receive(self, *, timeout_s: float | None = None) -> Reply[R]:
        """See LedgerClerk.receive."""
        program.ready(self.kept)
        receive = whole.beside(self.kept, self._receive(None, timeout_s, None, 1))
        return (await self._perform(receive, waiting(timeout_s)))[0]

    async def done(self, reply: Reply[R]) -> None:
        """See LedgerClerk.done."""
        await self._run(program.finish(self.kept, reply.rid))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Work[T, R, C]]:
        """See LedgerClerk.transaction."""
        program.ready(self.kept)
        await self._perform(program.open_block(self.kept))
        work: Work[T, R, C] = Work(self, self._link.executor.connection)
        try:
            yield work
        except BaseException as error:
            with _still(error):
                await self._perform(program.close_block(self.kept, None))
            raise
        await self._perform(program.close_block(self.kept, work.unit))

    async def transceive(self, rid: str, request: T, *, timeout_s: float | None = None) -> Reply[R]:
        """See LedgerClerk.transceive."""
        names.check_timeout(timeout_s)
        send = program.send(self.kept, self.request(rid, request, {}))
        await self._run(send, waiting(timeout_s))
        return await self.receive(timeout_s=timeout_s)

    async def rereceive(self) -> Reply[R]:
        """See LedgerClerk.rereceive."""
        return await self._perform(whole.beside(self.kept, receiving.rereceive(self._session)))

    async def resubmit(self) -> None:
        """See LedgerClerk.resubmit."""
        await self._run(program.resubmit(self.kept))

    async def discard(self) -> None:
        """See LedgerClerk.discard."""
        await self._run(program.discard(self.kept))

    async def cancel_last_request(self, *, timeout_s: float = 10.0) -> KillAnswer:
        """See LedgerClerk.cancel_last_request."""
        cancel = whole.beside(self.kept, self._cancel(timeout_s))
        return await self._perform(cancel, waiting(timeout_s))

    async def disconnect(self) -> None:
        """See LedgerClerk.disconnect."""
        await self._perform(whole.beside(self.kept, clerk_program.disconnect(self._session)))

    async def close(self) -> None:
        """See LedgerClerk.close."""
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
