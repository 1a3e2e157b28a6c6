"""AsyncLedgerClerk: a client that keeps a record of its own (BN09 figure 4.6).

Made by `AsyncQueueManager.clerk(..., ledger=...)`. One request at a time. After each connect comes
`recover`, before anything else.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from onceq.clerk import program as clerk_program
from onceq.clerk import receiving
from onceq.clerk.ledger import program, recovery, whole
from onceq.clerk.ledger.work import LedgerCalls, Work, still
from onceq.clerk.session import session_of
from onceq.engine.sessions.silence import waiting, within
from onceq.model import names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType
    from typing import Self, Unpack

    from onceq.clerk.ledger.async_runner import AsyncLedgerLink
    from onceq.clerk.ledger.recovery import Policy
    from onceq.clerk.session import ClerkOptions, Reply
    from onceq.engine.sessions.silence import Patience
    from onceq.model.client_state import Recovery
    from onceq.model.element import KillAnswer, RequestAttributes
    from onceq.model.ops import Program
    from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")
A = TypeVar("A")


class AsyncLedgerClerk(LedgerCalls[T, R], Generic[T, R, C]):
    """A client's session with a repository, and its own ledger.

    As `Clerk`, for one request at a time, and with what only a ledger can say. After InDoubt, or a
    call that was cut short, `connect()` and `recover()`. Source: BN09 4.3.
    """

    def __init__(
        self,
        link: AsyncLedgerLink,
        name: str,
        queue: Queue[T, R],
        **options: Unpack[ClerkOptions],
    ) -> None:
        super().__init__(session_of(name, queue, options), link, asyncio.current_task)
        self._link = link

    async def _perform(self, call: Program[A], patience: Patience | None = None) -> A:
        with self._alone, self._link.bounded(patience):
            return await self._link.run(call)

    async def _run(self, call: Program[A], patience: Patience | None = None) -> A:
        return await self._perform(whole.whole(self.kept, call), patience)

    async def connect(self, *, timeout_s: float | None = None) -> Self:
        """Begins a new life, in the repository and on the ledger; fences the former one in both.

        timeout_s: as of Clerk.connect, for the repository. What a former life has left prepared
        ends as the repository decided. LedgerRefused.
        """
        with self._alone, self._link.bounded(within(names.check_timeout(timeout_s))):
            await self._link.reconnect()
            await self._link.run(program.connect(self.kept, uuid.uuid4().hex))
        return self

    async def recover(self, *, policy: Policy = "ask") -> Recovery:
        """Returns where the last request stands, A to E, and what that rests on; first in a life.

        policy: what is done with a request that was constructed and not submitted (A): "resubmit"
        sends it, "discard" gives it up, "ask" leaves it to `resubmit()` or `discard()`. In E, when
        the repository went back, one of these two is always a person's decision.
        """
        return await self._run(recovery.recover(self.kept, self.policy(policy)))

    async def send(
        self,
        rid: str,
        request: T,
        *,
        timeout_s: float | None = None,
        **attributes: Unpack[RequestAttributes],
    ) -> None:
        """Notes a request in the ledger, then sends it; see Clerk.send."""
        send = program.send(self.kept, self.request(rid, request, attributes))
        await self._run(send, within(names.check_timeout(timeout_s)))

    async def receive(self, *, timeout_s: float | None = None) -> Reply[R]:
        """Returns the reply. It comes again after a crash, until it is `done`."""
        program.ready(self.kept)
        wait_s = names.check_timeout(timeout_s)
        receive = receiving.receive(self._session, ckpt=None, rid=None, limit=1, timeout_s=wait_s)
        (reply,) = await self._perform(whole.beside(self.kept, receive), waiting(wait_s))
        return reply

    async def done(self, reply: Reply[R]) -> None:
        """Notes in the ledger that a reply was processed. The next send notes it too."""
        await self._run(program.finish(self.kept, reply.rid))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Work[T, R, C]]:
        """A transaction of the client where its ledger is: its own SQL, one send, one `done`.

        All of it commits at the end of the block, or none. With SqliteLedger the send follows the
        commit: a crash between them leaves state A.
        """
        program.ready(self.kept)
        await self._perform(program.open_block(self.kept))
        work: Work[T, R, C] = Work(self, self._link.executor.connection)
        try:
            yield work
        except BaseException as error:
            with still(error):
                await self._perform(program.close_block(self.kept, None))
            raise
        await self._perform(program.close_block(self.kept, work.unit))

    async def transceive(self, rid: str, request: T, *, timeout_s: float | None = None) -> Reply[R]:
        """Sends a request and receives its reply."""
        names.check_timeout(timeout_s)
        send = program.send(self.kept, self.request(rid, request, {}))
        await self._run(send, waiting(timeout_s))
        return await self.receive(timeout_s=timeout_s)

    async def rereceive(self) -> Reply[R]:
        """Returns the reply of the last receive again, identical. ReplyGone: it was freed."""
        return await self._perform(whole.beside(self.kept, receiving.rereceive(self._session)))

    async def resubmit(self) -> None:
        """Sends the request that the ledger has (A; or E, when a person has decided so)."""
        await self._run(program.resubmit(self.kept))

    async def discard(self) -> None:
        """Gives up the request that the ledger has (A; or E, then `recover()` again)."""
        await self._run(program.discard(self.kept))

    async def cancel_last_request(self, *, timeout_s: float = 10.0) -> KillAnswer:
        """See Clerk.cancel_last_request."""
        wait_s = names.check_timeout(timeout_s)
        longest_s = names.TIMEOUT_S_MAX if wait_s is None else wait_s
        cancel = clerk_program.cancel_last_request(self._session, longest_s)
        return await self._perform(whole.beside(self.kept, cancel), waiting(wait_s))

    async def disconnect(self) -> None:
        """Ends the session; see Clerk.disconnect. The ledger stays as it is."""
        await self._perform(whole.beside(self.kept, clerk_program.disconnect(self._session)))

    async def close(self) -> None:
        """Closes the connections; session and ledger stay. Idempotent."""
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
