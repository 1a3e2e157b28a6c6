"""How a link opens its session, plain or for asyncio, and how many links a queue manager has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from onceq.engine.perform.gate import Gate
from onceq.engine.schema import migrate
from onceq.engine.sessions import async_opening, opening
from onceq.engine.sessions.silence import Patience
from onceq.engine.wake.watch import Watch
from onceq.model.element import Element

if TYPE_CHECKING:
    import psycopg

    from onceq.engine.perform.stop import Stop

    Handler: TypeAlias = Callable[[Element, psycopg.Connection[Any]], bytes]
    AsyncHandler: TypeAlias = Callable[[Element, psycopg.AsyncConnection[Any]], Awaitable[bytes]]

H = TypeVar("H")

MOST: Final = 8
"""Connections of one manager, and so the number of its calls at the same time."""
TURN_S: Final = 30.0
"""How long a call waits for a free connection, if it has no time limit of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling(Generic[H]):
    """What the handlers need that run on a link. calls: by queue; see the drivers.

    stop: ends waits. gate, watch: of this process; see `exchange.join`. limit_s: the longest
    transaction; after each commit of theirs the session is reset.
    """

    calls: Mapping[str, H]
    stop: Stop
    gate: Gate
    watch: Watch
    limit_s: int


def open_verified(
    conninfo: str, repository: str, settings: Mapping[str, str], patience: Patience | None
) -> tuple[psycopg.Connection[Any], str]:
    """Opens a session on a repository, which it verifies; see `opening.open_on`.

    What it verifies is in the answer to the session's first question.
    """
    opened, again, stamp = opening.open_on(repository, conninfo, settings, patience)
    with contextlib.ExitStack() as undo:
        undo.callback(opened.close)
        migrate.check(opened.info, repository, stamp)
        undo.pop_all()
    return opened, again


async def async_open_verified(
    conninfo: str, repository: str, settings: Mapping[str, str], patience: Patience | None
) -> tuple[psycopg.AsyncConnection[Any], str]:
    """The same."""
    opened, again, stamp = await async_opening.open_on(repository, conninfo, settings, patience)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(opened.close)
        await asyncio.to_thread(migrate.check, opened.info, repository, stamp)
        undo.pop_all()
    return opened, again
