"""Connections of ours that give up a silent link by our own clock, if a call has a deadline.

Used by the links and both drivers. TCP itself notices a dead link (`locate`, `session.settings`),
but not something in between that answers in the database's place. What was sent by then may have
arrived: the connection is closed, and a call that may have committed is InDoubt.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.waiting import Ready, Wait

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")

SILENCE_S = 5.0
"""How long a database may say nothing after the deadline of a wait that it is to end itself.

A process that must see many links fall silent in a short time sets its own.
"""
CONNECT_S_MIN: Final = 2
"""The shortest time-out of a connection that libpq accepts, for each host."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call waits for a link. until: at least till then, by time.monotonic.

    silence_s: and as long as something was heard so recently: an answer on its way is read to its
    end.
    """

    until: float
    silence_s: float

    def is_over(self, now: float, heard: float) -> bool:
        """Returns whether to give up now a link that was last heard then."""
        return now >= self.until and now - heard >= self.silence_s


def waiting(timeout_s: float | None) -> Patience | None:
    """Returns the patience of a call that ends by itself after timeout_s; None: perhaps never."""
    if timeout_s is None:
        return None
    return Patience(time.monotonic() + timeout_s + SILENCE_S, SILENCE_S)


def within(timeout_s: float | None) -> Patience | None:
    """Returns the patience of a call that must be answered within timeout_s; None: no limit."""
    return None if timeout_s is None else Patience(time.monotonic() + timeout_s, 0.0)


class SilentLink(psycopg.OperationalError):
    """The link was silent for too long."""


class OwnConnection(psycopg.Connection[Any]):
    """A connection of ours. patience: that of the call under way; None if it waits for ever.

    has_forgotten: psycopg has deallocated all that was prepared, as it does after a ROLLBACK, a
    DROP and the like, if it had prepared anything. prepared: what the drivers have there.
    """

    patience: Patience | None = None
    has_forgotten = False
    prepared: Any = None

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        self.has_forgotten = self.has_forgotten or name is None
        return super()._deallocate(name)

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Waits like psycopg, while the patience lasts."""
        if self.patience is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(_patient(gen, self.patience), *args, **options)
        except SilentLink:
            self.close()
            raise


class AsyncOwnConnection(psycopg.AsyncConnection[Any]):
    """`OwnConnection`, for asyncio."""

    patience: Patience | None = None
    has_forgotten = False
    prepared: Any = None

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        self.has_forgotten = self.has_forgotten or name is None
        return super()._deallocate(name)

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """See `OwnConnection.wait`."""
        if self.patience is None:
            return await super().wait(gen, *args, **options)
        try:
            return await super().wait(_patient(gen, self.patience), *args, **options)
        except SilentLink:
            await self.close()
            raise


def _patient(gen: PQGen[T], patience: Patience) -> Generator[Wait, Ready | int, T]:
    """Runs a generator of psycopg; looks every 0.1 s, when nothing has come, whether to give up."""
    heard = time.monotonic()
    try:
        state = next(gen)
        while True:  # until it has ended, or patience has
            ready = yield state
            now = time.monotonic()
            if ready != Ready.NONE:
                heard = now
            elif patience.is_over(now, heard):
                raise SilentLink(f"nothing was heard from PostgreSQL for {now - heard:.1f} s")
            state = gen.send(ready)
    except StopIteration as end:
        answer: T = end.value
        return answer


def is_bounded(connection: object) -> bool:
    """Returns whether this connection is one of ours in a call that has a deadline."""
    return (
        isinstance(connection, OwnConnection | AsyncOwnConnection)
        and connection.patience is not None
    )


@contextlib.contextmanager
def bounded(connection: object, patience: Patience | None) -> Generator[None]:
    """A block in which waits on a connection, if it is ours, are given up with this patience."""
    if not isinstance(connection, OwnConnection | AsyncOwnConnection) or patience is None:
        yield
        return
    connection.patience = patience
    try:
        yield
    finally:
        connection.patience = None


def hasty(conninfo: str, patience: Patience | None) -> str:
    """Returns the connection string with a time-out within the patience, or its own if shorter."""
    if patience is None:
        return conninfo
    left = max(CONNECT_S_MIN, math.floor(patience.until - time.monotonic()))
    own = int(float(conninfo_to_dict(conninfo).get("connect_timeout") or 0))
    return make_conninfo(conninfo, connect_timeout=min(own, left) if own > 0 else left)
