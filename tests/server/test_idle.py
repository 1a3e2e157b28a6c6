"""Idle costs nothing, statements counted; and what comes is found as soon as it can be (G12)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine.sessions import session as engine_session
from onceq.engine.wake.waiting import LONGEST_RUNG_S
from onceq.errors import ReceiveTimeout
from onceq.model import ops
from onceq.model.element import RequestOutcome
from onceq.server.program import SURVEY_EVERY_S, SURVEY_SOON_S
from tests.lives import living
from tests.parts import LIMIT_S, Background, plain, scalar, serving, wait_blocked, wait_until
from tests.server.holder import HELD, holding
from tests.server.test_bells import change_bells, dead_bell, listening

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.model.queue import Handled

RAW = onceq.Queue("raw", bytes, bytes)
OTHER = onceq.Queue("other", bytes, bytes)
PER_SECOND_MAX = 2.0
COUNTED_S = 2.5
SOON_S = 0.05


def echo(request: bytes, _: onceq.Context) -> bytes:
    return request


async def echo_async(request: bytes, _: onceq.AsyncContext) -> bytes:
    return request


def plainly(request: str, _: onceq.Context) -> str:
    return request


SYNC, ASYNC = RAW.handled_by(echo), RAW.handled_by(echo_async)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Generator[Counter[str]]:
    """Counts the statements of all sessions in this process: idle, each is a transaction."""
    found: Counter[str] = Counter()
    lock = threading.Lock()
    text_of = engine_session.Statements.of

    def of(self: engine_session.Statements, op: ops.Op[Any]) -> Any:
        with lock:
            found[type(op).__name__] += 1
        return text_of(self, op)

    with monkeypatch.context() as patched:
        patched.setattr(engine_session.Statements, "of", of)
        yield found


def wait_settled(server: onceq.Server, sessions: int) -> None:
    """Waits until so many sessions sleep: one of them keeps watch."""
    wait_until(lambda: len(server._watch._sleepers) == sessions)


@pytest.mark.parametrize(
    ("handled", "sessions"),
    [(SYNC, 1), (ASYNC, 1), (SYNC, 8), (ASYNC, 8), (SYNC, 64), (ASYNC, 64)],
    ids=["sync 1", "async 1", "sync 8", "async 8", "sync 64", "async 64"],
)
def test_an_idle_process_makes_two_statements_a_second_at_most(
    conninfo: str,
    repository: str,
    monkeypatch: pytest.MonkeyPatch,
    handled: Handled[Any, Any],
    sessions: int,
) -> None:
    with (
        serving(conninfo, repository, handled, concurrency=sessions) as server,
        counted(monkeypatch) as statements,
    ):
        wait_settled(server, sessions)
        before = statements.copy()
        time.sleep(COUNTED_S)
        made = statements - before
    assert set(made) == {"Survey"}
    assert made.total() <= PER_SECOND_MAX * COUNTED_S
    assert made.total() >= int(COUNTED_S / SURVEY_EVERY_S) - 1  # and it does look


def test_sessions_of_both_kinds_have_one_watch(
    conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is lost of the other kind's rings is found for it."""
    both = [RAW.handled_by(echo), OTHER.handled_by(echo_async)]
    with (
        onceq.open(conninfo, repository=repository) as qm,
        serving(conninfo, repository, *both, concurrency=2) as server,
        counted(monkeypatch) as statements,
    ):
        wait_settled(server, 4)
        before = statements.copy()
        time.sleep(COUNTED_S)
        assert (statements - before).total() <= PER_SECOND_MAX * COUNTED_S
        change_bells(conninfo, repository, dead_bell())
        for queue in (RAW, OTHER):
            qm.enqueue(queue, b"x")
        wait_until(lambda: server.statistics().done == 2, timeout_s=2.0)
        assert server.statistics().rung == 0


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_burst_wakes_as_many_as_it_needs(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str, *, one_by_one: bool
) -> None:
    """Nobody ends before all have begun: each needs a session of its own."""
    all_began = threading.Barrier(8)

    def meet(request: bytes, _: onceq.Context) -> bytes:
        all_began.wait(LIMIT_S)
        return request

    async def meet_async(request: bytes, _: onceq.AsyncContext) -> bytes:
        all_began.wait(LIMIT_S)  # each session has a loop of its own
        return request

    handled = RAW.handled_by(meet if kind == "sync" else meet_async)
    with serving(conninfo, repository, handled, concurrency=8) as server:
        wait_settled(server, 8)
        began = time.monotonic()
        if one_by_one:
            for _ in range(8):
                qm.enqueue(RAW, b"x")
        else:
            qm.enqueue_many(RAW, [b"x"] * 8)
        wait_until(lambda: server.statistics().done == 8)
        assert time.monotonic() - began < 2.0
        assert server.statistics().rung >= 5  # the others may have looked by themselves just then


def test_what_becomes_due_is_found_at_its_moment(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Also what becomes due sooner than what was waited for, and what comes back after a while."""
    late: list[float] = []

    def note(request: bytes, _: onceq.Context) -> bytes:
        late.append(time.time() - float(request))
        return b""

    with serving(conninfo, repository, RAW.handled_by(note), concurrency=2) as server:
        wait_settled(server, 2)
        now = time.time()
        for after_s in (0.9, 0.7, 0.5, 0.3, 0.1):
            due = datetime.fromtimestamp(now + after_s, UTC)
            qm.enqueue(RAW, str(now + after_s).encode(), not_before=due)
        wait_until(lambda: len(late) == 5)
    assert min(late) >= 0
    assert median(late) < SOON_S


def test_what_a_dead_session_had_claimed_is_taken_over_in_time(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with living(conninfo, repository) as life:
        qm.enqueue(RAW, b"x")
        life.claim_one("raw")
        with serving(conninfo, repository, SYNC, concurrency=2) as server:
            wait_settled(server, 2)
            life.driver.connection.close()
            wait_until(lambda: server.statistics().done == 1, timeout_s=2.0)


def test_what_a_killed_process_had_begun_is_taken_over_without_polling(
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another process: kill -9. How soon: `python -m bench recovery`, recovery/idle."""
    qm.declare(HELD)
    qm.enqueue(HELD, "x")
    with (
        holding(conninfo, repository) as dying,
        serving(conninfo, repository, HELD.handled_by(plainly), concurrency=2) as server,
        counted(monkeypatch) as statements,
    ):
        wait_settled(server, 2)
        before = statements.copy()
        dying.kill()
        killed = time.monotonic()
        wait_until(lambda: server.statistics().done == 1)
        took_s = time.monotonic() - killed
        made = statements - before
    assert made["Survey"] <= 2 + took_s / SURVEY_SOON_S
    assert made["Claim"] <= 4


@pytest.mark.parametrize("n", [1, 2], ids=["plain", "general"])
def test_what_comes_while_it_falls_asleep_is_seen_by_its_second_look(
    qm: onceq.QueueManager, conninfo: str, repository: str, n: int
) -> None:
    """Whoever sent it found nobody asleep, and rang nobody."""
    qm.declare(RAW)
    queue_id = qm.show("raw").queue_id
    key = f"('{repository}.element_ready'::regclass::oid::integer, {queue_id})"
    with living(conninfo, repository) as life, plain(conninfo) as other:
        other.execute(f"select pg_advisory_lock{key}".encode())  # it stops on the way
        claim = ops.Claim(
            incarnation=life.incarnation,
            queue_id=queue_id,
            n=n,
            turn=1,
            alone=True,
            slot=life.slot,
            sleep=[queue_id],
        )
        claiming = Background(partial(life.driver.perform, claim))
        wait_blocked(conninfo, "claim", claiming)
        eid = qm.enqueue(RAW, b"x")
        other.execute(f"select pg_advisory_unlock{key}".encode())
        assert [one.eid for one in claiming.result()] == [eid]


def test_a_queue_that_is_made_anew_is_served_by_every_session(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    all_began = threading.Barrier(3)

    def meet(request: bytes, _: onceq.Context) -> bytes:
        all_began.wait(LIMIT_S)
        return request

    served = f"select count(*) from {repository}.server where queue_ids = %s::integer[]"
    with serving(conninfo, repository, RAW.handled_by(meet), concurrency=3) as server:
        listening(conninfo)
        wait_settled(server, 3)
        qm.destroy("raw")
        wait_until(lambda: scalar(conninfo, served, "{0}") == 3)
        wait_settled(server, 3)
        began = time.monotonic()
        qm.declare(RAW)
        wait_until(lambda: scalar(conninfo, served, f"{{{qm.show('raw').queue_id}}}") == 3)
        assert time.monotonic() - began < SURVEY_EVERY_S / 2
        qm.enqueue_many(RAW, [b"x"] * 3)
        wait_until(lambda: server.statistics().done == 3)


def test_a_session_that_lost_its_connection_while_it_slept_connects_again(
    conninfo: str, repository: str
) -> None:
    """Also one that keeps no watch, and would sleep for minutes."""
    with serving(conninfo, repository, SYNC, concurrency=3) as server:
        wait_settled(server, 3)
        backends = f"select array_agg(backend_pid) from {repository}.server"
        pids = scalar(conninfo, backends)
        for pid in pids:
            assert scalar(conninfo, "select pg_terminate_backend(%s, 5000)", pid)
        wait_until(lambda: server.statistics().lives == 6, timeout_s=2.0)
        wait_until(lambda: not set(scalar(conninfo, backends) or []) & set(pids))


@pytest.mark.parametrize("handled", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_stop_wakes_whoever_sleeps(
    conninfo: str, repository: str, handled: Handled[Any, Any]
) -> None:
    with serving(conninfo, repository, handled, concurrency=4) as server:
        wait_settled(server, 4)
        began = time.monotonic()
    assert time.monotonic() - began < SURVEY_EVERY_S / 2


def test_whoever_went_to_survey_and_did_not_come_back_is_replaced(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """One found work at its survey, and is busy: the others' lost rings are still found."""
    go_on = threading.Event()

    def work(request: bytes, _: onceq.Context) -> bytes:
        if request == b"long":
            go_on.wait(LIMIT_S)
        return request

    with serving(conninfo, repository, RAW.handled_by(work), concurrency=2) as server:
        wait_settled(server, 2)
        change_bells(conninfo, repository, dead_bell())
        qm.enqueue(RAW, b"long")
        wait_until(lambda: len(server._watch._sleepers) == 1)
        qm.enqueue(RAW, b"short")
        wait_until(lambda: server.statistics().done == 1, timeout_s=2.0)
        go_on.set()
        assert server.statistics().rung == 0


# --- clerks ---------------------------------------------------------------------------------------


def test_a_clerk_that_waits_makes_two_statements_a_second_at_most(
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        with pytest.raises(ReceiveTimeout):
            clerk.receive(timeout_s=1.0)
        with counted(monkeypatch) as statements:
            waiting = Background(partial(clerk.receive, timeout_s=LIMIT_S))
            wait_until(lambda: statements["Receive"] >= 5)  # it looks ever more seldom
            before = statements.copy()
            time.sleep(2 * LONGEST_RUNG_S)
            made = (statements - before).total()
        with serving(conninfo, repository, SYNC):
            assert waiting.result().value == b"x"
    assert made <= PER_SECOND_MAX * 2 * LONGEST_RUNG_S
    assert made <= 3


def test_a_request_that_nobody_serves_expires_at_its_moment(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk:
        due = datetime.now(UTC) + timedelta(seconds=1.2)
        clerk.send("1", b"x", expires_at=due)
        reply = clerk.receive(timeout_s=LIMIT_S)
        late_s = (datetime.now(UTC) - due).total_seconds()
    assert reply.outcome is RequestOutcome.EXPIRED
    assert 0 <= late_s < 4 * SOON_S


# --- those who dequeue ----------------------------------------------------------------------------


def test_a_dequeue_that_waits_makes_two_statements_a_second_at_most_and_is_rung(
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.declare(RAW)
    with counted(monkeypatch) as statements:
        waiting = Background(partial(qm.dequeue, "raw", timeout_s=LIMIT_S))
        wait_until(lambda: statements["Dequeue"] >= 6)  # it looks ever more seldom
        before = statements.copy()
        time.sleep(2 * LONGEST_RUNG_S)
        made = (statements - before).total()
        assert scalar(conninfo, f"select count(*) from {repository}.dequeuer") == 1
        enqueued = time.monotonic()
        with onceq.open(conninfo, repository=repository) as other:
            eid = other.enqueue(RAW, b"x")
        found = waiting.result()
    assert found is not None
    assert found.eid == eid
    assert time.monotonic() - enqueued < LONGEST_RUNG_S / 3
    assert made <= PER_SECOND_MAX * 2 * LONGEST_RUNG_S
    assert scalar(conninfo, f"select count(*) from {repository}.dequeuer") == 0


def test_whoever_gave_up_is_rung_no_more(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    assert qm.dequeue("raw", timeout_s=0.1) is None
    assert scalar(conninfo, f"select count(*) from {repository}.dequeuer") == 0
    held = "select count(*) from pg_locks where locktype = 'advisory' and classid = %s::regclass"
    assert scalar(conninfo, held, f"{repository}.element_ready") == 0


def test_a_dequeuer_that_died_is_not_rung_for_another(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with onceq.open(conninfo, repository=repository) as dead, dead._link.borrowed() as link:
        assert link.perform(ops.Dequeue(queue="raw", sleep=True)) is None
        link.close()
    known = f"select array_agg(backend_pid) from {repository}.dequeuer"
    (dead_pid,) = scalar(conninfo, known)
    with onceq.open(conninfo, repository=repository) as other:
        waiting = Background(partial(other.dequeue, "raw", timeout_s=LIMIT_S))
        wait_until(lambda: dead_pid not in scalar(conninfo, known))  # another is there instead
        qm.enqueue(RAW, b"x")
        assert waiting.result() is not None
    assert scalar(conninfo, known) is None


def test_what_becomes_due_is_dequeued_at_its_moment(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    due = datetime.now(UTC) + timedelta(seconds=1.0)
    qm.enqueue(RAW, b"x", not_before=due)
    assert qm.dequeue("raw", timeout_s=LIMIT_S) is not None
    assert 0 <= (datetime.now(UTC) - due).total_seconds() < 4 * SOON_S
