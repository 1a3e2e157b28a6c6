"""The drivers as conformance sees them: repositories whose time the tests move."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import psycopg

from onceq.engine.desk.seated import seated_op
from onceq.engine.perform import async_driver, driver
from onceq.engine.perform.guarded import HandlerConnection
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.engine.perform.stop import Stop
from onceq.engine.schema.migrate import apply_with
from onceq.engine.sessions import session
from onceq.manager import trimming
from onceq.model import ops
from onceq.model.archive_ops import ArchiveBegin
from onceq.model.desk_ops import GROUPINGS, group_key
from onceq.testing.repositories import EMPTY
from proof.oracle.memory import MemoryDriver, memory_repository
from proof.oracle.rows import Transaction
from proof.oracle.spent import trim

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onceq.model.element import Element

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)
SET_TIME = "select set_config('onceq_setting.now', '{}', false)"
LIMITS = "set lock_timeout = '5s'; set statement_timeout = '20s'"
LEAN = "; ".join(f"set {name} = '{value}'" for name, value in session.LEAN.items())
"""As in a clerk's own session, so that the plain case of each Op is what is tried."""
BOUND_MS = 10_000


def end_backend(conninfo: str, pid: int) -> None:
    """Ends a session, and returns when its locks are free."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, %s)", (pid, BOUND_MS))


@contextlib.contextmanager
def unsynced(conninfo: str) -> Generator[None]:
    """Spares the disk while nothing is killed: commits are as visible, and much faster."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for setting in ("fsync = off", "fsync = default"):
            connection.execute(f"alter system set {setting}".encode())
            connection.execute("select pg_reload_conf()")
            if setting == "fsync = off":
                yield


class PostgresRepository:
    """A repository in PostgreSQL."""

    def __init__(self, conninfo: str, name: str) -> None:
        apply_with(conninfo, name)
        self.conninfo = conninfo
        self.name = name
        self.time = START
        self.open: list[Any] = []
        with psycopg.connect(conninfo) as connection:
            connection.execute(f"create table {name}.ledger (key text)".encode())

    def now(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def trim(self) -> None:
        with contextlib.closing(driver.connect(self.conninfo)) as connection:
            spark = SparkDriver(connection, self.name)
            due = spark.run(trimming.due(self.time + timedelta(days=1), unarchived=True))
            epoch = spark.perform(ArchiveBegin(root=None)).epoch
            spark.run(trimming.remove(epoch, due))

    def effects(self) -> list[str]:
        with psycopg.connect(self.conninfo) as connection:
            return [
                row[0] for row in connection.execute(f"select key from {self.name}.ledger".encode())
            ]

    @property
    def insert(self) -> bytes:
        return f"insert into {self.name}.ledger values (%s)".encode()

    def session(self, handle: Any = None) -> Any:
        made = self.make(handle)
        self.open.append(made)
        return made

    def make(self, handle: Any) -> Any:
        return SyncSession(self, handle)

    def close(self) -> None:
        for one in self.open:
            one.close()
        self.open.clear()

    def end(self) -> None:
        """Closes it for good."""
        self.close()

    def empty(self) -> None:
        """Makes it as it was made, without making the schema again."""
        self.close()
        self.truncate()

    def truncate(self) -> None:
        """Empties all tables; sessions may stay, if they have neither transactions nor locks."""
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(EMPTY.format(self.name).encode())


class Calls(dict[str, Any]):
    """One handler for every queue."""

    def __missing__(self, key: str) -> Any:
        return self["*"]


class SyncSession:
    def __init__(self, place: PostgresRepository, handle: Any) -> None:
        self._place = place
        self._stop = Stop()
        self.connection = driver.connect(place.conninfo)
        self.connection.execute(f"{LIMITS}; {LEAN}".encode())

        def call(element: Element, connection: Any) -> bytes:
            guarded: Any = HandlerConnection(connection)
            reply: bytes = handle(element, lambda key: guarded.execute(place.insert, (key,)))
            return reply

        calls = Calls({"*": call})
        self.driver = driver.PostgresDriver(
            self.connection, place.name, calls=calls, stop=self._stop
        )

    def _tick(self) -> None:
        if self.connection.info.transaction_status == 0:
            self._place.advance(0.001)
            self.connection.execute(SET_TIME.format(self._place.now().isoformat()).encode())

    def perform(self, op: ops.Op[T]) -> T:
        self._tick()
        return self.driver.perform(op)

    def run(self, program: ops.Program[T]) -> T:
        self._tick()
        return self.driver.run(program)

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        if not self.connection.closed:
            pid = self.connection.info.backend_pid
            end_backend(self._place.conninfo, pid)
            self.connection.close()


class DeskRepository(PostgresRepository):
    """The same, each Op as it goes by a desk, in a group with one of nobody's."""

    def make(self, handle: Any) -> Any:
        return DeskSession(self, handle)


class Grouping(ops.Runs):
    """Performs an Op in a group, if it may go in one; alone, if it falls out of it."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def perform(self, op: ops.Op[T]) -> T:
        seated: Any = seated_op(op, "!nowhere 1 onceq_nobody 00")
        if group_key(seated) is None:
            alone: T = self._driver.perform(seated)
            return alone
        nobody = ops.Identity(registrant_id=2**31 - 1, epoch=1)
        stranger = msgspec.structs.replace(seated, who=nobody)
        found = self._driver.perform(GROUPINGS[type(seated)].join([stranger, seated]))
        assert 1 not in found
        answer: T = found[2] if 2 in found else self._driver.perform(seated)
        return answer

    def _leave(self) -> None:
        self._driver._leave()


class DeskSession(SyncSession):
    def __init__(self, place: PostgresRepository, handle: Any) -> None:
        super().__init__(place, handle)
        self.plain, self.driver = self.driver, Grouping(self.driver)  # type: ignore[assignment] # performs as a driver does


class AsyncPostgresRepository(PostgresRepository):
    """The same, through the async driver, on an event loop of its own."""

    def __init__(self, conninfo: str, name: str) -> None:
        super().__init__(conninfo, name)
        self.runner = asyncio.Runner()

    def make(self, handle: Any) -> Any:
        return AsyncSession(self, handle)

    def end(self) -> None:
        super().end()
        self.runner.close()


class AsyncSession:
    def __init__(self, place: AsyncPostgresRepository, handle: Any) -> None:
        self._place = place
        self._stop = Stop()
        self._run: Callable[[Any], Any] = place.runner.run
        self.connection: psycopg.AsyncConnection[Any] = self._run(
            async_driver.connect(place.conninfo)
        )
        self._run(self.connection.execute(f"{LIMITS}; {LEAN}".encode()))

        async def call(element: Element, connection: psycopg.AsyncConnection[Any]) -> bytes:
            written: list[str] = []
            try:
                reply: bytes = handle(element, written.append)
            finally:
                for key in written:
                    await connection.execute(place.insert, (key,))
            return reply

        calls = Calls({"*": call})
        self.driver = async_driver.AsyncPostgresDriver(
            self.connection, place.name, calls=calls, stop=self._stop
        )

    def _tick(self) -> None:
        if self.connection.info.transaction_status == 0:
            self._place.advance(0.001)
            text = SET_TIME.format(self._place.now().isoformat()).encode()
            self._run(self.connection.execute(text))

    def perform(self, op: ops.Op[T]) -> T:
        self._tick()
        answer: T = self._run(self.driver.perform(op))
        return answer

    def run(self, program: ops.Program[T]) -> T:
        self._tick()
        answer: T = self._run(self.driver.run(program))
        return answer

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        if not self.connection.closed:
            pid = self.connection.info.backend_pid
            end_backend(self._place.conninfo, pid)
            self._run(self.connection.close())


class MemoryRepository:
    """A repository in memory."""

    def __init__(self) -> None:
        self.oracle, self.clock = memory_repository()

    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def trim(self) -> None:
        trim(self.oracle.state, Transaction(0, 0, is_open=False))

    def effects(self) -> list[str]:
        return [row.key for row in self.oracle.effects()]

    def session(self, handle: Any = None) -> Any:
        return MemorySession(self, handle)

    def empty(self) -> None:
        self.oracle, self.clock = memory_repository()

    def end(self) -> None:
        pass


class MemorySession:
    def __init__(self, place: MemoryRepository, handle: Any) -> None:
        self._stopping = False

        def call(element: Element, session: MemoryDriver) -> bytes:
            reply: bytes = handle(element, lambda key: session.effect(key, element))
            return reply

        self.driver = MemoryDriver(
            place.oracle, place.clock, calls=Calls({"*": call}), stop=lambda: self._stopping
        )
        self.perform: Callable[[Any], Any] = self.driver.perform
        self.run: Callable[[Any], Any] = self.driver.run
        self.close: Callable[[], None] = self.driver.end

    def stop(self) -> None:
        self._stopping = True


class MemoryDeskRepository(MemoryRepository):
    """The same, each Op as it goes by a desk."""

    def session(self, handle: Any = None) -> Any:
        made = MemorySession(self, handle)
        grouping = Grouping(made.driver)
        made.perform, made.run = grouping.perform, grouping.run
        return made
