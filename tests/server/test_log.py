"""What a server logs: each event of a request, a session, a queue is one line with its fields."""

from __future__ import annotations

import asyncio
import re
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import onceq
from onceq import telemetry
from onceq.engine.embedded.locate import locate
from onceq.engine.perform import together
from onceq.engine.sessions.identity import own_identity
from onceq.model import ops
from onceq.server import processes, reporting
from proof.harness.proxy import Cut, Proxy, Side
from tests.events import emits
from tests.lives import Life, living
from tests.parts import LIMIT_S, driving, linked, plain, scalar, serving, wait_until

if TYPE_CHECKING:
    from onceq.model.element import Element
    from tests.events import Events

RAW = onceq.Queue("raw", str, str, abort_limit=3, backoff_ms=1)


def book() -> None:
    raise LookupError("no such article")


def handle(request: str, context: onceq.Context) -> str:
    """Fails where the request says so."""
    if request == "bad":
        book()
    if request == "serialization" and context.attempt == 1 and not _SEEN:
        _SEEN.append(request)
        context.connection.execute(
            "do $$ begin raise exception 'conflict' using errcode = '40001'; end $$"
        )
    return request


async def handle_async(request: str, _: onceq.AsyncContext) -> str:
    """The same."""
    if request == "bad":
        book()
    return request


_SEEN: list[str] = []
HANDLERS: dict[str, Any] = {
    "sync": RAW.handled_by(handle),
    "batch": RAW.handled_by(handle, batch=8),
    "async": RAW.handled_by(handle_async),
}


@emits(telemetry.Aborted, telemetry.ServerBegan, telemetry.ServerStopped)
@pytest.mark.parametrize("kind", HANDLERS)
def test_each_abort_is_a_line_and_its_traceback_stands_there_once(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events, kind: str
) -> None:
    with serving(conninfo, repository, HANDLERS[kind]), qm.clerk("till", RAW) as clerk:
        sent = clerk.send("o-1", "bad")
        assert clerk.receive(timeout_s=LIMIT_S).outcome is onceq.RequestOutcome.FAILED
        clerk.send("o-2", "good")
        assert clerk.receive(timeout_s=LIMIT_S).value == "good"
    aborted = events.of(telemetry.Aborted)
    common = {"queue": "raw", "rid": "o-1", "eid": sent.eid, "code": "LookupError"}
    traces = [one.pop("traceback", None) for one in aborted]
    assert aborted == [
        {**common, "attempt": number, "charge": "charge", "fate": fate}
        for number, fate in ((1, "returned"), (2, "returned"), (3, "failed"))
    ]
    assert traces[1:] == [None, None]
    assert "test_log.py" in traces[0]
    assert traces[0].endswith("LookupError: no such article\n")
    heads = [line.partition("\n")[0] for line in events.lines if line.startswith("aborted")]
    line = f"aborted queue=raw rid=o-1 eid={sent.eid} attempt=1 code=LookupError charge=charge"
    assert heads[0] == f"{line} fate=returned"
    (began,), (stopped,) = events.of(telemetry.ServerBegan), events.of(telemetry.ServerStopped)
    assert (began["repository"], began["queues"], began["sessions"]) == (repository, ("raw",), 1)
    assert stopped["process"] == began["process"]
    counts = ("finished", "done", "failed", "returned", "claims_lost")
    assert [stopped[name] for name in counts] == [True, 1, 1, 2, 0]


@emits(telemetry.Conflict)
def test_a_conflict_is_no_warning(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    _SEEN.clear()
    with serving(conninfo, repository, HANDLERS["sync"]), qm.clerk("till", RAW) as clerk:
        clerk.transceive("1", "serialization", timeout_s=LIMIT_S)
    (conflict,) = events.of(telemetry.Conflict)
    assert (conflict["rid"], conflict["charge"]) == ("1", "environment")
    assert not events.of(telemetry.Aborted)


@emits(telemetry.Conflict)
@pytest.mark.parametrize("sqlstate", ["40001", "55P03"])
@pytest.mark.parametrize("how", ["from", "while"])
def test_a_conflict_is_one_whatever_its_handler_makes_of_it(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    events: Events,
    sqlstate: str,
    how: str,
) -> None:
    """It is told as one, though it costs what the handler's own exception does."""
    refused = f"do $$ begin raise exception 'refused' using errcode = '{sqlstate}'; end $$"

    def wrap(request: str, context: onceq.Context) -> str:
        if context.attempt == 1:
            try:
                context.connection.execute(refused.encode())
            except psycopg.Error as error:
                if how == "from":
                    raise LookupError("no such article") from error
                raise LookupError("no such article")  # noqa: B904 # as many do
        return request

    with serving(conninfo, repository, RAW.handled_by(wrap)), qm.clerk("till", RAW) as clerk:
        clerk.transceive("1", "x", timeout_s=LIMIT_S)
    assert not events.of(telemetry.Aborted)
    (conflict,) = events.of(telemetry.Conflict)
    told = {"rid": "1", "attempt": 1, "code": "LookupError", "charge": "charge", "fate": "returned"}
    assert told.items() <= conflict.items()


@emits(telemetry.BatchUndone)
def test_a_batch_that_comes_to_nothing_is_told(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(together, "LASTS_S", LIMIT_S)  # all are one batch, however slow it is
    make = (
        "create table {0}.known (what text primary key);"
        " create table {0}.noted (what text references {0}.known deferrable initially deferred);"
        " insert into {0}.known values ('good')"
    )
    with plain(conninfo) as connection:
        connection.execute(make.format(repository).encode())
    insert = f"insert into {repository}.noted values (%s)".encode()

    def note(request: str, context: onceq.Context) -> str:
        context.connection.execute(insert, [request])
        return request

    qm.declare(RAW)
    (first, *_) = qm.enqueue_many(RAW, ["good", "good", "bad", "good"])
    with serving(conninfo, repository, RAW.handled_by(note, batch=8)):
        ended = f"select count(*) from {repository}.history"
        wait_until(lambda: scalar(conninfo, ended) == 4)
    (undone, *_) = events.of(telemetry.BatchUndone)
    known = {"queue": "raw", "eid": first, "requests": 4, "called": 4, "code": "StatementRefused"}
    assert undone == known


@emits(telemetry.ClaimLost)
@pytest.mark.parametrize("batch", [1, 8])
def test_a_request_that_is_killed_while_it_runs_is_a_lost_claim(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events, batch: int
) -> None:
    """In a batch too: what was in it runs alone then."""

    def kill(request: str, context: onceq.Context) -> str:
        if request == "kill":
            with onceq.open(conninfo, repository=repository) as other:
                assert other.kill(context.eid) is onceq.KillAnswer.KILLED
        return request

    qm.declare(RAW)
    with qm.clerk("till", RAW, window=2) as clerk:
        sent = clerk.send_many([("1", "kill"), ("2", "good")])
        with serving(conninfo, repository, RAW.handled_by(kill, batch=batch)):
            assert clerk.receive(rid="2", timeout_s=LIMIT_S).value == "good"
            assert clerk.receive(rid="1", timeout_s=LIMIT_S).outcome.value == "cancelled"
            lost = events.wait_for(telemetry.ClaimLost)
    assert lost == {"queue": "raw", "rid": "1", "eid": sent[0].eid}
    assert not events.of(telemetry.Aborted)


@emits(telemetry.TookOver, telemetry.Aborted)
def test_a_takeover_says_of_whom_and_what_came_of_what_it_held(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    qm.declare(RAW)
    qm.enqueue_many(RAW, ["1", "2"])
    with living(conninfo, repository) as dead:
        held = dead.claim("raw", 2)
        dead.begin(held[0])
    with serving(conninfo, repository, HANDLERS["sync"]) as server:
        wait_until(lambda: server.statistics().done == 1)
        with linked(conninfo, repository) as supervisor:
            supervisor.perform(ops.Judge(process=dead.process, verdict=ops.Verdict.ENDED))
            reporting.tell_taken_over(supervisor)
        wait_until(lambda: server.statistics().done == 2)
    whose = {"of_incarnation": dead.incarnation, "of_process": dead.process}
    whose |= {"of_host": "test", "of_pid": 1, "suspects": 0}
    (aborted,) = events.of(telemetry.Aborted)
    assert (aborted["eid"], aborted["code"]) == (held[0].eid, "server_died")
    assert events.of(telemetry.TookOver) == [
        {**whose, "returned": 1, "charged": 0},
        {**whose, "returned": 0, "charged": 1},
    ]


def died(conninfo: str, repository: str) -> tuple[Life, Element]:
    """A session that began a request, of a process of this machine that is gone."""
    own = own_identity()
    assert own is not None
    with driving(conninfo, repository) as driver:
        life = Life(driver, identity=own.rpartition(" ")[0] + " 1")
        held = life.claim_one("raw")
        life.begin(held)
    return life, held


def check_death_told(events: Events, dead: Life, held: Element) -> None:
    """Fails unless the log says once that this one died, and what that cost."""
    charged = [one["of_process"] for one in events.of(telemetry.TookOver) if one["charged"] == 1]
    assert charged == [dead.process]
    (aborted,) = events.of(telemetry.Aborted)
    assert (aborted["eid"], aborted["attempt"], aborted["code"]) == (held.eid, 1, "server_died")
    assert (aborted["charge"], aborted["fate"]) == ("charge", "returned")


@emits(telemetry.TookOver, telemetry.Aborted)
def test_a_queue_manager_that_takes_over_tells_its_log(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, "1")
    dead, held = died(conninfo, repository)
    with psycopg.connect(conninfo) as connection:
        assert qm.dequeue("raw", timeout_s=LIMIT_S, connection=connection) is not None
    check_death_told(events, dead, held)


@emits(telemetry.TookOver, telemetry.Aborted)
def test_an_async_queue_manager_does_too(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    async def take() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as other,
            await psycopg.AsyncConnection.connect(conninfo) as connection,
        ):
            assert await other.dequeue("raw", timeout_s=LIMIT_S, connection=connection) is not None

    qm.declare(RAW)
    qm.enqueue(RAW, "1")
    dead, held = died(conninfo, repository)
    asyncio.run(take())
    check_death_told(events, dead, held)


@emits(telemetry.InDoubt, telemetry.SessionLost, telemetry.Reconnected)
def test_a_commit_without_an_answer_is_a_doubt(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="oq-") as directory,
        Proxy(conninfo, Path(directory)) as proxy,
        qm.clerk("till", RAW) as clerk,
    ):
        proxy.plan(Cut(side=Side.AFTER, pattern=re.compile("finish")))
        with serving(proxy.conninfo, repository, HANDLERS["sync"]):
            sent = clerk.send("1", "good")
            assert clerk.receive(timeout_s=LIMIT_S).value == "good"
            events.wait_for(telemetry.Reconnected, losses=1)
    doubt = {"queue": "raw", "rid": "1", "eid": sent.eid, "attempt": 1}
    assert events.of(telemetry.InDoubt) == [doubt]
    assert events.of(telemetry.SessionLost)[0]["code"] == "InDoubt"


@emits(telemetry.QueueStopped, telemetry.QueueServed)
def test_a_queue_that_is_stopped_is_told_once_and_when_it_is_served_again(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    with serving(conninfo, repository, HANDLERS["sync"], concurrency=2):
        qm.stop("raw", dequeue=True)
        events.wait_for(telemetry.QueueStopped, queue="raw")
        qm.start("raw", dequeue=True)
        events.wait_for(telemetry.QueueServed, queue="raw")
    assert len(events.of(telemetry.QueueStopped)) == 1


@emits(telemetry.SessionAbandoned, telemetry.ServerStopped)
def test_a_session_that_is_abandoned_is_told(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    goes_on, begun = threading.Event(), threading.Event()

    def wait(request: str, _: onceq.Context) -> str:
        begun.set()
        goes_on.wait(LIMIT_S)
        return request

    qm.declare(RAW)
    qm.enqueue(RAW, "x")
    with serving(conninfo, repository, RAW.handled_by(wait), stop_timeout_s=0.1):
        begun.wait(LIMIT_S)
    goes_on.set()
    assert events.of(telemetry.ServerStopped)[0]["finished"] is False


@emits(telemetry.NotListening)
def test_a_lost_connection_for_rings_is_told(
    conninfo: str, repository: str, events: Events
) -> None:
    mine = make_conninfo(conninfo, application_name=repository)
    ended = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = %s and query like 'listen onceq%%'"
    )
    with serving(mine, repository, HANDLERS["sync"]), plain(conninfo) as connection:
        wait_until(lambda: bool(connection.execute(ended, [repository]).fetchall()))
        events.wait_for(telemetry.NotListening)


@emits(telemetry.SupervisionFailed)
def test_a_supervisor_that_cannot_say_what_it_knows_tells_its_log(
    tmp_path: Path, repository: str, events: Events
) -> None:
    nowhere = locate(f"host={tmp_path} dbname=none")
    child = uuid.uuid4()
    processes._say_ended(child, nowhere, repository)
    processes._revoke({child}, nowhere, repository)
    told = events.of(telemetry.SupervisionFailed)
    assert [one["what"].partition(";")[0] for one in told] == [
        "say that a process has ended",
        "revoke what is killed",
    ]
