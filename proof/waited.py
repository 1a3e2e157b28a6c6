"""Async objects that are called like their sync twins: each call runs to its end, in one loop.

Used by proof/fault_programs.py, so that one text of a program meets the fault points of the sync
driver and of the async one. Nothing runs between two calls.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

import psycopg

import onceq

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Waited:
    """An object whose coroutines are awaited for its caller; what it returns is wrapped as well.

    awaited: the object itself.
    """

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self.awaited = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.awaited, name)
        return self._waiting(found) if inspect.ismethod(found) else found

    def __enter__(self) -> Any:
        return self._waiting(self.awaited.__aenter__)()

    def __exit__(self, *error: object) -> Any:
        return self._waiting(self.awaited.__aexit__)(*error)

    def _waiting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            found = method(*map(_inner, positional), **{k: _inner(v) for k, v in named.items()})
            if inspect.isawaitable(found):
                found = self._runner.run(_result(found))
            return Waited(self._runner, found) if hasattr(found, "__aenter__") else found

        return call


def _inner(value: Any) -> Any:
    return value.awaited if isinstance(value, Waited) else value


async def _result(awaitable: Any) -> Any:
    return await awaitable


def open_waited(runner: asyncio.Runner, url: str, repository: str) -> onceq.QueueManager:
    """Opens a repository by `onceq.open_async`; use it in a `with` block."""
    return cast("onceq.QueueManager", Waited(runner, onceq.open_async(url, repository=repository)))


def connect_waited(runner: asyncio.Runner, url: str) -> psycopg.Connection[Any]:
    """Connects by psycopg's async connection; use it in a `with` block."""
    connection = runner.run(_result(psycopg.AsyncConnection.connect(url)))
    return cast("psycopg.Connection[Any]", Waited(runner, connection))
