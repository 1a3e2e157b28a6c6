"""Runs Programs on a link and a ledger: each Op goes to whichever of the two answers it.

Given to AsyncClerk. Never retries; a failure is thrown into the Program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from onceq.clerk.ledger.kind import Answers, AsyncExecutor, Ledger
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.faultpoints import pointed_answer
from onceq.engine.sessions import silence
from onceq.errors import CannotConnect
from onceq.model.ledger import Joint
from onceq.model.ledger_ops import LEDGER_OPS, Statement
from onceq.model.ops import Op, Program, RunsAsync

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")


class AsyncLedgerLink(RunsAsync):
    """A link, and the ledger beside it: what a clerk with a ledger is given."""

    def __init__(self, link: AsyncLink, ledger: Ledger[Any, Any]) -> None:
        self._link = link
        self._ledger = ledger
        self._answers: Answers = ledger.answers()
        self._executor: AsyncExecutor | None = None
        self._patience: silence.Patience | None = None

    @property
    def repository(self) -> str:
        """The name of the repository."""
        return self._link.repository

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection to the repository. Raises CannotConnect when there is none."""
        return self._link.connection

    @property
    def joint(self) -> Joint:
        """How the ledger is joined to the repository."""
        return self._ledger.joint

    @property
    def executor(self) -> AsyncExecutor:
        """What runs the ledger's statements. Raises CannotConnect when it is closed."""
        if self._executor is None:
            raise CannotConnect("this ledger is closed: connect() first")
        return self._executor

    async def reconnect(self) -> None:
        """Connects the link again if it broke, and opens the ledger anew."""
        await self._close_ledger()
        await self._link.reconnect()
        self._answers = self._ledger.answers()
        self._executor = await self._ledger.open_async(self._link)

    @contextlib.contextmanager
    def bounded(self, patience: silence.Patience | None) -> Generator[None]:
        """A block in which this patience decides when a silent link or ledger is given up."""
        self._patience = patience
        try:
            with self._link.bounded(patience):
                yield
        finally:
            self._patience = None

    async def run(self, program: Program[T], patience: silence.Patience | None = None) -> T:
        """Runs a Program on both. patience: None: that of the block around it."""
        if patience is None:
            return await super().run(program)
        with self.bounded(patience):
            return await super().run(program)

    async def perform(self, op: Op[Any]) -> Any:
        """Performs one Op on the side that it belongs to."""
        if isinstance(op, Statement):
            with silence.bounded(self.executor.connection, self._patience):
                return await self.executor.execute(op)
        if isinstance(op, LEDGER_OPS):
            return await self.run(pointed_answer(op, self._answers.answer(op)))
        return await self._link.perform(op)

    def _leave(self) -> None:
        """Does nothing: a clerk's Program holds nothing here."""

    async def _close_ledger(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            await executor.close()

    async def close(self) -> None:
        """Closes both; idempotent."""
        await self._close_ledger()
        await self._link.close()
