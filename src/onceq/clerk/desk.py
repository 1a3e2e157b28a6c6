"""The clerks of many clients on few connections: made by `QueueManager.clerks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeVar, Unpack

from onceq.clerk.async_clerk import AsyncClerk
from onceq.clerk.clerk import Clerk
from onceq.clerk.session import ClerkOptions
from onceq.engine.desk.async_desk import AsyncDesk
from onceq.engine.desk.async_seat import AsyncSeat
from onceq.engine.desk.desk import Desk
from onceq.engine.desk.seat import Seat
from onceq.model import names

if TYPE_CHECKING:
    from onceq.engine.embedded.locate import Located
    from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")

CONNECTIONS_MAX: Final = 64


class Clerks:
    """Clerks that share connections; safe for any number of threads, each with clerks of its own.

    What they ask for at the same time is done in one transaction. They do all that a clerk does,
    but what needs a connection of its own: one-way sends, receiving into a transaction of the
    client's, and ledgers. Use it in a `with` block, which connects and closes it.
    """

    def __init__(self, located: Located, repository: str, connections: int) -> None:
        names.check_range("connections", connections, 1, CONNECTIONS_MAX)
        self._desk = Desk(located, repository, connections)

    def clerk(
        self, registrant: str, queue: Queue[T, R], **options: Unpack[ClerkOptions]
    ) -> Clerk[T, R]:
        """Returns the clerk of a client; `with` connects it. See QueueManager.clerk."""
        return Clerk(Seat(self._desk, registrant), registrant, queue, **options)

    def connect(self, *, timeout_s: float | None = None) -> Self:
        """Connects. CannotConnect, SchemaMissing: nothing happened."""
        self._desk.connect(names.check_timeout(timeout_s))
        return self

    def close(self) -> None:
        """Closes the connections when their calls are over; sessions stay. Idempotent."""
        self._desk.close()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClerks:
    """`Clerks` for asyncio: any tasks of one loop may share it, each with clerks of its own."""

    def __init__(self, located: Located, repository: str, connections: int) -> None:
        names.check_range("connections", connections, 1, CONNECTIONS_MAX)
        self._desk = AsyncDesk(located, repository, connections)

    def clerk(
        self, registrant: str, queue: Queue[T, R], **options: Unpack[ClerkOptions]
    ) -> AsyncClerk[T, R]:
        """See Clerks.clerk; `async with` connects it."""
        return AsyncClerk(AsyncSeat(self._desk, registrant), registrant, queue, **options)

    async def connect(self, *, timeout_s: float | None = None) -> Self:
        """See Clerks.connect."""
        await self._desk.connect(names.check_timeout(timeout_s))
        return self

    async def close(self) -> None:
        """See Clerks.close."""
        await self._desk.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
