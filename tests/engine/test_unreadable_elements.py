"""Elements that Python cannot hold: refused where they enter, and no server ends by them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

import onceq
from onceq.errors import InvalidValue
from tests.parts import plain, rows, serving, wait_until

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=2)
BEYOND = [
    datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
    datetime.max.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
]
MANY_DIGITS = "9" * 5000
PLANTED = {
    "digits": f"properties = '{{\"n\": {MANY_DIGITS}}}'",
    "depth": f"properties = '{{\"n\": {'[' * 3000}{']' * 3000}}}'",
    "infinity": "expires_at = 'infinity'",
    "past": "not_before = '-infinity'",
    "far": "expires_at = '200000-01-01'",
    "zone": "expires_at = '9999-12-31 23:59:59-12'",
}
BAD = ("digits", "depth")


@pytest.mark.parametrize("when", BEYOND, ids=str)
@pytest.mark.parametrize("name", ["not_before", "expires_at"])
def test_a_moment_that_not_all_can_read_is_refused(
    qm: onceq.QueueManager, name: str, when: datetime
) -> None:
    qm.declare(RAW)
    given: Any = {name: when}
    with qm.clerk("c", RAW) as clerk:
        attempts = (
            lambda: qm.enqueue(RAW, b"x", **given),
            lambda: clerk.send("1", b"x", **given),
        )
        for attempt in attempts:
            with pytest.raises(InvalidValue, match="9999-12-31"):
                attempt()
    assert qm.show("raw").depth == 0


@pytest.mark.parametrize("when", ["infinity", "-infinity", "9999-12-31 23:00-05", "12000-01-01"])
@pytest.mark.parametrize("name", ["p_not_before", "p_expires_at"])
def test_sql_refuses_it_too(
    qm: onceq.QueueManager, conninfo: str, repository: str, name: str, when: str
) -> None:
    qm.declare(RAW)
    given = {"p_not_before": "null", "p_expires_at": "null", name: f"'{when}'"}
    times = f"{given['p_not_before']}, {given['p_expires_at']}"
    enqueue = f"enqueue('raw', '', null, 4::smallint, {times}, null, null, null, true)"
    send = (
        f"send(1, 1, 'raw', '1', '', 1, '{{}}', 4::smallint, {times}, null, null, true, false, 0)"
    )
    for call in (enqueue, send):
        with plain(conninfo) as connection, pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(f"select {repository}.{call}".encode())


def _plant(conninfo: str, repository: str, what: str) -> None:
    with plain(conninfo) as connection:
        connection.execute(f"update {repository}.element set {PLANTED[what]}".encode())


@pytest.mark.parametrize("what", PLANTED)
@pytest.mark.parametrize("kind", ["threads", "tasks", "batch"])
def test_an_element_that_cannot_be_read_is_its_own_failure(
    qm: onceq.QueueManager, conninfo: str, repository: str, what: str, kind: str
) -> None:
    """Not the server's end: who claims it aborts it, and goes on with the next."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"bad")
    _plant(conninfo, repository, what)
    qm.enqueue(RAW, b"good")
    seen: list[bytes] = []

    def handle(request: bytes, _: onceq.Context) -> bytes:
        seen.append(request)
        return request

    async def handle_async(request: bytes, _: onceq.AsyncContext) -> bytes:
        seen.append(request)
        return request

    handled: Any = {
        "threads": RAW.handled_by(handle),
        "tasks": RAW.handled_by(handle_async),
        "batch": RAW.handled_by(handle, batch=10),
    }[kind]
    with serving(conninfo, repository, handled) as server:
        wait_until(lambda: not qm.show("raw").depth)
        assert server.statistics().lives == 1
    if what in BAD:
        assert seen == [b"good"]
        assert qm.show("raw.error").held == 1
        told = rows(conninfo, f"select code, error from {repository}.attempt")
        assert [code for code, _ in told] == ["InvalidValue"]
        assert "cannot be read" in told[0][1]
    else:
        assert sorted(seen) == [b"bad", b"good"]


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_dequeued_is_not_lost_because_it_cannot_be_read(
    qm: onceq.QueueManager, conninfo: str, repository: str, what: str
) -> None:
    qm.declare(RAW)

    async def main() -> None:
        async with onceq.open_async(conninfo, repository=repository) as other:
            for manager in (qm, other):
                eid = qm.enqueue(RAW, b"x")
                _plant(conninfo, repository, what)
                read = qm.read(eid) if manager is qm else await other.read(eid)
                found = qm.dequeue("raw") if manager is qm else await other.dequeue("raw")
                assert read is not None
                assert found is not None
                assert (found.eid, found.body) == (eid, b"x")
                assert (found.unreadable is not None) == (what in BAD)

    asyncio.run(main())
