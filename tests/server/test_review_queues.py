"""Names, waits and queues that are gone; and what an element that only waits costs a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import DeadlineExceeded, IllegalState, InvalidValue, QueueNotFound
from onceq.model import ops
from tests.parts import LIMIT_S, Background, driving, plain, rows, serving, wait_until

if TYPE_CHECKING:
    import uuid

    import psycopg

RAW = onceq.Queue("raw", bytes, bytes, abort_limit=1, backoff_ms=1)


def read_by(connection: psycopg.Connection[Any], repository: str, query: str) -> int:
    """Returns how many elements a query reads."""
    fetched = (
        "select coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::integer from"
        f" pg_stat_xact_all_tables where relid = '{repository}.element'::regclass"
    )
    before = connection.execute(fetched.encode()).fetchone()
    connection.execute(query.encode())
    after = connection.execute(fetched.encode()).fetchone()
    assert before is not None
    assert after is not None
    return int(after[0] - before[0])


def refuses(_request: bytes, _context: onceq.Context) -> bytes:
    raise onceq.Reject("no")


def fail_one(qm: onceq.QueueManager, conninfo: str, repository: str) -> uuid.UUID:
    eid = qm.enqueue(RAW, b"x")
    with serving(conninfo, repository, RAW.handled_by(refuses)):
        wait_until(lambda: qm.show("raw.error").held == 1)
    return eid


def test_nobody_can_take_the_name_of_a_clients_reply_queue(qm: onceq.QueueManager) -> None:
    for queue in (
        onceq.Queue("reply-1", bytes, bytes),
        onceq.Queue("raw", bytes, bytes, error_queue="reply-1"),
    ):
        with pytest.raises(InvalidValue, match="reply queues"):
            qm.create(queue)
    qm.declare(RAW)
    with qm.clerk("first", RAW) as clerk:
        assert clerk.last_sent is None


def test_only_its_clerk_receives_a_reply(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with qm.clerk("c", RAW) as clerk, serving(conninfo, repository, RAW.handled_by(refuses)):
        clerk.send("1", b"x")
        wait_until(lambda: qm.show("reply-1").ready == 1)
        with pytest.raises(IllegalState, match="only its clerk"):
            qm.dequeue("reply-1")
        assert clerk.receive(timeout_s=LIMIT_S).rid == "1"


def test_nothing_is_redriven_into_a_queue_that_is_gone(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    eid = fail_one(qm, conninfo, repository)
    qm.destroy("raw")
    with pytest.raises(QueueNotFound, match="does not exist any more"):
        qm.redrive(eid)
    assert qm.show("raw.error").held == 1


def test_redriven_when_history_no_longer_tells_where_it_failed(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    eid = fail_one(qm, conninfo, repository)
    with plain(conninfo) as connection:
        connection.execute(f"delete from {repository}.history".encode())
    assert qm.redrive(eid) is not None
    assert qm.show("raw").depth == 1


def test_what_fails_without_an_error_queue_is_held_where_it_is(
    qm: onceq.QueueManager, repository: str, conninfo: str
) -> None:
    qm.declare(RAW)
    errors = onceq.Queue("raw.error", bytes, bytes)
    eid = qm.enqueue(errors, b"x")
    with plain(conninfo) as connection:
        for _ in range(5):
            with connection.transaction(force_rollback=True):
                qm.dequeue("raw.error", connection=connection, timeout_s=LIMIT_S)
        with connection.transaction(force_rollback=True):
            assert qm.dequeue("raw.error", connection=connection) is None
    (state,) = rows(conninfo, f"select state from {repository}.requests where outcome is null")
    assert state == ("held",)
    assert qm.lookup(eid=eid)[0].aborts == 5


def test_destroying_a_queue_does_not_hold_up_its_senders_for_ever(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with plain(conninfo) as held, driving(conninfo, repository) as destroyer:
        with held.transaction():
            onceq.enqueue(held, RAW, b"x", repository=repository)
            destroying = Background(lambda: destroyer.perform(ops.DestroyQueue(queue="raw")))
            with pytest.raises(DeadlineExceeded):
                destroying.result()
        assert qm.show("raw").depth == 1


def test_a_cancel_keeps_its_deadline_behind_a_connect_that_waits(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with qm.clerk("c", RAW) as clerk, plain(conninfo) as ghost, ghost.transaction():
        clerk.send("1", b"x")
        lock = f"select pg_advisory_xact_lock('{repository}.registrant'::regclass::oid::integer, 1)"
        ghost.execute(lock.encode())
        with pytest.raises(DeadlineExceeded):
            clerk.cancel_last_request(timeout_s=0.05)


def test_a_kill_may_wait_for_years(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    assert qm.kill(qm.enqueue(RAW, b"x"), timeout_s=1e9).value == "KILLED"


@pytest.mark.parametrize("when", ["now() + i * interval '1 hour'", "now() - interval '1 hour'"])
def test_elements_that_wait_cost_a_claim_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str, when: str
) -> None:
    """Neither those of the future (Q18) nor those that have all become due at one moment."""
    qm.declare(RAW)
    queue_id = qm.show("raw").queue_id
    with plain(conninfo) as connection:
        connection.execute(
            f"insert into {repository}.element (queue_id, lane, role, rid, eid, enqueued_at,"
            f" sha256, body, not_before) select {queue_id}, 10, 'datagram', i::text,"
            f" gen_random_uuid(), now(), '', '', {when} from generate_series(1, 20000) i".encode()
        )
    claimed = f"select count(*) from {repository}.claim(-1, {queue_id}, 1, 0, true)"
    with plain(conninfo) as connection, connection.transaction(force_rollback=True):
        assert read_by(connection, repository, claimed) < 100


def test_showing_a_queue_counts_that_queue_alone(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    other = onceq.Queue("other", bytes, bytes)
    qm.declare(other)
    qm.enqueue_many(other, [b"x"] * 2000)
    with plain(conninfo) as connection:
        connection.execute(f"analyze {repository}.element".encode())
        with connection.transaction(force_rollback=True):
            show = f"select ready from {repository}.queues where name = 'raw'"
            assert read_by(connection, repository, show) < 100
    assert qm.show("other").ready == 2000
