"""What a handler leaves open: a generator of psycopg's that holds its connection.

Used by both drivers after a handler. `cursor.stream()`, `cursor.copy()` and the like hold
the connection's lock, or its pipeline, while they are open. A handler that raises leaves
them open, held by its traceback or by whatever it keeps, and the rollback would wait for ever.
"""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeGuard

import psycopg
from psycopg.pq import PipelineStatus

from onceq.errors import HandlerMisuse

if TYPE_CHECKING:
    from types import CodeType, FrameType

_PSYCOPG = str(Path(psycopg.__file__).parent)


def is_held(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Returns whether something on this connection is open."""
    return connection.lock.locked() or connection.pgconn.pipeline_status != PipelineStatus.OFF


def close(connection: psycopg.Connection[Any]) -> None:
    """Closes what the finished handler left open; cancels a statement under way.

    If another thread is in the middle of it, it is left to that thread: the rollback waits for it.
    """
    for one in gc.get_objects():
        if _is_generator(one) and _is_of(one.gi_code, one.gi_frame, connection):
            with contextlib.suppress(psycopg.Error, ValueError):
                one.close()


async def async_close(connection: psycopg.AsyncConnection[Any]) -> None:
    """See `close`."""
    for one in gc.get_objects():
        if _is_async_generator(one) and _is_of(one.ag_code, one.ag_frame, connection):
            with contextlib.suppress(psycopg.Error, RuntimeError):
                await one.aclose()


def misuse() -> HandlerMisuse:
    """Returns the error for a handler that returned like this: what was cancelled has failed."""
    return HandlerMisuse(
        "the handler returned and left a cursor.stream(), a cursor.copy() or a pipeline of its "
        "connection open: read it to its end, or close it"
    )


def _is_generator(found: object) -> TypeGuard[GeneratorType[Any, Any, Any]]:
    return type(found) is GeneratorType


def _is_async_generator(found: object) -> TypeGuard[AsyncGeneratorType[Any, Any]]:
    return type(found) is AsyncGeneratorType


def _is_of(code: CodeType, frame: FrameType | None, connection: object) -> bool:
    """Returns whether a suspended generator is psycopg's, and uses this connection."""
    if frame is None or not code.co_filename.startswith(_PSYCOPG):
        return False
    whose = frame.f_locals.get("self")
    return whose is connection or getattr(whose, "connection", None) is connection
