"""AsyncSeat: what a clerk has at a desk, in place of a link with a connection of its own.

It runs the clerk's Programs as a link does. What its session would note in a connection of its own,
such as that it sleeps, it leaves out; and it refuses what needs one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from onceq.engine.desk.async_desk import AsyncDesk
from onceq.engine.desk.seated import seated_op
from onceq.engine.desk.sleeper import AsyncSleeper
from onceq.engine.perform.differing import async_act
from onceq.errors import CannotConnect, IllegalState
from onceq.model import ops
from onceq.model.names import whose

if TYPE_CHECKING:
    from types import CoroutineType

    from onceq.engine.sessions.silence import Patience

T = TypeVar("T")

REFUSED: Final = frozenset({ops.Post, ops.Posted, ops.BeginWork, ops.TakeReply})
"""What needs a connection of the clerk's own."""


class AsyncSeat(ops.RunsAsync):
    """A clerk's place at a desk. name: of its client."""

    __slots__ = ("_desk", "_name", "_patience", "_sleeper")

    def __init__(self, desk: AsyncDesk, name: str) -> None:
        self._desk = desk
        self._name = name
        self._sleeper: AsyncSleeper | None = None
        self._patience: Patience | None = None

    @property
    def repository(self) -> str:
        """The name of the repository."""
        return self._desk.repository

    @property
    def connection(self) -> NoReturn:
        """There is none. IllegalState."""
        raise _refusal(self._name)

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

    def run(
        self, program: ops.Program[T], patience: Patience | None = None
    ) -> CoroutineType[Any, Any, T]:
        """Runs a Program. patience: None: that of the block around it."""
        call: Any = super().run(program) if patience is None else self._run(program, patience)
        return call  # type: ignore[no-any-return] # checkers differ in the name of its class

    async def _run(self, program: ops.Program[T], patience: Patience) -> T:
        before, self._patience = self._patience, patience
        try:
            return await super().run(program)
        finally:
            self._patience = before

    def perform(self, op: ops.Op[T]) -> Awaitable[T]:
        """Performs one Op."""
        answer: Any
        if isinstance(op, ops.Act):
            answer = async_act(op)
        elif isinstance(op, ops.Wait):
            answer = self._taken().wait(op)
        elif type(op) in REFUSED:
            raise _refusal(self._name)
        else:
            patience = self._patience
            wait_s = None if patience is None else patience.left_s(time.monotonic())
            answer = self._desk.ask(seated_op(op, self._taken().text), wait_s)
        return answer  # type: ignore[no-any-return] # typed by the Op

    def _taken(self) -> AsyncSleeper:
        if self._sleeper is None:
            raise CannotConnect(f"{whose(self._name)} is not connected: connect() first")
        return self._sleeper

    def _leave(self) -> None:
        """It holds nothing between Ops."""

    async def close(self) -> None:
        """Leaves the desk; idempotent."""
        if self._sleeper is not None:
            self._sleeper.close()
            self._sleeper = None


def _refusal(name: str) -> IllegalState:
    return IllegalState(
        f"{whose(name)} has no connection of its own, which a one-way send and a transaction of "
        "the client's need: use `QueueManager.clerk` for it"
    )
