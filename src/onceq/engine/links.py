"""The connections of a queue manager: each call has its own, so threads may share the manager.

Used by QueueManager and AsyncQueueManager. A call takes a free connection, or makes a new one. A
connection that broke, or that a cut-short call left, is made anew for the next call. A call
is never made twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from onceq.engine import silence
from onceq.engine.async_connection import AsyncLink
from onceq.engine.connection import Link
from onceq.engine.waiting import Wakes
from onceq.errors import CannotConnect, DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from onceq.engine.locate import Located
    from onceq.engine.silence import Patience
    from onceq.model import ops

T = TypeVar("T")

MOST: Final = 8
"""Connections of one manager, and so the number of its calls at the same time."""
TURN_S: Final = 30.0
"""How long a call waits for a free connection, if it has no time limit of its own."""

CLOSED: Final = "this queue manager is closed: connect() first"


def _no_turn(wait_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"none of the {MOST} connections of this queue manager was free within {wait_s:g} s, and "
        "nothing happened: open another manager for what waits long"
    )


class Links:
    """The links of a manager; for any number of threads."""

    def __init__(self, located: Located, repository: str) -> None:
        self._located = located
        self._repository = repository
        self._turns = threading.BoundedSemaphore(MOST)
        self._free: list[Link] = []
        self._is_open = False

    def _new(self) -> Link:
        return Link(self._located, self._repository, wakes=Wakes())

    def connect(self, timeout_s: float | None = None) -> None:
        """Connects once, so that errors show now: CannotConnect, SchemaMissing."""
        self._is_open = True
        with self.borrowed(timeout_s, silence.within(timeout_s)):
            pass

    def run(self, program: ops.Program[T], wait_s: float | None = None) -> T:
        """Runs a Program on a connection of its own. DeadlineExceeded: none was free in time.

        wait_s: when it ends by itself, which also limits a silent link; None: never.
        """
        with self.borrowed(wait_s, silence.waiting(wait_s)) as link:
            return link.run(program)

    def perform(self, op: ops.Op[T], wait_s: float | None = None) -> T:
        """Performs one Op; see `run`."""
        with self.borrowed(wait_s, silence.waiting(wait_s)) as link:
            return link.perform(op)

    @contextlib.contextmanager
    def borrowed(
        self, wait_s: float | None = None, patience: Patience | None = None
    ) -> Generator[Link]:
        """A connection for the time of a block. wait_s: for a free one; None or 0: TURN_S."""
        if not self._is_open:
            raise CannotConnect(CLOSED)
        if not self._turns.acquire(timeout=wait_s or TURN_S):
            raise _no_turn(wait_s or TURN_S)
        try:
            link = self._free.pop() if self._free else self._new()
            try:
                with link.bounded(patience):
                    link.reconnect()
                    yield link
            finally:
                self._give_back(link)
        finally:
            self._turns.release()

    def _give_back(self, link: Link) -> None:
        if self._is_open:
            self._free.append(link)
        else:
            link.close()

    def close(self) -> None:
        """Closes what is free now, and every other one when its call is over; idempotent."""
        self._is_open = False
        while self._free:
            self._free.pop().close()


class AsyncLinks:
    """`Links`, for any number of tasks of one loop."""

    def __init__(self, located: Located, repository: str) -> None:
        self._located = located
        self._repository = repository
        self._turns = asyncio.BoundedSemaphore(MOST)
        self._free: list[AsyncLink] = []
        self._is_open = False

    def _new(self) -> AsyncLink:
        return AsyncLink(self._located, self._repository, wakes=Wakes())

    async def connect(self, timeout_s: float | None = None) -> None:
        """See Links.connect."""
        self._is_open = True
        async with self.borrowed(timeout_s, silence.within(timeout_s)):
            pass

    async def run(self, program: ops.Program[T], wait_s: float | None = None) -> T:
        """See Links.run."""
        async with self.borrowed(wait_s, silence.waiting(wait_s)) as link:
            return await link.run(program)

    async def perform(self, op: ops.Op[T], wait_s: float | None = None) -> T:
        """See Links.perform."""
        async with self.borrowed(wait_s, silence.waiting(wait_s)) as link:
            return await link.perform(op)

    @contextlib.asynccontextmanager
    async def borrowed(
        self, wait_s: float | None = None, patience: Patience | None = None
    ) -> AsyncGenerator[AsyncLink]:
        """See Links.borrowed."""
        if not self._is_open:
            raise CannotConnect(CLOSED)
        try:
            await asyncio.wait_for(self._turns.acquire(), wait_s or TURN_S)
        except TimeoutError as error:
            raise _no_turn(wait_s or TURN_S) from error
        try:
            link = self._free.pop() if self._free else self._new()
            try:
                with link.bounded(patience):
                    await link.reconnect()
                    yield link
            finally:
                await self._give_back(link)
        finally:
            self._turns.release()

    async def _give_back(self, link: AsyncLink) -> None:
        if self._is_open:
            self._free.append(link)
        else:
            await link.close()

    async def close(self) -> None:
        """See Links.close."""
        self._is_open = False
        while self._free:
            await self._free.pop().close()
