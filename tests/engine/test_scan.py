"""Scans on PostgreSQL: among others who work, what they cost, what they lock (spec Q11)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.errors import (
    ConnectionLost,
    DeadlineExceeded,
    IllegalState,
    InvalidName,
    InvalidValue,
    QueueNotFound,
)
from onceq.manager import scanning
from onceq.model import ops
from onceq.model import scan as scans
from onceq.model.element import Charge, ElementState, KillAnswer, Lane
from tests.parts import Background, driving, scalar, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

RAW = onceq.Queue("raw", bytes, bytes, abort_limit=1000, backoff_ms=1, backoff_max_ms=3)
STAY = 120
ROUNDS = 12
MANY = 20_000
KEYS = "select * from {}.scan_keys({}, {}, {}, {}, 100)"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements at once, so that much happens between two looks."""
    monkeypatch.setattr(scans, "ELEMENTS", 3)


def scanned(driver: Any, queue: str = RAW.name) -> Iterator[scans.Scanned]:
    """The elements of a queue, by key pages of five."""
    scan = scanning.checked(queue, locked=False, has_connection=False)
    scan.page = 5
    while found := driver.run(scanning.following(scan)):
        yield from found


def later() -> datetime:
    return datetime.now(UTC) + timedelta(milliseconds=50)


@pytest.mark.usefixtures("small")
def test_what_is_there_all_the_time_comes_once_whatever_others_do(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Sends, claims, aborts that change places, and what comes and goes."""
    qm.declare(RAW)
    stay = {
        qm.enqueue(RAW, b"stays", priority=number % 3, not_before=None if number % 4 else later())
        for number in range(STAY)
    }
    done = threading.Event()

    def disturb() -> None:
        chance = random.Random(1)
        with driving(conninfo, repository) as driver:
            life = driver.perform(ops.OpenIncarnation(process=uuid.uuid4(), host="here", pid=1))
            queue_id = qm.show("raw").queue_id
            while not done.is_set():
                for one in driver.perform(
                    ops.Claim(
                        incarnation=life.incarnation, queue_id=queue_id, n=20, turn=1, alone=True
                    )
                ):
                    charge = chance.choice([Charge.CHARGE, Charge.RELEASE, Charge.SUSPECT])
                    driver.perform(
                        ops.AbortElement(
                            seq=one.seq,
                            incarnation=life.incarnation,
                            charge=charge,
                            code="x",
                            error="x",
                        )
                    )

    def come_and_go() -> None:
        while not done.is_set():
            qm.dequeue("raw", eid=qm.enqueue(RAW, b"goes", priority=9))
            qm.enqueue(RAW, b"comes")

    others = [Background(disturb), Background(come_and_go)]
    try:
        with driving(conninfo, repository) as driver:
            for _ in range(ROUNDS):
                met = [one.eid for one in scanned(driver)]
                assert len(met) == len(set(met))
                assert stay - set(met) == set()
    finally:
        done.set()
    for one in others:
        one.result()


def test_a_late_page_costs_what_the_first_does(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Where all stand in one lane, where many wait for one moment, and behind them."""
    qm.declare(RAW)
    queue_id = qm.show("raw").queue_id
    with psycopg.connect(conninfo, autocommit=True) as connection:
        copies = (
            f"insert into {repository}.element (queue_id, lane, role, rid, eid, enqueued_at,"
            " sha256, body) select %s, 5, 'datagram', n::text, gen_random_uuid(), now(), '', ''"
            " from generate_series(1, %s) n"
        )
        connection.execute(copies.encode(), (queue_id, MANY))
        connection.execute(f"vacuum analyze {repository}.element".encode())
        last = scalar(conninfo, f"select max(seq) from {repository}.element")

        def blocks(lane: int, turn: int) -> int:
            asked = KEYS.format(repository, queue_id, lane, turn, last)
            explained: Any = connection.execute(
                f"explain (analyze, buffers, format json) {asked}".encode()
            ).fetchone()
            plan = explained[0][0]["Plan"]
            return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

        blocks(0, -1)  # plans are made
        first, late = blocks(0, -1), blocks(5, last - 200)
        assert late <= first + 20
        connection.execute(
            f"update {repository}.element set lane = %s, turn = 7 where seq <= %s".encode(),
            (Lane.DUE, last - 1000),
        )
        connection.execute(f"vacuum analyze {repository}.element".encode())
        assert blocks(10, 7) <= first + 20
    met = list(qm.scan("raw"))
    assert len({one.eid for one in met}) == len(met) == MANY


def test_nothing_is_open_between_two_pages(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"x"] * 150)
    found = qm.scan("raw")
    first = next(found)
    open_now = "select count(*) from pg_stat_activity where state like 'idle in transaction%'"
    assert scalar(conninfo, open_now) == 0
    assert qm.kill(first.eid, timeout_s=0.0) is KillAnswer.KILLED
    assert sum(1 for _ in found) == 149


def test_a_task_scans(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    qm.declare(RAW)
    eids = qm.enqueue_many(RAW, [b"x"] * 120)

    async def scan() -> None:
        async with onceq.open_async(conninfo, repository=repository) as own:
            assert [one.eid async for one in own.scan("raw")] == eids
            with pytest.raises(InvalidValue, match="connection="):
                own.scan("raw", locked=True)
            async with await psycopg.AsyncConnection.connect(conninfo) as connection:
                locked = own.scan("raw", locked=True, connection=connection)
                assert [one.eid async for one in locked] == eids
                assert await own.dequeue("raw") is None

    asyncio.run(scan())
    assert qm.dequeue("raw") is not None


def test_what_is_wrong_is_said_at_once(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.declare(RAW)
    with pytest.raises(InvalidValue, match="locked scan needs connection="):
        qm.scan("raw", locked=True)
    with pytest.raises(InvalidValue, match="locked"):
        qm.scan("raw", locked=1)  # type: ignore[arg-type] # wrong
    with pytest.raises(InvalidName):
        qm.scan("no queue")
    with pytest.raises(QueueNotFound):
        next(qm.scan("nowhere"))
    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(IllegalState, match="READ COMMITTED"):
            next(qm.scan("raw", locked=True, connection=connection))
        connection.rollback()
        connection.autocommit = True
        with pytest.raises(IllegalState, match="in no transaction"):
            next(qm.scan("raw", locked=True, connection=connection))


def test_servers_pass_over_what_is_locked_and_run_it_then(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"1", b"2", b"3"])
    ran: list[bytes] = []

    def note(request: bytes, _: onceq.Context) -> bytes:
        ran.append(request)
        return request

    with psycopg.connect(conninfo) as connection:
        found = list(qm.scan("raw", locked=True, connection=connection))
        assert [(one.body, one.state) for one in found] == [
            (body, ElementState.QUEUED) for body in (b"1", b"2", b"3")
        ]
        with serving(conninfo, repository, RAW.handled_by(note)):
            qm.enqueue(RAW, b"4")
            wait_until(lambda: ran == [b"4"])
            with pytest.raises(DeadlineExceeded):
                qm.kill(found[0].eid, timeout_s=0.05)
            assert [one.body for one in qm.scan("raw")] == [b"1", b"2", b"3"]
            connection.commit()
            wait_until(lambda: sorted(ran) == [b"1", b"2", b"3", b"4"])


def test_nothing_that_is_locked_expires(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x", expires_at=later())
    with psycopg.connect(conninfo) as connection:
        (found,) = qm.scan("raw", locked=True, connection=connection)
        assert found.eid == eid
        over = (found.expires_at or datetime.now(UTC)) + timedelta(milliseconds=100)
        wait_until(lambda: datetime.now(UTC) > over)
        assert qm.dequeue("raw") is None
        assert [one.eid for one in qm.scan("raw")] == [eid]
    assert qm.dequeue("raw") is None
    assert [one.outcome for one in qm.lookup(eid=eid)] == ["expired"]


def test_a_lost_connection_ends_a_scan_and_its_locks(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"x"] * 150)
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(conninfo) as connection:
        found = qm.scan("raw", locked=True, connection=connection)
        next(found)
        backend = connection.info.backend_pid
        assert scalar(conninfo, f"select pg_terminate_backend({backend}, 10000)") is True
        with pytest.raises(ConnectionLost):
            list(found)
    for _ in range(150):
        assert qm.dequeue("raw") is not None
