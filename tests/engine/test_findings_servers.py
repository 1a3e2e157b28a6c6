"""Spec findings 4, 5 and 8, against PostgreSQL: each cure, and what happens without it.

And what architecture 2 and 3 say of servers: the started marker, the chained claim, the token.
"""

from __future__ import annotations

import contextlib
import uuid

import psycopg
import pytest

import onceq
from onceq.errors import (
    ClaimLost,
    DeadlineExceeded,
    EnvironmentFault,
    HandlerMisuse,
    RequestFailed,
)
from onceq.model import ops
from onceq.model.element import Charge, Fate, KillAnswer
from onceq.model.queue import IsolationLevel
from tests.lives import Life, living
from tests.parts import (
    Background,
    driving,
    install_variant,
    plain,
    rows,
    scalar,
    serving,
    wait_blocked,
    wait_until,
)

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)

LOCK = "    select * into e from onceq.element where eid = p_eid and role in"
CONCLUDE = "    if p_seq is not null then\n"
READ_KILLS = """
    if exists (select from onceq.killed) then
        raise exception 'killed' using errcode = 'OQ002';
    end if;
"""

broken = pytest.mark.parametrize("broken", [False, True], ids=["as it is", "broken"])


def aborts_of(conninfo: str, repository: str) -> int:
    return int(scalar(conninfo, f"select aborts from {repository}.element"))


@broken
def test_4_the_abort_count_is_durable_outside_what_was_aborted(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    fates: list[Fate] = []
    with living(conninfo, repository) as life:
        for _ in range(7):
            claimed = life.claim("raw")
            if not claimed:
                break
            life.begin(claimed[0])
            if broken:  # counted, and then rolled back: it is executed for ever
                life.abort(claimed[0])
                life.rollback()
                fates.append(life.abort(claimed[0], Charge.RELEASE))
            else:
                life.rollback()
                fates.append(life.abort(claimed[0]))
    assert fates == [Fate.RETURNED] * 7 if broken else [*[Fate.RETURNED] * 4, Fate.FAILED]
    assert aborts_of(conninfo, repository) == (0 if broken else 5)


@broken
def test_4_a_death_is_counted_like_an_exception(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """Counting clean aborts only, a request that kills its server is executed for ever."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    if broken:
        install_variant(
            conninfo,
            repository,
            "started_by",
            ("marker::text, 'charge'", "marker::text, 'release'"),
        )
    dead: list[Life] = []
    for _ in range(6):
        with living(conninfo, repository) as life:
            life.take_over(*dead)
            for element in life.claim("raw"):
                life.begin(element)  # and the session ends: kill -9 of its process
            dead = [life]
    with living(conninfo, repository) as life:
        life.take_over(*dead)
    assert qm.show("raw.error").held == (0 if broken else 1)
    assert aborts_of(conninfo, repository) == (0 if broken else 5)


@broken
def test_5_a_finish_checks_its_incarnation(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """A server whose claim was revoked goes on, and finishes what has failed for good."""
    queue = onceq.Queue("once", bytes, bytes, abort_limit=1)
    qm.declare(queue)
    qm.enqueue(queue, b"x", rid="1")
    with plain(conninfo) as connection:
        connection.execute(f"create table {repository}.booked (n integer)".encode())
    if broken:
        fence = " and d.claimed_by = p_incarnation"
        install_variant(conninfo, repository, "conclude_done", (fence, ""))
    with living(conninfo, repository) as stopped, living(conninfo, repository) as other:
        element = stopped.claim_one("once")
        stopped.begin(element)
        stopped.execute(f"insert into {repository}.booked values (1)")
        other.driver.perform(
            ops.AbortElement(
                seq=element.seq,
                incarnation=stopped.incarnation,
                charge=Charge.CHARGE,
                code="server_died",
                error="it was thought dead",
            )
        )
        assert qm.show("once.error").held == 1
        with contextlib.nullcontext() if broken else pytest.raises(ClaimLost):
            stopped.finish(element)
        if broken:
            stopped.commit()
        stopped.rollback()
    outcomes = [
        outcome
        for (outcome,) in rows(
            conninfo, f"select outcome from {repository}.history order by finished_at"
        )
    ]
    assert outcomes == (["failed", "done"] if broken else ["failed"])
    assert scalar(conninfo, f"select count(*) from {repository}.booked") == int(broken)


def test_5_a_batch_finishes_only_if_all_are_still_its_own(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Each request of a batch has a fence, a reply and a history row of its own."""
    qm.declare(RAW)
    with qm.clerk("till", RAW, window=3) as clerk:
        clerk.send_many([(rid, rid.encode()) for rid in "123"])
    with living(conninfo, repository) as server:
        elements = server.claim("raw", 3)
        server.abort(elements[1], Charge.RELEASE)
        server.begin(elements[0])
        with pytest.raises(ClaimLost):
            server.finish_all(elements, [b"a", b"b", b"c"])
        server.rollback()
        server.begin(elements[0])
        server.finish_all(elements[::2], [b"a", b"c"])
        server.commit()
    assert qm.show("raw").depth == 1
    replied = f"select rid, body from {repository}.element where role = 'reply' order by rid"
    assert rows(conninfo, replied) == [("1", b"a"), ("3", b"c")]
    recorded = f"select rid, outcome from {repository}.history order by rid"
    assert rows(conninfo, recorded) == [("1", "done"), ("3", "done")]


@broken
def test_5_the_numbers_of_servers_are_never_reused(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as old:
        element = old.claim_one("raw")
        old.begin(element)
        qm_close = ops.CloseIncarnation(incarnation=old.incarnation)
        with driving(conninfo, repository) as other:
            other.perform(qm_close)
        if broken:
            restart = f"alter sequence {repository}.incarnation_seq restart with {old.incarnation}"
            forget = f"delete from {repository}.server where incarnation = {old.incarnation}"
            with plain(conninfo) as connection:
                connection.execute(restart.encode())
                connection.execute(forget.encode())
        with living(conninfo, repository) as new:
            assert (new.incarnation == old.incarnation) is broken
            again = new.claim_one("raw")
            assert again.eid == element.eid
            with contextlib.nullcontext() if broken else pytest.raises(ClaimLost):
                old.finish(element)  # without its own number, it takes what another executes
            old.rollback()


@broken
def test_8_the_decision_of_a_kill_is_the_lock_on_the_row(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """With a kill row that the finish reads: it checks, the kill commits, it commits: both win."""
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    if broken:
        with plain(conninfo) as connection:
            connection.execute(f"create table {repository}.killed (eid uuid)".encode())
        install_variant(
            conninfo,
            repository,
            "kill",
            (LOCK, f"    insert into onceq.killed values (p_eid); return 'KILLED';\n{LOCK}"),
        )
        install_variant(
            conninfo,
            repository,
            "claim_one",
            (CONCLUDE, f"{READ_KILLS}{CONCLUDE}"),
        )
    with living(conninfo, repository) as life:
        element = life.claim_one("raw")
        life.begin(element)
        life.finish(element)
        killing = Background(lambda: kill(conninfo, repository, eid))
        if broken:
            assert killing.result() is KillAnswer.KILLED
        else:
            wait_blocked(conninfo, f"{repository}.kill", killing)
        life.commit()
        assert killing.result() is (KillAnswer.KILLED if broken else KillAnswer.TOO_LATE)
    assert [one.outcome for one in qm.lookup(eid=eid)] == ["done"]


def kill(conninfo: str, repository: str, eid: uuid.UUID) -> KillAnswer:
    with driving(conninfo, repository) as driver:
        return driver.perform(ops.Kill(eid=eid))


def test_8_a_kill_wins_at_once_against_a_running_handler(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as life:
        element = life.claim_one("raw")
        life.begin(element)
        assert qm.kill(eid, timeout_s=60) is KillAnswer.KILLED
        assert qm.kill(eid, timeout_s=60) is KillAnswer.KILLED
        with pytest.raises(ClaimLost):
            life.finish(element)
        life.rollback()
    assert [one.outcome for one in qm.lookup(eid=eid)] == ["cancelled"]


def test_8_a_kill_that_waits_past_its_deadline_did_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as life:
        element = life.claim_one("raw")
        life.begin(element)
        life.finish(element)
        with pytest.raises(DeadlineExceeded) as late:
            qm.kill(eid, timeout_s=0.05)
        assert late.value.outcome is onceq.Outcome.NOTHING_HAPPENED
        life.rollback()
    assert qm.kill(eid) is KillAnswer.KILLED
    assert qm.kill(uuid.uuid4()) is KillAnswer.NOT_FOUND


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_chained_claim_would_throw_finished_work_away(
    qm: onceq.QueueManager, conninfo: str, repository: str, isolation: IsolationLevel
) -> None:
    """Why the server claims in a transaction of its own above READ COMMITTED."""
    qm.declare(RAW)
    for body in (b"1", b"2"):
        qm.enqueue(RAW, body)
    with living(conninfo, repository) as life, living(conninfo, repository) as other:
        element = life.claim_one("raw")
        life.begin(element, isolation)
        neighbour = other.claim_one("raw")
        other.abort(neighbour, Charge.RELEASE)  # after the snapshot, it has changed
        with pytest.raises(EnvironmentFault) as thrown_away:
            life.finish(element, n=1)
        assert thrown_away.value.sqlstate == "40001"
        life.rollback()
        life.begin(element, isolation)
        other.abort(other.claim_one("raw"), Charge.RELEASE)
        life.finish(element, n=0)
        life.commit()
    assert scalar(conninfo, f"select count(*) from {repository}.history") == 1


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_servers_above_read_committed_finish_without_a_fault(
    qm: onceq.QueueManager, conninfo: str, repository: str, isolation: IsolationLevel
) -> None:
    qm.declare(RAW)
    levels: set[str] = set()

    def handle(request: bytes, context: onceq.Context) -> bytes:
        row = context.connection.execute("show transaction_isolation").fetchone()
        assert row is not None
        levels.add(row[0])
        return request

    qm.enqueue_many(RAW, [b"x"] * 40)
    handled = RAW.handled_by(handle, isolation=isolation)
    with serving(conninfo, repository, handled, concurrency=3) as server:
        wait_until(lambda: qm.show("raw").depth == 0)
        wait_until(lambda: server.statistics().done == 40)
    assert levels == {isolation}
    assert server.statistics().claims_lost == 0


MISUSES = {
    "commit": "commit",
    "commit and begin": "commit; begin",
    "rollback": "rollback",
    "rollback and begin": "rollback; begin",
}


@pytest.mark.parametrize("statement", MISUSES.values(), ids=MISUSES)
def test_a_handler_that_ends_its_transaction_is_rejected(
    qm: onceq.QueueManager, conninfo: str, repository: str, statement: str
) -> None:
    """Its effects may be outside: run again, they would be there twice."""
    queue = onceq.Queue("raw", bytes, bytes)
    qm.declare(queue)
    executions: list[str] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        executions.append(context.rid)
        context.connection.execute(statement.encode())
        return request

    with serving(conninfo, repository, queue.handled_by(handle)), qm.clerk("till", queue) as clerk:
        reply = clerk.transceive("1", b"x", timeout_s=60)
        with pytest.raises(RequestFailed) as failed:
            _ = reply.value
    assert failed.value.code == HandlerMisuse.__name__
    assert executions == ["1"]


@pytest.mark.parametrize("raises", [False, True])
def test_a_commit_inside_a_block_of_psycopg_is_found_out(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, raises: bool
) -> None:
    queue = onceq.Queue("raw", bytes, bytes)
    qm.declare(queue)
    executions: list[str] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        executions.append(context.rid)
        if raises:
            context.connection.execute("commit")
            raise ValueError("after its effects had been committed")
        with context.connection.transaction():
            context.connection.execute("commit")
        return request

    with serving(conninfo, repository, queue.handled_by(handle)), qm.clerk("till", queue) as clerk:
        reply = clerk.transceive("1", b"x", timeout_s=60)
        with pytest.raises(RequestFailed) as failed:
            _ = reply.value
    assert failed.value.code == HandlerMisuse.__name__
    assert executions == ["1"]


def test_the_started_marker_survives_rollback_and_death(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """It names the one element that is charged; what was only claimed comes back as it was."""
    qm.declare(RAW)
    for body in (b"1", b"2", b"3"):
        qm.enqueue(RAW, body)
    with living(conninfo, repository) as life:
        claimed = life.claim("raw", 3)
        life.begin(claimed[1])
        with contextlib.suppress(psycopg.Error):
            life.execute("select 1 / 0")
        life.rollback()
        marker = f"select pg_sequence_last_value('{repository}.started_{life.slot}')"
        assert scalar(conninfo, marker) == claimed[1].seq
    with living(conninfo, repository) as other:
        other.take_over(life)
    found = rows(
        conninfo, f"select body, aborts, claimed_by, lane from {repository}.element order by seq"
    )
    assert found == [(b"1", 0, None, 10), (b"2", 1, None, 10), (b"3", 0, None, 10)]
