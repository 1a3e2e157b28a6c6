"""AsyncDesk: some connections, and the Ops of any number of clerks, on one event loop.

What clerks ask for while a transaction is under way is the next one. A connection takes whoever
came first, and all that may go along (`model.desk_ops`). Each gets an answer of its own. Whoever
falls out of a group goes alone. If the answer to a COMMIT is lost, each of the group is InDoubt.
Nobody waits for a lock on a connection: an Op that meets one is tried again, later. What nobody
waits for any more is not begun.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import psycopg

from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.desk.arrivals import REST_S, Arrivals, Asked, end, joined, told
from onceq.engine.desk.sleeper import AsyncSleeper, Ends
from onceq.engine.sessions import faults, silence
from onceq.engine.sessions.session import SHARED
from onceq.engine.wake import exchange, watch
from onceq.engine.wake.bell import DEAF_S
from onceq.errors import CannotConnect, DeadlineExceeded, IllegalState, InDoubt, OnceqError
from onceq.model import admin_ops, ops

if TYPE_CHECKING:
    from onceq.engine.embedded.locate import Located
    from onceq.engine.perform.async_driver import AsyncPostgresDriver
    from onceq.engine.wake.desk_bell import DeskBell
    from onceq.engine.wake.exchange import Wire

T = TypeVar("T")

CLOSED: Final = "this desk is closed, and nothing happened: connect() it first"
ENDED: Final = "this desk was ended: whether it took effect is unknown"
ELSEWHERE: Final = (
    "this desk is of another process, or of another event loop, and nothing happened: make one here"
)
MOST_ASKED: Final = 1_000
"""So many Ops wait or are under way; who comes after them waits to become one of them."""
TRY_S: Final = 0.02
"""How long an Op waits for a lock on a connection (`session.SHARED`)."""
CONNECT_S: Final = 10.0
ANSWER_S: Final = 20.0
"""How long a connection is opened, and answers, before its silence counts (`silence.waiting`)."""


class DeskLink(AsyncLink):
    """A connection of a desk."""

    async def reconnect(self) -> None:
        """Connects if there is no usable connection, as after a restart of the database."""
        if self._driver is not None and watch.is_lost(self._driver.connection.pgconn):
            await self.close()
        await super().reconnect()

    async def _begin(self, conninfo: str) -> AsyncPostgresDriver:
        self._driver = await super()._begin(conninfo)
        try:
            keep = f"select {self.repository}.keep_desk()".encode()
            await self._driver.connection.execute(keep)
        except psycopg.Error as error:
            await self.close()
            raise CannotConnect(faults.text_of(error)) from error
        except BaseException:
            await self.close()
            raise
        return self._driver


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
        self._ends = Ends(self._on_long_wait)
        self._room = asyncio.Semaphore(MOST_ASKED)
        self._opening = asyncio.Lock()
        self._serving: set[asyncio.Task[None]] = set()
        self._wire: Wire | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None

    async def connect(self, timeout_s: float | None = None) -> None:
        """Opens it, and one connection, so that errors show now: CannotConnect, SchemaMissing."""
        async with self._opening:
            was_open = self._wire is not None
            if not was_open:
                await asyncio.to_thread(self._located.ensure_running)
                self._home = _here()
                self._wire = exchange.join_desk(self._located.conninfo)
                asyncio.get_running_loop().add_reader(self.bell.fileno(), self._hear)
            try:
                await self.ask(admin_ops.Identify(), timeout_s)
            except BaseException:
                if not was_open:
                    await self.close()
                raise

    @property
    def bell(self) -> DeskBell:
        """Where its clerks are rung. CannotConnect: it is closed. IllegalState: it is not here."""
        if self._wire is None or self._wire.desk is None:
            raise CannotConnect(CLOSED)
        if self._home is not None and self._home[0] != os.getpid():
            raise IllegalState(ELSEWHERE)
        return self._wire.desk

    def sleeper(self) -> AsyncSleeper:
        """Returns what a clerk waits with. CannotConnect: the desk is closed."""
        return AsyncSleeper(self.bell, self._ends)

    def _on_long_wait(self) -> None:
        if self._wire is not None and self._wire.desk is not None:
            self._wire.desk.on_long_wait()

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
        until = None if wait_s is None else time.monotonic() + wait_s
        self._refuse_elsewhere()
        try:
            async with asyncio.timeout(wait_s):
                await self._room.acquire()
        except TimeoutError:
            raise _late(None, wait_s) from None
        try:
            return await self._ask(op, until, wait_s)
        finally:
            self._room.release()

    async def _ask(self, op: ops.Op[T], until: float | None, wait_s: float | None) -> T:
        _ = self.bell  # CannotConnect: it is closed
        answer_to = asyncio.get_running_loop().create_future()
        asked = self._arrivals.add(op, answer_to, _own_end(op))
        self._begin()
        try:
            if until is not None:
                left_s = max(0.0, until - time.monotonic())
                await asyncio.wait({asked.answer}, timeout=left_s)
                if not asked.answer.done():
                    raise _late(asked, wait_s)
            answer: T = await asked.answer
            return answer
        finally:
            self._arrivals.drop(asked)

    def _refuse_elsewhere(self) -> None:
        if self._home is not None and self._home != _here():
            raise IllegalState(ELSEWHERE)

    def _begin(self) -> None:
        """Gives the arrivals to a free connection, if there is one."""
        if self._free and self._arrivals and self._wire is not None:
            serving = asyncio.get_running_loop().create_task(self._serve(self._free.pop()))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)

    async def _serve(self, link: DeskLink) -> None:
        try:
            while self._arrivals and await self._serve_some(link):
                pass
        except BaseException:  # a defect, or the end of the loop: others go on
            self._free.append(link)
            self._begin()
            raise
        self._free.append(link)

    async def _serve_some(self, link: DeskLink) -> bool:
        """Performs what may go now; False: nothing may."""
        failed: OnceqError | None = None
        try:
            with link.bounded(silence.within(CONNECT_S)):
                await link.reconnect()
        except OnceqError as error:
            failed = error
        group = self._arrivals.take(time.monotonic())
        if failed is None:
            await self._perform(link, group)
        else:
            end(group)
            for asked, one in told(group, failed):
                _tell(asked, one)
        return bool(group)

    async def _perform(self, link: DeskLink, group: list[Asked[asyncio.Future[Any]]]) -> None:
        if not group:
            return
        try:
            op = joined(group)
            if group[0].until is not None:
                op = _briefly(op, group[0].until)
            with link.bounded(silence.waiting(ANSWER_S)):
                answer = await link.perform(op)
        except OnceqError as error:
            self._failed(group, error)
        except BaseException:
            end(group)
            for asked in group:
                _tell(asked, InDoubt(ENDED))
            raise
        else:
            for asked, one in self._arrivals.answered(group, answer):
                _tell(asked, one)

    def _failed(self, group: list[Asked[asyncio.Future[Any]]], error: OnceqError) -> None:
        """Tells each what became of it; who met a lock comes again, and holds no connection."""
        for asked, one in self._arrivals.failed(group, error, time.monotonic()):
            _tell(asked, one)
        if isinstance(error, DeadlineExceeded):
            asyncio.get_running_loop().call_later(REST_S, self._begin)

    async def close(self) -> None:
        """Ends what is under way, and closes the connections; idempotent. Who waits is told."""
        wire, self._wire = self._wire, None
        if wire is not None and wire.desk is not None:
            asyncio.get_running_loop().remove_reader(wire.desk.fileno())
            wire.desk.ring_all()
        for asked in self._arrivals.take_all():
            _tell(asked, CannotConnect(CLOSED))
        try:
            while self._serving:
                await asyncio.wait(self._serving)
            for link in self._links:
                await link.close()
        finally:
            if wire is not None:
                await asyncio.shield(asyncio.to_thread(wire.close))


def _here() -> tuple[int, asyncio.AbstractEventLoop]:
    return os.getpid(), asyncio.get_running_loop()


def _own_end(op: ops.Op[Any]) -> float | None:
    return time.monotonic() + op.timeout_s if isinstance(op, ops.CancelRequest) else None


def _briefly(op: ops.Op[Any], until: float) -> ops.Op[Any]:
    """Returns an Op that waits for its lock by itself, with a short time."""
    left_s = max(0.0, until - time.monotonic())
    return msgspec.structs.replace(op, timeout_s=min(left_s, TRY_S))


def _late(asked: Asked[Any] | None, wait_s: float | None) -> OnceqError:
    """Returns the error for a caller who waits no longer. asked: None: it did not get in line."""
    wait_s = wait_s or 0.0
    if asked is not None and asked.is_under_way and asked.op.in_doubt:
        return InDoubt(f"no answer within {wait_s:g} s: whether it took effect is unknown")
    return CannotConnect(f"no connection of this desk answered within {wait_s:g} s")


def _tell(asked: Asked[asyncio.Future[Any]], answer: Any) -> None:
    if asked.is_dropped or asked.answer.done():
        return
    if isinstance(answer, OnceqError):
        asked.answer.set_exception(answer)
    else:
        asked.answer.set_result(answer)
