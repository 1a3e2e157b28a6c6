"""The connections of a queue manager: each call has its own, so its tasks may share the manager.

A call takes a free connection, or makes a new one. A connection that broke, or that a cut-short
call left, is made anew for the next call. A call is never made twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final, TypeVar

from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.opening import MOST, TURN_S
from onceq.engine.connect.turns import AsyncTurns
from onceq.engine.embedded.locate import Located
from onceq.engine.sessions import silence
from onceq.engine.sessions.silence import Patience
from onceq.engine.wake.waiting import Wakes
from onceq.errors import CannotConnect
from onceq.model import ops

T = TypeVar("T")

CLOSED: Final = "this queue manager is closed: connect() first"


class AsyncLinks:
    """The links of a manager; for any number of tasks."""

    def __init__(self, located: Located, repository: str) -> None:
        self._located = located
        self._repository = repository
        self._turns = AsyncTurns(MOST)
        self._free: list[AsyncLink] = []
        self._is_open = False

    def _new(self) -> AsyncLink:
        return AsyncLink(self._located, self._repository, wakes=Wakes())

    async def connect(self, timeout_s: float | None = None) -> None:
        """Connects once, so that errors show now: CannotConnect, SchemaMissing, ..."""
        self._is_open = True
        async with self.borrowed(timeout_s, silence.within(timeout_s)):
            pass

    async def run(self, program: ops.Program[T], wait_s: float | None = None) -> T:
        """Runs a Program on a connection of its own. DeadlineExceeded: none was free in time.

        wait_s: after how long it ends by itself, which also limits the wait for a connection and
        for a silent link; None: perhaps never.
        """
        async with self.borrowed(wait_s, silence.waiting(wait_s)) as link:
            return await link.run(program)

    async def perform(self, op: ops.Op[T], wait_s: float | None = None) -> T:
        """Performs one Op; see `run`."""
        async with self.borrowed(wait_s, silence.waiting(wait_s)) as link:
            return await link.perform(op)

    @contextlib.asynccontextmanager
    async def borrowed(
        self, wait_s: float | None = None, patience: Patience | None = None
    ) -> AsyncGenerator[AsyncLink]:
        """A connection for the time of a block. wait_s: for a free one; None or 0: TURN_S."""
        if not self._is_open:
            raise CannotConnect(CLOSED)
        turn = await self._turns.take(wait_s or TURN_S)
        try:
            link = self._free.pop() if self._free else self._new()
            try:
                with link.bounded(patience):
                    await link.reconnect()
                    yield link
            finally:
                await self._give_back(link)
        finally:
            self._turns.give_back(turn)

    async def _give_back(self, link: AsyncLink) -> None:
        if self._is_open:
            self._free.append(link)
        else:
            await link.close()

    async def close(self) -> None:
        """Closes what is free now, and every other one when its call is over; idempotent."""
        self._is_open = False
        while self._free:
            await self._free.pop().close()
