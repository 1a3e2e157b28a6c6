"""AsyncDesk: some connections, and the Ops of any number of clerks, on one event loop.

What clerks ask for while a transaction is under way is the next one. A connection takes whoever
came first, and all that may go along (`model.desk_ops`). Each gets an answer of its own. Whoever
falls out of a group goes alone. If the answer to a COMMIT is lost, each of the group is InDoubt.
Nobody waits for a lock on a connection: an Op that meets one is tried again, later.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.desk.arrivals import Arrivals, Asked, joined
from onceq.engine.desk.sleeper import AsyncSleeper
from onceq.engine.sessions.session import SHARED
from onceq.engine.wake import exchange
from onceq.engine.wake.bell import DEAF_S
from onceq.errors import (
    CannotConnect,
    InDoubt,
    OnceqError,
)
from onceq.model import admin_ops, ops

if TYPE_CHECKING:
    from onceq.engine.embedded.locate import Located
    from onceq.engine.perform.async_driver import AsyncPostgresDriver
    from onceq.engine.wake.desk_bell import DeskBell
    from onceq.engine.wake.exchange import Wire

T = TypeVar("T")

CLOSED: Final = "this desk is closed, and nothing happened: connect() it first"
ENDED: Final = "this desk was ended: whether it took effect is unknown"
MOST_ASKED: Final = 1_000
"""So many Ops wait or are under way; who comes after them waits to become one of them."""
AGAIN_S: Final = 0.01
AGAIN_LONGEST_S: Final = 0.5
"""When an Op that met a lock is tried again, at first and at last."""
TRY_S: Final = 0.02
"""How long an Op waits for a lock on a connection (`session.SHARED`)."""


class DeskLink(AsyncLink):
    """A connection of a desk."""

    async def _begin(self, conninfo: str) -> AsyncPostgresDriver:
        driver = await super()._begin(conninfo)
        await driver.connection.execute(f"select {self.repository}.keep_desk()".encode())
        return driver


class AsyncDesk:
    """A desk with so many connections; it opens them as they are needed."""

    def __init__(self, located: Located, repository: str, connections: int) -> None:
        self._located = located
        self.repository = repository
        self._links = [
            DeskLink(located, repository, whose="this desk", also=SHARED)
            for _ in range(connections)
        ]
        self._free = list(self._links)
        self._arrivals: Arrivals[asyncio.Future[Any]] = Arrivals()
        self._room = asyncio.Semaphore(MOST_ASKED)
        self._serving: set[asyncio.Task[None]] = set()
        self._wire: Wire | None = None

    async def connect(self, timeout_s: float | None = None) -> None:
        """Opens it, and one connection, so that errors show now: CannotConnect, SchemaMissing."""
        if self._wire is None:
            await asyncio.to_thread(self._located.ensure_running)
            self._wire = exchange.join_desk(self._located.conninfo)
            asyncio.get_running_loop().add_reader(self.bell.fileno(), self._hear)
        try:
            await self.ask(admin_ops.Identify(), timeout_s)
        except BaseException:
            await self.close()
            raise

    @property
    def bell(self) -> DeskBell:
        """Where its clerks are rung. CannotConnect: it is closed."""
        if self._wire is None or self._wire.desk is None:
            raise CannotConnect(CLOSED)
        return self._wire.desk

    def sleeper(self) -> AsyncSleeper:
        """Returns what a clerk waits with. CannotConnect: the desk is closed."""
        return AsyncSleeper(self.bell)

    def _hear(self) -> None:
        """Rings whoever is rung; after rubbish it hears nothing for a while."""
        bell = self.bell
        if bell.hear():
            loop = asyncio.get_running_loop()
            loop.remove_reader(bell.fileno())
            loop.call_later(DEAF_S, self._hear_again, bell)

    def _hear_again(self, bell: DeskBell) -> None:
        if self._wire is not None and self._wire.desk is bell:
            asyncio.get_running_loop().add_reader(bell.fileno(), self._hear)

    async def ask(self, op: ops.Op[T], wait_s: float | None = None) -> T:
        """Performs one Op. wait_s: how long the caller waits; None: as long as it takes.

        CannotConnect: the desk is closed, or had no connection for it in time; nothing happened.
        """
        async with self._room:
            _ = self.bell  # CannotConnect: it is closed
            answer_to = asyncio.get_running_loop().create_future()
            asked = self._arrivals.add(op, answer_to, _own_end(op))
            self._begin()
            try:
                if wait_s is not None:
                    await asyncio.wait({asked.answer}, timeout=wait_s)
                    if not asked.answer.done():
                        raise _late(asked, wait_s)
                answer: T = await asked.answer
                return answer
            finally:
                asked.is_dropped = True

    def _begin(self) -> None:
        """Gives the arrivals to a free connection, if there is one."""
        if self._free:
            serving = asyncio.get_running_loop().create_task(self._serve(self._free.pop()))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)

    async def _serve(self, link: DeskLink) -> None:
        try:
            while self._arrivals:
                group = self._arrivals.take()
                if group:
                    await self._perform(link, group)
        finally:
            self._free.append(link)
            if self._arrivals and self._wire is not None:  # a defect ended it
                self._begin()

    async def _perform(self, link: DeskLink, group: list[Asked[asyncio.Future[Any]]]) -> None:
        try:
            op = joined(group)
            if group[0].until is not None:
                op = _briefly(op, group[0].until)
            await link.reconnect()
            answer = await link.perform(op)
        except OnceqError as error:
            self._failed(group, error)
        except BaseException:  # a defect, or the end of the loop
            for asked in group:
                _tell(asked, InDoubt(ENDED))
            raise
        else:
            for asked, told in self._arrivals.answered(group, answer):
                _tell(asked, told)

    def _failed(self, group: list[Asked[asyncio.Future[Any]]], error: OnceqError) -> None:
        """Tells each what became of it; who met a lock comes again, and holds no connection."""
        for asked, told in self._arrivals.failed(group, error, time.monotonic()):
            _tell(asked, told)
        while self._arrivals.later:
            self._later(self._arrivals.later.pop())

    def _later(self, asked: Asked[asyncio.Future[Any]]) -> None:
        delay_s = min(AGAIN_S * 2**asked.tries, AGAIN_LONGEST_S)
        asked.tries = min(asked.tries + 1, 10)
        asyncio.get_running_loop().call_later(delay_s, self._again, asked)

    def _again(self, asked: Asked[asyncio.Future[Any]]) -> None:
        if self._wire is None:
            _tell(asked, CannotConnect(CLOSED))
        elif not asked.is_dropped:
            self._arrivals.put_back([asked])
            self._begin()

    async def close(self) -> None:
        """Ends what is under way, and closes the connections; idempotent. Who waits is told."""
        wire, self._wire = self._wire, None
        if wire is not None and wire.desk is not None:
            asyncio.get_running_loop().remove_reader(wire.desk.fileno())
            wire.desk.ring_all()
        for asked in self._arrivals.take_all():
            _tell(asked, CannotConnect(CLOSED))
        while self._serving:
            await asyncio.wait(self._serving)
        for link in self._links:
            await link.close()
        if wire is not None:
            await asyncio.shield(asyncio.to_thread(wire.close))


def _own_end(op: ops.Op[Any]) -> float | None:
    return time.monotonic() + op.timeout_s if isinstance(op, ops.CancelRequest) else None


def _briefly(op: ops.Op[Any], until: float) -> ops.Op[Any]:
    """Returns an Op that waits for its lock by itself, with a short time."""
    left_s = max(0.0, until - time.monotonic())
    return msgspec.structs.replace(op, timeout_s=min(left_s, TRY_S))


def _late(asked: Asked[Any], wait_s: float) -> OnceqError:
    """Returns the error for a caller who waits no longer."""
    if asked.is_under_way and asked.op.in_doubt:
        return InDoubt(f"no answer within {wait_s:g} s: whether it took effect is unknown")
    return CannotConnect(f"no connection of this desk answered within {wait_s:g} s")


def _tell(asked: Asked[asyncio.Future[Any]], answer: Any) -> None:
    if asked.is_dropped or asked.answer.done():
        return
    if isinstance(answer, OnceqError):
        asked.answer.set_exception(answer)
    else:
        asked.answer.set_result(answer)
