"""AsyncSeat: what a clerk has at a desk, in place of a link with a connection of its own.

It runs the clerk's Programs as a link does. What its session would note in a connection of its own,
such as that it sleeps, it leaves out; and it refuses what needs one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from onceq.engine.desk.async_desk import AsyncDesk
from onceq.engine.desk.seated import seated_op
from onceq.engine.desk.sleeper import AsyncSleeper
from onceq.engine.perform.differing import async_act
from onceq.engine.wake.waiting import Pause
from onceq.errors import CannotConnect, IllegalState
from onceq.model import ops

if TYPE_CHECKING:
    from onceq.engine.sessions.silence import Patience

T = TypeVar("T")

REFUSED: Final = frozenset({ops.Post, ops.Posted, ops.BeginWork, ops.TakeReply})
"""What needs a connection of the clerk's own."""


class AsyncSeat(ops.RunsAsync):
    """A clerk's place at a desk. whose: what an error calls it."""

    def __init__(self, desk: AsyncDesk, whose: str) -> None:
        self._desk = desk
        self._whose = whose
        self._sleeper: AsyncSleeper | None = None
        self._pause = Pause(rung=True)
        self._patience: Patience | None = None

    @property
    def repository(self) -> str:
        """The name of the repository."""
        return self._desk.repository

    @property
    def connection(self) -> NoReturn:
        """There is none. IllegalState."""
        raise _refusal(self._whose)

    async def reconnect(self) -> None:
        """Takes a place at the desk, which connects by itself. CannotConnect: it is closed."""
        sleeper = self._desk.sleeper()
        await self.close()
        self._sleeper = sleeper

    @contextlib.contextmanager
    def bounded(self, patience: Patience | None) -> Generator[None]:
        """A block in which an answer is waited for with this patience; None: that of around it."""
        before = self._patience
        self._patience = patience or before
        try:
            yield
        finally:
            self._patience = before

    async def run(self, program: ops.Program[T], patience: Patience | None = None) -> T:
        """Runs a Program. patience: None: that of the block around it."""
        before, self._patience = self._patience, patience or self._patience
        try:
            return await super().run(program)
        finally:
            self._patience = before

    async def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op."""
        answer: Any
        if isinstance(op, ops.Act):
            answer = await async_act(op)
        elif isinstance(op, ops.Wait):
            answer = await self._wait(op)
        elif type(op) in REFUSED:
            raise _refusal(self._whose)
        else:
            patience = self._patience
            wait_s = None if patience is None else patience.left_s(time.monotonic())
            answer = await self._desk.ask(seated_op(op, self._taken().text), wait_s)
        return answer  # type: ignore[no-any-return] # typed by the Op

    async def _wait(self, op: ops.Wait) -> bool:
        delay_s = self._pause.next(op, time.monotonic())
        if delay_s is None:
            return False
        if await self._taken().wait(delay_s):
            self._pause.again(op.key)
        return True

    def _taken(self) -> AsyncSleeper:
        if self._sleeper is None:
            raise CannotConnect(f"{self._whose} is not connected: connect() first")
        return self._sleeper

    def _leave(self) -> None:
        """It holds nothing between Ops."""

    async def close(self) -> None:
        """Leaves the desk; idempotent."""
        if self._sleeper is not None:
            self._sleeper.close()
            self._sleeper = None


def _refusal(whose: str) -> IllegalState:
    return IllegalState(
        f"{whose} has no connection of its own, which a one-way send and a transaction of the "
        "client's need: use `QueueManager.clerk` for it"
    )
