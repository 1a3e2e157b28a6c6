"""Claims of nobody who is known, as after pg_advisory_unlock_all(): they are given back."""

from __future__ import annotations

import threading

import pytest

import onceq
from onceq.engine.schema import health
from tests.lives import living
from tests.parts import LIMIT_S, plain, rows, scalar, serving, wait_until

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)
NOBODY = 999_999_999


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


def claim_for(conninfo: str, repository: str, who: int, what: str = "true") -> None:
    with plain(conninfo) as connection:
        connection.execute(
            f"update {repository}.element set claimed_by = {who} where {what}".encode()
        )


def test_what_nobody_who_is_known_has_claimed_is_given_back_uncharged(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    eid = qm.enqueue(RAW, b"x")
    claim_for(conninfo, repository, NOBODY)
    assert qm.dequeue("raw") is None
    with living(conninfo, repository) as life:
        wait_until(lambda: life.take_over() == 0 and qm.show("raw").claimed == 0)
        assert life.claim_one("raw").eid == eid
        assert scalar(conninfo, f"select sum(aborts) from {repository}.element") == 0
        assert scalar(conninfo, f"select {repository}.adopt()") == 0
        assert scalar(conninfo, f"select claimed_by from {repository}.element") == life.incarnation


def test_what_others_mean_by_a_claim_is_left_alone(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Negative claimants, and what stands in a reply."""
    with living(conninfo, repository) as life, qm.clerk("c", RAW) as clerk:
        clerk.send("1", b"x")
        life.run(life.claim_one("raw"), b"y")
        qm.enqueue(RAW, b"x")
        claim_for(conninfo, repository, -5, "role = 'datagram'")
        claim_for(conninfo, repository, NOBODY, "role = 'reply'")
        assert scalar(conninfo, f"select {repository}.adopt()") == 0
        found = rows(conninfo, f"select claimed_by from {repository}.element order by 1")
    assert found == [(-5,), (NOBODY,)]


def test_a_large_table_is_looked_at_in_slices(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """No call reads all of it; in the end all of it has been read."""
    for _ in range(4):
        qm.enqueue_many(RAW, 500 * [b"x" * 1500])
    claim_for(conninfo, repository, NOBODY)
    orphans = f"select count(*) from {repository}.element where claimed_by = {NOBODY}"
    adopted = [scalar(conninfo, f"select {repository}.adopt()")]
    assert 0 < adopted[0] < 2000
    while scalar(conninfo, orphans):
        adopted.append(scalar(conninfo, f"select {repository}.adopt()"))
        assert len(adopted) < 1000
    assert sum(adopted) == 2000


def test_a_handler_that_gives_up_its_sessions_locks_loses_and_doubles_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with plain(conninfo) as connection:
        connection.execute(f"create table {repository}.effects (body bytea)".encode())
    given_up = threading.Event()

    def handle(request: bytes, context: onceq.Context) -> bytes:
        if not given_up.is_set():
            given_up.set()
            context.connection.execute("select pg_advisory_unlock_all()")
        context.connection.execute(
            f"insert into {repository}.effects values (%s)".encode(), (request,)
        )
        return request

    bodies = [f"{number:03}".encode() for number in range(200)]
    qm.enqueue_many(RAW, bodies[:100])
    with (
        serving(conninfo, repository, RAW.handled_by(handle)),
        serving(conninfo, repository, RAW.handled_by(handle)),
    ):
        wait_until(given_up.is_set)
        qm.enqueue_many(RAW, bodies[100:])
        wait_until(lambda: not qm.show("raw").depth, LIMIT_S)
    found = rows(conninfo, f"select body from {repository}.effects order by body")
    assert [bytes(body) for (body,) in found] == bodies
    with plain(conninfo) as connection:
        assert health.stale_claims(connection, repository).unknown == 0
