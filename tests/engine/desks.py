"""A crowd of clerks at one desk, for tests of it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

import onceq
from onceq.engine.desk.async_desk import AsyncDesk
from onceq.errors import (
    CannotConnect,
    DeadlineExceeded,
    InDoubt,
    OnceqError,
)
from tests.parts import rows

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Generator

T = TypeVar("T")
Crowd = list[onceq.AsyncClerk[bytes, bytes]]

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, body_bytes_max=1000)
CROWD = 12
LIMIT_S = 90.0
HOLD = "select pg_advisory_xact_lock('{}.registrant'::regclass::oid::integer, registrant_id)"
"""Takes the anchors of clients, as a ghost of theirs would."""


def echo(body: bytes, _: onceq.Context) -> bytes:
    return body + b"!"


@pytest.fixture(autouse=True)
def failed_groups(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A group that fails goes one by one, which nobody would see: none fails in these tests."""
    failed: list[OnceqError] = []
    fail = AsyncDesk._failed

    def noted(self: Any, group: list[Any], error: OnceqError) -> None:
        failed.extend([error] * (len(group) > 1))
        fail(self, group, error)

    monkeypatch.setattr(AsyncDesk, "_failed", noted)
    yield
    expected = (InDoubt, CannotConnect, DeadlineExceeded)
    assert [one for one in failed if not isinstance(one, expected)] == []


@pytest.fixture
def declared(qm: onceq.QueueManager) -> onceq.QueueManager:
    qm.declare(RAW)
    return qm


@contextlib.asynccontextmanager
async def crowded(
    qm: onceq.QueueManager, *, url: str | None = None, connections: int = 1, **options: Any
) -> AsyncGenerator[Crowd]:
    """Connected clerks of one desk. What they are asked at one time is in one group."""
    where = url or qm.located.conninfo
    async with (
        asyncio.timeout(LIMIT_S),
        onceq.open_async(where, repository=qm.repository) as manager,
        manager.clerks(connections=connections) as clerks,
    ):
        crowd = [clerks.clerk(f"c{n:02}", RAW, **options) for n in range(CROWD)]
        for one in crowd:
            await one.connect()
        yield crowd


async def each(calls: list[Awaitable[T]]) -> list[T | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


def kinds(found: list[Any]) -> list[str]:
    return [type(one).__name__ if isinstance(one, OnceqError) else "in" for one in found]


def xids(conninfo: str, qm: onceq.QueueManager) -> list[int]:
    """How many elements each transaction has made."""
    found = rows(
        conninfo, f"select count(*) from {qm.repository}.element group by xmin::text order by 1"
    )
    return [count for (count,) in found]
