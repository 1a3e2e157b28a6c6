"""Whoever sleeps is rung, by the way that reaches them; and every ring may be lost or doubled."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.clerk import program, receiving
from onceq.clerk.session import Session
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import locate
from onceq.engine.wake import exchange
from onceq.engine.wake.bell import DEAF_S, DRAIN_MAX, Ringer
from onceq.engine.wake.waiting import Wakes
from onceq.errors import ReceiveTimeout
from onceq.model import ops
from onceq.server.program import SURVEY_EVERY_S
from proof.harness.fleet import Fleet, Settings, order_queue
from proof.harness.ledger import Order, make_ledger
from proof.harness.orders import recorded
from tests.crash.parts import assert_history
from tests.parts import LIMIT_S, Background, plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from onceq.model.queue import Handled
    from onceq.server.server import ServerStatistics

RAW = onceq.Queue("raw", bytes, bytes)
OTHER = onceq.Queue("other", bytes, bytes)
ASLEEP = (
    "select count(distinct pid) from pg_locks l join pg_class c on c.oid = l.classid"
    " where l.locktype = 'advisory' and l.mode = 'ShareLock' and c.relname = %s"
    " and c.relnamespace = to_regnamespace(%s)"
)


def echo(request: bytes, _: onceq.Context) -> bytes:
    return request


async def echo_async(request: bytes, _: onceq.AsyncContext) -> bytes:
    return request


def sleepers(conninfo: str, repository: str, of: str = "server_pkey") -> int:
    return int(scalar(conninfo, ASLEEP, of, repository))


def wait_asleep(conninfo: str, repository: str, count: int = 1, of: str = "server_pkey") -> None:
    wait_until(lambda: sleepers(conninfo, repository, of) == count)


def listening(conninfo: str) -> exchange.Exchange:
    """Returns the exchange of this process, once it is notified."""
    place = exchange._exchanges[os.getpid(), locate(conninfo).conninfo]
    wait_until(lambda: place.is_listening)
    return place


def has_gone_on(server: onceq.Server, before: ServerStatistics) -> bool:
    """Whether the server was rung since, and has done one request more."""
    now = server.statistics()
    return now.rung > before.rung and now.done == before.done + 1


BOTH = [RAW.handled_by(echo), RAW.handled_by(echo_async)]
WAYS = ["sync", "async"]


@pytest.mark.parametrize("handled", BOTH, ids=WAYS)
def test_a_server_that_sleeps_is_rung(
    qm: onceq.QueueManager, conninfo: str, repository: str, handled: Handled[Any, Any]
) -> None:
    with serving(conninfo, repository, handled) as server:
        wait_asleep(conninfo, repository)
        qm.enqueue(RAW, b"x")
        wait_until(lambda: server.statistics().rung > 0)
        wait_until(lambda: server.statistics().done == 1)
        wait_asleep(conninfo, repository)  # again
    assert sleepers(conninfo, repository) == 0


def test_a_server_of_several_queues_is_rung_for_each(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with serving(conninfo, repository, RAW.handled_by(echo), OTHER.handled_by(echo)) as server:
        for queue in [RAW, OTHER, OTHER, RAW]:
            wait_asleep(conninfo, repository)
            before = server.statistics()
            qm.enqueue_many(queue, [b"x"])
            wait_until(partial(has_gone_on, server, before))


@pytest.mark.parametrize("handled", BOTH, ids=WAYS)
def test_whoever_is_elsewhere_rings_through_the_database(
    qm: onceq.QueueManager, conninfo: str, repository: str, handled: Handled[Any, Any]
) -> None:
    with serving(conninfo, repository, handled) as server:
        listening(conninfo)
        with qm._link.borrowed() as link:
            link.connection.execute("set onceq_setting.host = 'another'")
        wait_asleep(conninfo, repository)
        rung = server.statistics().rung
        qm.enqueue(RAW, b"x")
        wait_until(lambda: server.statistics().rung > rung)
        wait_until(lambda: server.statistics().done == 1)


def test_a_callers_transaction_rings_when_it_commits(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with serving(conninfo, repository, RAW.handled_by(echo)) as server:
        listening(conninfo)
        wait_asleep(conninfo, repository)
        rung = server.statistics().rung
        with psycopg.connect(conninfo) as connection:
            qm.enqueue(RAW, b"x", connection=connection)
        wait_until(lambda: server.statistics().rung > rung)
        wait_until(lambda: server.statistics().done == 1)


def test_nobody_is_rung_where_nobody_sleeps(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with qm._link.borrowed() as link:
        line = link._wire
    assert line is not None
    with plain(conninfo) as connection:  # as one who is registered, and awake
        connection.execute("begin")
        qm.enqueue(RAW, b"x")
        with qm.clerk("till", RAW) as clerk:
            clerk.send("1", b"x")
            with pytest.raises(ReceiveTimeout):
                clerk.receive(timeout_s=0)
            assert sleepers(conninfo, repository, "registrant_pkey") == 1
        with serving(conninfo, repository, RAW.handled_by(echo)) as server:
            wait_until(lambda: server.statistics().done == 2)
    ringer = line._exchange.ringer
    assert (ringer.rung, ringer.lost) == (0, 0)


@pytest.mark.parametrize("batch", [1, 10])
def test_a_session_is_awake_while_it_runs_again_what_failed_at_its_commit(
    qm: onceq.QueueManager, conninfo: str, repository: str, batch: int
) -> None:
    queue = onceq.Queue("late", bytes, bytes, backoff_ms=0, abort_limit=3)
    with plain(conninfo) as connection:
        for text in (
            "create table {0}.known (what integer primary key)",
            "create table {0}.booked (what integer references {0}.known initially deferred)",
        ):
            connection.execute(text.format(repository).encode())
    seen: list[int] = []

    def book(_: bytes, context: onceq.Context) -> bytes:
        seen.append(sleepers(conninfo, repository))
        context.connection.execute(f"insert into {repository}.booked values (1)".encode())
        return b""

    qm.declare(queue)
    qm.enqueue_many(queue, [b"1", b"2"])
    with serving(conninfo, repository, queue.handled_by(book, batch=batch)) as server:
        wait_until(lambda: server.statistics().failed == 2)
        assert server.statistics().lives == 1
    assert len(seen) >= 6
    assert set(seen) == {0}


def sleeping_clerk(conninfo: str, repository: str) -> tuple[Link, Wakes, Any]:
    wakes = Wakes()
    link = Link(locate(conninfo), repository, wakes=wakes)
    link.reconnect()
    session: Session[bytes, bytes] = Session(name="till", thread="", queue=RAW, window=1)
    link.run(program.connect(session))
    link.run(program.send(session, ops.Request(rid="1", body=b"x")))
    return link, wakes, session


def test_a_clerk_that_sleeps_is_rung_and_wakes(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """It may also have looked just then; so it is asked more than once."""
    qm.declare(RAW)
    link, wakes, session = sleeping_clerk(conninfo, repository)
    for number in range(2, 22):
        receive = receiving.receive(session, ckpt=b"c", rid=None, limit=1, timeout_s=LIMIT_S)
        waiting = Background(partial(link.run, receive))
        wait_asleep(conninfo, repository, of="registrant_pkey")
        with serving(conninfo, repository, RAW.handled_by(echo)):
            assert waiting.result()[0].value == b"x"
        assert sleepers(conninfo, repository, "registrant_pkey") == 0
        if wakes.rung:
            break
        link.run(program.send(session, ops.Request(rid=str(number), body=b"x")))
    assert wakes.rung == 1
    link.close()


def test_a_clerk_that_was_not_answered_sleeps_on_until_it_connects_again(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    link, _, session = sleeping_clerk(conninfo, repository)
    for _ in range(2):
        with pytest.raises(ReceiveTimeout):
            link.run(receiving.receive(session, ckpt=None, rid=None, limit=1, timeout_s=0.01))
        assert sleepers(conninfo, repository, "registrant_pkey") == 1
    link.run(program.connect(session))
    assert sleepers(conninfo, repository, "registrant_pkey") == 0
    link.close()


def test_a_former_life_that_sleeps_keeps_nobody_from_sleeping(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    former, _, session = sleeping_clerk(conninfo, repository)
    with pytest.raises(ReceiveTimeout):
        former.run(receiving.receive(session, ckpt=None, rid=None, limit=1, timeout_s=0.01))
    with qm.clerk("till", RAW) as clerk, pytest.raises(ReceiveTimeout):
        clerk.receive(timeout_s=0.01)
    former.close()


def test_a_kill_rings_the_clerk(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    qm.declare(RAW)
    link, _, session = sleeping_clerk(conninfo, repository)
    with pytest.raises(ReceiveTimeout):
        link.run(receiving.receive(session, ckpt=None, rid=None, limit=1, timeout_s=0.01))
    bell = scalar(conninfo, f"select bell from {repository}.registrant")
    _, port, channel, _ = bell.split(" ")
    with plain(conninfo) as connection:
        connection.execute(f"listen {channel}".encode())
        qm.kill(qm.lookup("1")[0].eid)
        (heard,) = connection.notifies(timeout=LIMIT_S, stop_after=1)
    assert heard.payload == port
    receive = receiving.receive(session, ckpt=None, rid=None, limit=1, timeout_s=LIMIT_S)
    assert link.run(receive)[0].outcome is onceq.RequestOutcome.CANCELLED
    link.close()


# --- hints that are lost, doubled, forged -------------------------------------------------------


def dead_bell() -> str:
    """Returns a bell of this host that nobody has: its socket is closed."""
    line = exchange.join("nowhere", Wakes())
    line.close()
    assert line.bell_text is not None
    return line.bell_text


@pytest.fixture
def fleet(conninfo: str, repository: str, tmp_path: Path) -> Generator[Fleet]:
    make_ledger(conninfo, repository)
    settings = Settings(url=conninfo, repository=repository, files=str(tmp_path), concurrency=2)
    with onceq.open(conninfo, repository=repository) as qm:
        qm.declare(order_queue(settings.queue))
    with Fleet(settings, size=2) as processes:
        processes.wait(lambda: scalar(conninfo, f"select count(*) from {repository}.server") == 4)
        yield processes


def talk(qm: onceq.QueueManager, fleet: Fleet, name: str, count: int) -> None:
    queue = order_queue(fleet.settings.queue)
    with recorded(qm, name, queue, Path(fleet.settings.files)) as clerk:
        for number in range(count):
            clerk.send_many([(f"{name}-{number}", Order())])
            clerk.receive(b"checkpoint", timeout_s=LIMIT_S)
        clerk.satisfied()


def change_bells(conninfo: str, repository: str, bell: str) -> None:
    for table in ("server", "registrant"):
        with plain(conninfo) as connection:
            connection.execute(f"update {repository}.{table} set bell = %s".encode(), (bell,))


def test_without_any_ring_everything_is_done_all_the_same(
    conninfo: str, repository: str, fleet: Fleet
) -> None:
    dead = dead_bell()
    with plain(conninfo) as connection:  # whatever bell a session says it has
        connection.execute(
            f"create function {repository}.deafen() returns trigger language plpgsql as"
            f" $$ begin new.bell := '{dead}'; return new; end $$".encode()
        )
        for table in ("server", "registrant"):
            connection.execute(
                f"create trigger deafen before insert or update on {repository}.{table}"
                f" for each row execute function {repository}.deafen()".encode()
            )
    change_bells(conninfo, repository, dead)
    with onceq.open(conninfo, repository=repository) as qm:
        talk(qm, fleet, "till", 4)
        with qm._link.borrowed() as link:
            assert link._wire is not None
            assert link._wire._exchange.ringer.rung > 0  # in vain
    assert_history(fleet, conninfo)


@contextlib.contextmanager
def flooding(ports: Iterable[int]) -> Generator[None]:
    """Sends rubbish to these ports for the time of the block, as fast as it goes."""
    stop = threading.Event()

    def flood() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not stop.wait(0.0005):
                for port in ports:
                    for _ in range(20):
                        sender.sendto(os.urandom(16), ("127.0.0.1", port))

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LIMIT_S)


def test_doubled_rings_and_rubbish_change_nothing(
    conninfo: str, repository: str, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Ringer.ring

    def twice(self: Ringer, bells: Iterable[str]) -> None:
        once(self, [one for bell in bells for one in (bell, bell)])

    monkeypatch.setattr(Ringer, "ring", twice)
    bells = rows(conninfo, f"select bell from {repository}.server")
    with (
        flooding([int(bell.split(" ")[1]) for (bell,) in bells]),
        onceq.open(conninfo, repository=repository) as qm,
    ):
        talk(qm, fleet, "till", 40)
    assert_history(fleet, conninfo)


@pytest.mark.parametrize("handled", BOTH, ids=WAYS)
def test_a_flood_makes_nobody_look_more_often(
    qm: onceq.QueueManager, conninfo: str, repository: str, handled: Handled[Any, Any]
) -> None:
    """Each wait takes its time: what wakes it is rings, of which there are none, and the poll."""
    with serving(conninfo, repository, handled) as server:
        wait_asleep(conninfo, repository)
        session = server._sessions[0]
        (bell,) = rows(conninfo, f"select bell from {repository}.server")[0]
        with flooding([int(bell.split(" ")[1])]):
            began, before = time.monotonic(), server.statistics().polled
            wait_until(lambda: session.wakes.rubbish > 1000)
        found, rubbish = server.statistics(), session.wakes.rubbish
        took_s = time.monotonic() - began  # after that: it goes on
        assert found.rung == 0
        assert found.polled - before <= took_s / SURVEY_EVERY_S + 4  # falling asleep
        assert rubbish <= DRAIN_MAX * (took_s / DEAF_S + 5)
        qm.enqueue(RAW, b"x")
        wait_until(lambda: server.statistics().done == 1)
