"""What a crash, a restart or a cut-short commit of the database means for who is charged, and
what is known: the started marker, suspects, volatile queues, and spec finding 9.

Each test has a PostgreSQL of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from msgspec.structs import replace

import onceq
from onceq.errors import IllegalState, InDoubt, Outcome
from onceq.model import ops
from onceq.model.element import Charge
from tests.engine.crashes import (
    NAME,
    RAW,
    connect_again,
    kill_a_backend,
    kill_postmaster,
    restart,
)
from tests.lives import Life
from tests.parts import (
    Background,
    driving,
    install_variant,
    plain,
    rows,
    scalar,
    serving,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.engine.embedded import EmbeddedServer

VOLATILE = onceq.Queue("fast", bytes, bytes, durable=False)


CRASHES = {"postmaster": kill_postmaster, "restart": restart, "backend": kill_a_backend}


@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
@pytest.mark.parametrize("dies", [False, True], ids=["the server lives", "the server dies too"])
def test_what_had_started_at_a_crash_is_suspect_and_not_charged(
    cluster: EmbeddedServer, own: onceq.QueueManager, crash: object, *, dies: bool
) -> None:
    """Two sessions of one process. Whichever connects first, nothing of the other is lost."""
    for body in (b"a", b"b", b"only claimed"):
        own.enqueue(RAW, body)
    process = uuid.uuid4()
    with driving(cluster.conninfo, NAME) as one, driving(cluster.conninfo, NAME) as two:
        first, second = Life(one, process), Life(two, process)
        for life in (first, second):
            life.begin(life.claim_one("raw"))
        assert callable(crash)
        crash(cluster)
    with driving(cluster.conninfo, NAME) as one, driving(cluster.conninfo, NAME) as two:
        if dies:
            Life(one).take_over()
        else:
            Life(two, process, second.incarnation)
            Life(one, process, first.incarnation)
        query = "select body, lane, aborts, faults, claimed_by from r.element order by seq"
        assert rows(cluster.conninfo, query) == [
            (b"a", 11, 0, 0, None),
            (b"b", 11, 0, 0, None),
            (b"only claimed", 5, 0, 0, None),
        ]
        assert scalar(cluster.conninfo, "select count(*) from r.server") == 2 - dies


ALONE = onceq.Queue("alone", bytes, bytes, abort_limit=2, backoff_ms=0)


@pytest.mark.parametrize("dies", [False, True], ids=["the server lives", "the server dies too"])
@pytest.mark.parametrize("in_a_row", [True, False], ids=["in a row", "not in a row"])
def test_a_suspect_is_charged_when_the_database_falls_often_in_a_row(
    cluster: EmbeddedServer, own: onceq.QueueManager, *, dies: bool, in_a_row: bool
) -> None:
    """As a suspect it runs alone: from its third fall on, where its limit is two."""
    own.declare(ALONE)
    own.enqueue(ALONE, b"x")
    process, former = uuid.uuid4(), None
    for fall in range(4):
        with driving(cluster.conninfo, NAME) as driver:
            life = Life(driver, None if dies else process, former)
            assert scalar(cluster.conninfo, "select aborts from r.element") == (
                1 if in_a_row and fall == 3 else 0
            )
            element = life.claim_one("alone")
            assert element.is_suspect == (fall > 0)
            if fall == 2 and not in_a_row:
                life.abort(element, Charge.ENVIRONMENT)
                element = life.claim_one("alone")
            life.begin(element)
            former = None if dies else life.incarnation
            kill_a_backend(cluster)
    with driving(cluster.conninfo, NAME) as driver:
        Life(driver, process, former).take_over()
    ended = rows(cluster.conninfo, "select outcome::text, aborts, code from r.history")
    assert ended == ([("failed", 2, "database_fell")] if in_a_row else [])


def finished_are(cluster: EmbeddedServer, count: int) -> bool:
    """Whether so many requests have finished; not while the database is down."""
    try:
        return bool(scalar(cluster.conninfo, "select count(*) from r.history") == count)
    except psycopg.OperationalError:
        return False


POISON = onceq.Queue("poison", bytes, bytes, abort_limit=3, backoff_ms=0)
EXECUTIONS_MAX = 12


@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "broken"])
def test_what_brings_the_database_down_each_time_fails_at_its_limit(
    cluster: EmbeddedServer, own: onceq.QueueManager, *, broken: bool
) -> None:
    """Two servers with two sessions each; beside it run innocents that take their time."""
    if broken:
        install_variant(cluster.conninfo, NAME, "falls_in_a_row", ("count(*)", "0 * count(*)"))
    poisoned: list[str] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        if request == b"poison" and len(poisoned) < EXECUTIONS_MAX:
            poisoned.append(context.rid)
            os.kill(context.connection.info.backend_pid, signal.SIGKILL)
        context.connection.execute("select pg_sleep(0.3)")
        return request

    own.declare(POISON)
    url = f"embedded:{cluster.directory}"
    handled = POISON.handled_by(handle)
    with (
        serving(url, NAME, handled, concurrency=2) as one,
        serving(url, NAME, handled, concurrency=2) as two,
    ):
        wait_until(lambda: one.statistics().lives == two.statistics().lives == 2)
        eids = own.enqueue_many(POISON, [b"1", b"2", b"poison", b"3", b"4"])
        wait_until(lambda: finished_are(cluster, 5), 200)
    ended = rows(cluster.conninfo, "select eid, outcome::text, aborts from r.history")
    ends = {eid: (outcome, aborts) for eid, outcome, aborts in ended}
    poison = ends.pop(eids[2])
    assert {outcome for outcome, _ in ends.values()} == {"done"}
    assert max(aborts for _, aborts in ends.values()) == 0
    if broken:
        assert (poison, len(poisoned)) == (("done", 0), EXECUTIONS_MAX)
    else:
        assert poison == ("failed", 3)
        assert len(poisoned) in {
            6,
            7,
        }  # the limit uncharged, then charged; a first claim may be lost


def test_a_suspect_is_claimed_alone_behind_fresh_work(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    own.enqueue(RAW, b"suspect")
    with driving(cluster.conninfo, NAME) as driver:
        life = Life(driver)
        life.begin(life.claim_one("raw"))
        kill_postmaster(cluster)
    with driving(cluster.conninfo, NAME) as driver:
        life = Life(driver)
        life.take_over()
        connect_again(own)
        for body in (b"1", b"2"):
            own.enqueue(RAW, body)
        assert [one.body for one in life.claim("raw", 9, turn=1)] == [b"1", b"2"]
        (suspect,) = life.claim("raw", 9, turn=1)
        assert suspect.is_suspect
        life.begin(suspect)
    with driving(cluster.conninfo, NAME) as driver:
        Life(driver).take_over(life)  # it ran alone, and its process died: now it is charged
        aborts = "select aborts from r.element where lane = 11 /* suspect */"
        assert scalar(cluster.conninfo, aborts) == 1


def test_a_crash_empties_a_volatile_queue_and_brings_nothing_back(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    own.declare(VOLATILE)
    own.enqueue_many(VOLATILE, [b"lost"] * 5)
    own.enqueue(RAW, b"kept")
    assert own.show("fast").depth == 5
    kill_postmaster(cluster)
    connect_again(own)
    assert own.dequeue("fast") is None
    own.enqueue(VOLATILE, b"new")
    assert own.show("fast").depth == 1
    found = own.dequeue("fast")
    assert found is not None
    assert found.body == b"new"
    kill_postmaster(cluster)
    connect_again(own)
    assert own.dequeue("fast") is None
    kept = own.dequeue("raw")
    assert kept is not None
    assert kept.body == b"kept"


def test_a_volatile_send_need_not_wait_for_the_disk(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    own.declare(VOLATILE)
    with driving(cluster.conninfo, NAME) as driver:
        commit = "current_setting('synchronous_commit')"
        values = "'fast', '', null, 4::smallint, null, null, null, null, null, true"
        sent = f"select {commit} from r.enqueue({values})"
        driver.connection.execute("begin")
        assert driver.connection.execute(sent.encode()).fetchone() == ("off",)
        driver.connection.execute("rollback")
        driver.connection.execute("begin")
        joined = sent.replace("true)", "false)")
        assert driver.connection.execute(joined.encode()).fetchone() == ("on",)
        driver.connection.execute("rollback")


# --- finding 9: a doubt -------------------------------------------------------------------------


@contextlib.contextmanager
def without_standby(cluster: EmbeddedServer) -> Generator[None]:
    """Synchronous replication to a standby that is not there: every commit waits."""

    def set_standby(statement: str, wanted: str) -> None:
        with plain(cluster.conninfo) as connection:
            connection.execute("set synchronous_commit = local")
            connection.execute(statement.encode())
            connection.execute("select pg_reload_conf()")
        query = "select current_setting('synchronous_standby_names')"
        wait_until(lambda: scalar(cluster.conninfo, query) == wanted)

    set_standby("alter system set synchronous_standby_names = 'missing'", "missing")
    try:
        yield
    finally:
        set_standby("alter system reset synchronous_standby_names", "")


WAITING = "from pg_stat_activity where wait_event = 'SyncRep'"


def cut_short(cluster: EmbeddedServer) -> None:
    """Cancels the wait of the one commit that waits: a WARNING, and it looks like success."""
    wait_until(lambda: scalar(cluster.conninfo, f"select count(*) {WAITING}") == 1)
    scalar(cluster.conninfo, f"select pg_cancel_backend(pid) {WAITING}")


@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "broken"])
def test_9_a_doubt_is_never_resolved_by_a_read_alone(
    cluster: EmbeddedServer, own: onceq.QueueManager, *, broken: bool
) -> None:
    if broken:
        write = "update onceq.repository set settled = settled + 1;"
        install_variant(cluster.conninfo, NAME, "settle", (write, ""))
    with own.clerk("till", RAW) as clerk:
        with without_standby(cluster):
            sending = Background(lambda: clerk.send("1", b"x"))
            cut_short(cluster)
            with pytest.raises(InDoubt) as doubt:
                sending.result()
            assert doubt.value.outcome is Outcome.UNKNOWN
            with pytest.raises(IllegalState, match="unknown"):
                clerk.send("1", b"x")
            assert [one.state for one in own.lookup("1")] == ["queued"]  # what a failover may undo
            resolving = Background(lambda: own.resolve("1"))
            if broken:
                assert resolving.result()
                return
            one = f"select count(*) {WAITING}"
            wait_until(lambda: scalar(cluster.conninfo, one) == 1 or not resolving.is_running)
            assert resolving.is_running
            connecting = Background(clerk.connect)
            wait_until(lambda: scalar(cluster.conninfo, f"select count(*) {WAITING}") == 2)
            assert resolving.is_running
            assert connecting.is_running
        assert [one.state for one in resolving.result()] == ["queued"]
        connecting.result()
        assert clerk.last_sent == "1"


def _ways(connected: ops.Connection) -> dict[str, list[ops.Op[Any]]]:
    send = ops.Send(
        who=connected.who,
        queue="raw",
        request=ops.Request(rid="1", body=b"x"),
        send_no=1,
        ack=[],
    )
    return {
        "statement": [send],
        "transaction": [ops.BeginWork(), replace(send, own_transaction=False), ops.Commit()],
        "one way": [ops.Post(send=send), ops.Posted()],
    }


async def _commits_of_a_task(
    cluster: EmbeddedServer, way: str, connected: threading.Event, go: threading.Event
) -> None:
    url = f"embedded:{cluster.directory}"
    async with onceq.open_async(url, repository=NAME) as qm, qm._link.borrowed() as link:
        commits = _ways(await link.perform(ops.Connect(name="c")))[way]
        connected.set()
        await asyncio.to_thread(go.wait)
        for op in commits:
            await link.perform(op)


def _commits(
    cluster: EmbeddedServer, way: str, connected: threading.Event, go: threading.Event
) -> None:
    url = f"embedded:{cluster.directory}"
    with onceq.open(url, repository=NAME) as qm, qm._link.borrowed() as link:
        commits = _ways(link.perform(ops.Connect(name="c")))[way]
        connected.set()
        go.wait()
        for op in commits:
            link.perform(op)


@pytest.mark.parametrize("way", ["statement", "transaction", "one way"])
@pytest.mark.parametrize("tasks", [False, True], ids=["a thread", "a task"])
def test_9_every_commit_that_is_cut_short_is_in_doubt(
    cluster: EmbeddedServer, own: onceq.QueueManager, way: str, *, tasks: bool
) -> None:
    own.declare(RAW)
    connected, go = threading.Event(), threading.Event()
    given = (cluster, way, connected, go)
    committing = Background(
        lambda: asyncio.run(_commits_of_a_task(*given)) if tasks else _commits(*given)
    )
    wait_until(connected.is_set)
    with without_standby(cluster):
        go.set()
        cut_short(cluster)
        with pytest.raises(InDoubt, match="standbys"):
            committing.result()


def test_9_a_server_in_doubt_learns_the_truth(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    executions: list[str] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        executions.append(context.rid)
        return request

    url = f"embedded:{cluster.directory}"
    with serving(url, NAME, RAW.handled_by(handle)) as server:
        wait_until(lambda: server.statistics().lives == 1)
        own.stop("raw", enqueue=False)
        eid = own.enqueue(RAW, b"x", rid="1")
        with without_standby(cluster):
            starting = Background(lambda: own.start("raw"))
            cut = f"select count(pg_cancel_backend(pid)) {WAITING}"  # the server's commit, too
            wait_until(lambda: scalar(cluster.conninfo, cut) >= 0 and not starting.is_running)
            with pytest.raises(InDoubt):
                starting.result()
            for _ in range(2):  # the claim, which then another life takes back, or the finish
                cut_short(cluster)
        wait_until(lambda: server.statistics().lives > 1 and not own.show("raw").depth)
    assert [one.outcome for one in own.lookup(eid=eid)] == ["done"]
    assert len(executions) >= 1


def test_a_warning_of_a_handler_is_no_doubt(
    conninfo: str, repository: str, qm: onceq.QueueManager
) -> None:
    """RAISE WARNING has the SQLSTATE, 01000, that a commit cut short has."""
    qm.declare(RAW)

    def handle(request: bytes, context: onceq.Context) -> bytes:
        context.connection.execute("do $$ begin raise warning 'look out'; end $$")
        return request

    with (
        serving(conninfo, repository, RAW.handled_by(handle)) as server,
        qm.clerk("till", RAW) as clerk,
    ):
        assert clerk.transceive("1", b"x", timeout_s=60).value == b"x"
        assert clerk.transceive("2", b"y", timeout_s=60).value == b"y"
        assert server.statistics().lives == 1
