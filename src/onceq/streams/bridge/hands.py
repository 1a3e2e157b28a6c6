"""The connection of a bridge, by which effects and position are one commit: plain, or for asyncio.

A handler that is a plain function gets psycopg's plain connection, and runs in a thread beside the
loop; one that is `async` gets the other kind, in the loop.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.connection import Link
from onceq.engine.perform.guarded import HandlerConnection, said_by
from onceq.engine.sessions import session
from onceq.engine.sessions.faults import DatabaseError
from onceq.errors import (
    DeadlineExceeded,
    EnvironmentFault,
    HandlerFailed,
    HandlerSignal,
    OnceqError,
    OperatingError,
    QueueFull,
    QueueStopped,
)
from onceq.model import ops
from onceq.model.signature import is_async
from onceq.streams.bridge.trying import LOST
from onceq.streams.handlers import refuse_idle

if TYPE_CHECKING:
    import psycopg

    from onceq.engine.embedded.locate import Located

C = TypeVar("C")
T = TypeVar("T")
PASSING = (*LOST, EnvironmentFault, DeadlineExceeded, QueueStopped, QueueFull)
"""What a handler may raise of the environment: it passes. Any other is the handler's failure.

Fenced would say that this life is over; but the handler was fenced elsewhere.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntoContext(Generic[C]):
    """What a handler is told. connection: in the transaction that moves the position.

    attempt: 1 for the first; more only for a message that raised alone.
    """

    connection: C
    name: str
    topic: str
    attempt: int


class Hands(abc.ABC):
    """A connection to a repository, and how handlers are called on it."""

    @abc.abstractmethod
    async def connect(self) -> None:
        """Connect, unless there is a usable connection. CannotConnect, SchemaMissing."""

    @abc.abstractmethod
    async def run(self, program: ops.Program[T]) -> T:
        """Run a Program. Cancelled, it ends first, or is rolled back."""

    @abc.abstractmethod
    def act(self, handler: Callable[..., Any], given: Given) -> ops.Act:
        """Return the Op that calls a handler, with decoded messages."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Close the connection."""

    async def perform(self, op: ops.Op[T]) -> T:
        """Perform one Op."""

        def alone() -> ops.Program[T]:
            return (yield from op)

        return await self.run(alone())


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a handler is called with. messages: decodes them; what it raises is the handler's."""

    messages: Callable[[], Sequence[Any]]
    name: str
    topic: str
    attempt: int

    def context(self, connection: HandlerConnection) -> IntoContext[Any]:
        """Return the context on a connection."""
        return IntoContext(
            connection=connection, name=self.name, topic=self.topic, attempt=self.attempt
        )


@contextlib.contextmanager
def _handling(connection: psycopg.BaseConnection[Any]) -> Generator[HandlerConnection]:
    """Lend a connection to a handler, and raise what its error means."""
    guarded = HandlerConnection(connection)
    try:
        yield guarded
    except (DatabaseError, OnceqError) as error:
        failure = session.handler_failure(error, connection)
        if isinstance(failure, OperatingError) and not isinstance(failure, PASSING):
            failure = HandlerFailed(type(failure).__name__, said_by(failure))
        if failure is error:  # raised from itself, it would hide its cause
            raise
        raise failure from error
    except Exception as error:  # the handler's boundary
        raise HandlerFailed(type(error).__name__, said_by(error)) from error
    finally:
        guarded.expire()


@contextlib.contextmanager
def _own_cancellation() -> Generator[None]:
    """Raise HandlerFailed for a CancelledError of the handler's own, not meant for this task."""
    try:
        yield
    except asyncio.CancelledError as error:
        ours = asyncio.current_task()
        if ours is None or ours.cancelling():
            raise
        raise HandlerFailed(type(error).__name__, said_by(error)) from error


def _obey(returned: object) -> None:
    """Raise a signal that a handler returned; refuse what nobody awaits, or iterates over."""
    if isinstance(returned, HandlerSignal):
        raise returned
    refuse_idle("the handler", returned, "make the handler itself `async def`, and await in it")


class AsyncHands(Hands):
    """For handlers that are `async`."""

    def __init__(self, located: Located, repository: str) -> None:
        self._link = AsyncLink(located, repository, whose="this bridge")

    async def connect(self) -> None:
        """See Hands."""
        await self._link.reconnect()

    async def run(self, program: ops.Program[T]) -> T:
        """See Hands. A Program that was cut short leaves a connection that is made anew."""
        return await self._link.run(program)

    def act(self, handler: Callable[..., Any], given: Given) -> ops.Act:
        """See Hands."""

        async def act() -> None:
            with _handling(self._link.connection) as guarded, _own_cancellation():
                _obey(await handler(given.messages(), given.context(guarded)))

        return ops.Act(act=act)

    async def close(self) -> None:
        """See Hands."""
        await self._link.close()


class ThreadHands(Hands):
    """For handlers that are plain functions: each call is in a thread, one at a time."""

    def __init__(self, located: Located, repository: str) -> None:
        self._link = Link(located, repository, whose="this bridge")

    async def connect(self) -> None:
        """See Hands."""
        await _to_its_end(self._link.reconnect)

    async def run(self, program: ops.Program[T]) -> T:
        """See Hands."""
        return await _to_its_end(lambda: self._link.run(program))

    def act(self, handler: Callable[..., Any], given: Given) -> ops.Act:
        """See Hands."""

        def act() -> None:
            with _handling(self._link.connection) as guarded:
                _obey(handler(given.messages(), given.context(guarded)))

        return ops.Act(act=act)

    async def close(self) -> None:
        """See Hands."""
        await _to_its_end(self._link.close)


def hands(handler: Callable[..., Any], located: Located, repository: str) -> Hands:
    """Return the hands that fit a handler."""
    kind = AsyncHands if is_async(handler) else ThreadHands
    return kind(located, repository)


async def _to_its_end(call: Callable[[], T]) -> T:
    """Call in a thread; cancelled, wait for its end first: nobody else may use the connection."""
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
