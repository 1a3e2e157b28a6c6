"""AsyncRunning: how a client's Programs are run on its link: one life at a time, and one call.

The base of AsyncClerk, with what is not a call of its own.
"""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from onceq.clerk import program, transactions
from onceq.clerk.alone import AsyncAlone
from onceq.clerk.ledger import program as ledger_program
from onceq.clerk.ledger.async_runner import AsyncLedgerLink
from onceq.clerk.ledger.program import kept_beside
from onceq.clerk.ledger.whole import refuse_working
from onceq.clerk.session import ClerkOptions, Reply, session_of
from onceq.clerk.shown import Shown
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.unwrap import AsyncCallers
from onceq.engine.desk.async_seat import AsyncSeat
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.sessions.session import in_transaction, is_broken
from onceq.engine.sessions.silence import Patience, waiting, within
from onceq.errors import IllegalState, OnceqError
from onceq.model import names
from onceq.model.ops import Program
from onceq.model.queue import Queue

if TYPE_CHECKING:
    from onceq.clerk.ledger.program import Kept

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")


class AsyncRunning(Shown[T, R]):
    """A client's session on a link, which may have a ledger beside it.

    A call is refused while another caller's is under way, or while nobody knows how a transaction
    of the client's own will end, or has ended.
    """

    __slots__ = ("_alone", "_caller", "_callers", "_is_taking", "_kept", "_link")

    def __init__(
        self,
        link: AsyncLink | AsyncSeat | AsyncLedgerLink,
        name: str,
        queue: Queue[T, R],
        **options: Unpack[ClerkOptions],
    ) -> None:
        super().__init__(session_of(name, queue, options))
        self._link = link
        self._kept: Kept | None = None
        if isinstance(link, AsyncLedgerLink):
            self._kept = kept_beside(self._session, link.joint, link.repository)
        self._alone = AsyncAlone()
        self._callers: AsyncCallers | None = None
        self._caller: AsyncPostgresDriver | None = None
        self._is_taking = False

    async def connect(self, *, timeout_s: float | None = None) -> Self:
        """Begins a new life, on a new connection if the old one broke; fences the former life.

        timeout_s: when to give up, with CannotConnect or InDoubt; at least 2 s for a host that is
        silent. None: when TCP gives up, and after `connect_timeout`. With a ledger it fences the
        former life there too, and what that has left prepared ends as the repository decided; then
        `recover` comes before anything else. LedgerRefused.
        """
        with self._alone:
            self._refuse_open()
            with self._link.bounded(within(names.check_timeout(timeout_s))):
                await self._link.reconnect()
                if self._kept is None:
                    await self._link.run(program.connect(self._session))
                else:
                    life = uuid.uuid4().hex
                    await self._link.run(ledger_program.connect(self._kept, life))
            self._is_taking = False
        return self

    async def _run(self, call: Program[A], patience: Patience | None = None) -> A:
        """Runs a Program, once it is known what became of the reply that was taken last."""
        with self._alone:
            await self._settle(patience)
            return await self._link.run(call, patience)

    async def _settle(self, patience: Patience | None) -> None:
        """Finds out what became of the reply that was taken last. IllegalState: that is open."""
        if self._kept is not None:
            refuse_working(self._kept)
        if self._session.taken is not None:
            await self._link.run(transactions.settle_taken(self._session), patience)

    async def _go_on(self, call: Program[A]) -> A:
        """Runs a Program that ends what is under way."""
        with self._alone:
            return await self._link.run(call)

    def _refuse_open(self) -> None:
        """Refuses to wait for this client's own transaction: it would wait for ever.

        It also refuses if a receive in it was cut short, which may have taken the reply.
        """
        has_taken = self._is_taking or self._session.taken is not None
        if not has_taken or self._caller is None:
            return
        connection = self._caller.connection
        if in_transaction(connection) and not is_broken(connection):
            raise IllegalState("a reply was received in a transaction that is still open: end it")

    async def _receive_in(
        self, connection: Any, checkpoint: bytes | None, timeout_s: float | None, rid: str | None
    ) -> Reply[R]:
        """Receives a reply in the transaction of the caller's connection."""
        ckpt, wait_s = names.check_tag(checkpoint, "checkpoint"), names.check_timeout(timeout_s)
        begin = transactions.begin(self._session, names.check_rid(rid), wait_s)
        with self._alone:
            self._callers = self._callers or AsyncCallers(self._link.repository)
            caller = await self._callers.driver(connection, self._link.connection)
            reply = await self._link.run(begin, waiting(wait_s))
            take = transactions.take_op(self._session, reply.rid, ckpt)
            self._session.sure = False  # if this is cut short, the next life must look
            self._caller, self._is_taking = caller, True
            try:
                xid = await caller.perform(take)
            except OnceqError:
                self._session.sure, self._is_taking = True, False
                await self._link.run(transactions.give_back(self._session, reply.rid))
                raise
            self._session.taken = (reply.rid, xid, ckpt)
            self._session.sure, self._is_taking = True, False
            return reply

    async def close(self) -> None:
        """Closes the connection; session and ledger stay. Idempotent."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        try:
            return await self.connect()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
