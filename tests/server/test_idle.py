"""Idle costs nothing, statements counted; and what comes is found as soon as it can be (G12)."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine.wake.watch import LONGEST_S, Watch
from onceq.model import ops
from onceq.server import program
from onceq.server.program import SURVEY_EVERY_S, SURVEY_SOON_S
from tests.lives import living
from tests.parts import LIMIT_S, Background, plain, scalar, serving, wait_blocked, wait_until
from tests.server.holder import HELD, holding
from tests.server.quiet import count_for, counted, let_nobody_survey, wait_unwatched
from tests.server.test_bells import change_bells, dead_bell, listening

if TYPE_CHECKING:
    from onceq.model.queue import Handled

RAW = onceq.Queue("raw", bytes, bytes)
OTHER = onceq.Queue("other", bytes, bytes)
PER_SECOND_MAX = 2.0
COUNTED_S = 2.5
BY_SURVEY_S = LONGEST_S / 4
"""Long before a session would look that nobody calls."""


def echo(request: bytes, _: onceq.Context) -> bytes:
    return request


async def echo_async(request: bytes, _: onceq.AsyncContext) -> bytes:
    return request


def plainly(request: str, _: onceq.Context) -> str:
    return request


SYNC, ASYNC = RAW.handled_by(echo), RAW.handled_by(echo_async)


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
    asked: list[float | None] = []
    asleep = Watch.asleep

    def noted(watch: Watch, bell: Any, op: ops.Sleep, now: float) -> Any:
        asked.append(op.within_s)
        return asleep(watch, bell, op, now)

    monkeypatch.setattr(Watch, "asleep", noted)
    with (
        serving(conninfo, repository, handled, concurrency=sessions) as server,
        counted(monkeypatch) as statements,
    ):
        wait_settled(server, sessions)
        made, took_s = count_for(COUNTED_S, statements)
        wait_until(lambda: statements["Survey"] > made["Survey"])  # and it does look
    assert set(made) <= {"Survey"}
    assert made.total() <= PER_SECOND_MAX * took_s
    assert set(asked) == {SURVEY_EVERY_S}, "each sleeps so long, and one of them looks then"


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
        made, took_s = count_for(COUNTED_S, statements)
        assert made.total() <= PER_SECOND_MAX * took_s
        change_bells(conninfo, repository, dead_bell())
        for queue in (RAW, OTHER):
            qm.enqueue(queue, b"x")
        wait_until(lambda: server.statistics().done == 2, BY_SURVEY_S)
        assert server.statistics().rung == 0


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_burst_wakes_as_many_as_it_needs(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    *,
    one_by_one: bool,
) -> None:
    """Nobody ends before all have begun: each needs a session of its own."""
    all_began = threading.Barrier(8)
    begun: list[bytes] = []

    def meet(request: bytes, _: onceq.Context) -> bytes:
        begun.append(request)
        all_began.wait(LIMIT_S)
        return request

    async def meet_async(request: bytes, _: onceq.AsyncContext) -> bytes:
        return meet(request, _)  # type: ignore[arg-type] # each session has a loop of its own

    handled = RAW.handled_by(meet if kind == "sync" else meet_async)
    with (
        serving(conninfo, repository, handled, concurrency=8) as server,
        counted(monkeypatch) as statements,
    ):
        wait_settled(server, 8)
        for number in range(8 if one_by_one else 0):
            qm.enqueue(RAW, b"x")
            wait_until(lambda: len(begun) > number)  # noqa: B023 # at once
        if not one_by_one:
            qm.enqueue_many(RAW, [b"x"] * 8)
        surveys = statements["Survey"]
        wait_until(lambda: server.statistics().done == 8)
        assert statements["Survey"] - surveys <= 2, "it did not wake one a second"
        wait_until(lambda: server.statistics().rung >= 5)  # others may have looked just then


def test_what_becomes_due_is_found_at_its_moment(
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what becomes due sooner than what was waited for, and what comes back after a while."""
    late: list[float] = []
    asked: list[tuple[float, float]] = []
    until_next = program._until_next

    def noted(sighting: ops.Sighting, vain: int) -> float:
        within_s = until_next(sighting, vain)
        if sighting.due_s is not None:
            asked.append((within_s, sighting.due_s))
        return within_s

    def note(request: bytes, _: onceq.Context) -> bytes:
        late.append(time.time() - float(request))
        return b""

    let_nobody_survey(monkeypatch)
    monkeypatch.setattr(program, "_until_next", noted)
    with serving(conninfo, repository, RAW.handled_by(note), concurrency=2) as server:
        wait_settled(server, 2)
        now = time.time()
        for after_s in (0.9, 0.7, 0.5, 0.3, 0.1):
            due = datetime.fromtimestamp(now + after_s, UTC)
            qm.enqueue(RAW, str(now + after_s).encode(), not_before=due)
        wait_until(lambda: len(late) == 5)
    assert min(late) >= 0
    assert all(within_s == due_s for within_s, due_s in asked), "it sleeps until then"


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
            wait_until(lambda: server.statistics().done == 1, BY_SURVEY_S)


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
        began, before = time.monotonic(), statements.copy()
        dying.kill()
        wait_until(lambda: server.statistics().done == 1)
        made = statements - before
        took_s = time.monotonic() - began  # after that: it goes on
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
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: all are rung for it, and nobody surveys meanwhile."""
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
        let_nobody_survey(monkeypatch)
        wait_unwatched(server)
        qm.declare(RAW)
        wait_until(lambda: scalar(conninfo, served, f"{{{qm.show('raw').queue_id}}}") == 3)
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
            assert scalar(conninfo, "select pg_terminate_backend(%s, 60000)", pid)
        wait_until(lambda: server.statistics().lives == 6, BY_SURVEY_S)
        wait_until(lambda: not set(scalar(conninfo, backends) or []) & set(pids))


@pytest.mark.parametrize("handled", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_stop_wakes_whoever_sleeps(
    conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch, handled: Handled[Any, Any]
) -> None:
    """Nobody surveys: it would not end by itself."""
    let_nobody_survey(monkeypatch)
    with serving(conninfo, repository, handled, concurrency=4) as server:
        wait_settled(server, 4)
        wait_unwatched(server)


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
        wait_until(lambda: server.statistics().done == 1, BY_SURVEY_S)
        go_on.set()
        assert server.statistics().rung == 0
