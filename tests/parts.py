"""What tests of the real thing share: a server in a thread, bounded waits, broken variants."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psycopg

import onceq
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import locate
from onceq.engine.perform.driver import PostgresDriver, open_session
from onceq.engine.schema.scripts import function_sources, in_schema
from onceq.engine.sessions import session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onceq.model.queue import Handled

T = TypeVar("T")

LIMIT_S = 60.0
"""How long a test waits for what must come, before it fails."""


def wait_until(condition: Callable[[], bool], timeout_s: float = LIMIT_S) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.005)


class ServerThread:
    """A server of this process, run in a thread."""

    def __init__(self, server: onceq.Server, url: str, repository: str) -> None:
        self.server = server
        self.drained: bool | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(url, repository), daemon=True)
        self._thread.start()

    def wait_serving(self) -> None:
        """Waits until the first session has begun: the queues are declared."""
        wait_until(lambda: self.server.statistics().lives > 0 or not self._thread.is_alive())

    def _run(self, url: str, repository: str) -> None:
        try:
            self.drained = self.server.run(url, repository=repository)
        except BaseException as error:  # noqa: BLE001 # given to the test
            self.error = error

    def stop(self) -> None:
        """Stops the server; what made it end is raised."""
        self.server.stop()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the server did not stop"
        if self.error is not None:
            raise self.error


@contextlib.contextmanager
def serving(
    url: str, repository: str, *handled: Handled[Any, Any], **options: Any
) -> Generator[onceq.Server]:
    """Runs a server for the time of the block; its queues are there when it begins."""
    thread = ServerThread(onceq.Server(list(handled), **options), url, repository)
    try:
        thread.wait_serving()
        yield thread.server
    finally:
        thread.stop()


@contextlib.contextmanager
def driving(conninfo: str, repository: str, *, lean: bool = False) -> Generator[PostgresDriver]:
    """A session of its own, on which a test performs single Ops. lean: one like a clerk's."""
    connection, _ = open_session(conninfo, session.settings(also=session.LEAN if lean else None))
    try:
        yield PostgresDriver(connection, repository)
    finally:
        connection.close()


@contextlib.contextmanager
def linked(url: str, repository: str) -> Generator[Link]:
    """A link of its own."""
    located = locate(url)
    link = Link(located, repository)
    try:
        link.reconnect()
        yield link
    finally:
        link.close()
        located.close()


@contextlib.contextmanager
def plain(conninfo: str) -> Generator[psycopg.Connection[Any]]:
    """A connection in autocommit."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        yield connection


def scalar(conninfo: str, query: str, *parameters: Any) -> Any:
    """Returns the one value that a query finds."""
    with plain(conninfo) as connection:
        row = connection.execute(query.encode(), parameters or None).fetchone()
    return None if row is None else row[0]


def rows(conninfo: str, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Returns what a query finds."""
    with plain(conninfo) as connection:
        return connection.execute(query.encode(), parameters or None).fetchall()


def function_text(name: str) -> str:
    """Returns the SQL that creates a function of the schema."""
    pattern = re.compile(
        rf"^create or replace function onceq\.{name}\(.*?^(?:end )?\$\$;$", re.DOTALL | re.MULTILINE
    )
    found = [m.group() for _, text in function_sources() for m in pattern.finditer(text)]
    assert len(found) == 1, f"{name} was found {len(found)} times"
    return found[0]


def install_variant(conninfo: str, repository: str, name: str, *changes: tuple[str, str]) -> None:
    """Puts a broken variant of a function into this test's schema: (text, what replaces it)."""
    text = function_text(name)
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
        text = text.replace(old, new)
    with plain(conninfo) as connection:
        connection.execute(in_schema(text, repository).encode())


class Background(Generic[T]):
    """A call that runs in a thread of its own; `result` waits for it and raises what it raised."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._call())
        except BaseException as error:  # noqa: BLE001 # given to the test
            self._error = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> T:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the call did not return"
        if self._error is not None:
            raise self._error
        return self._answer[0]


def wait_blocked(conninfo: str, text: str, call: Background[Any] | None = None) -> None:
    """Waits until a session waits for a lock in a statement that contains this text.

    call: that it is about; one that ends without having waited fails the test at once.
    """
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like %s"

    def is_blocked() -> bool:
        if call is not None and not call.is_running:
            raise AssertionError(f"it did not wait for a lock: {call.result()}")
        return bool(scalar(conninfo, query, f"%{text}%") > 0)

    wait_until(is_blocked)
