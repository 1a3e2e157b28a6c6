"""Periodic requests on PostgreSQL: who ticks, two at once, upgrades, what is refused (ADR 39)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq import Periodic, telemetry
from onceq.engine.perform.driver import PostgresDriver
from onceq.errors import (
    IllegalState,
    InvalidName,
    InvalidValue,
    PeriodicNotFound,
    QueueNotEmpty,
    QueueNotFound,
    SettingsDiffer,
    TooLarge,
)
from onceq.manager import ticking
from onceq.model import ops
from onceq.model.periodic_ops import DueTicks, Tick, TickState
from tests.events import emits
from tests.parts import Background, driving, plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from onceq.testing.clock import Clock
    from tests.events import Events

RAW = onceq.Queue("raw", bytes, bytes)
NIGHTLY = Periodic("nightly", RAW, b"count", "0 2 * * *", zone="Europe/Berlin")
DAY_S = 86_400.0
AT_ONCE = 8


class Order(msgspec.Struct):
    cents: int


ORDERS = onceq.Queue("orders", Order, Order)


@pytest.fixture
def nightly(qm: onceq.QueueManager) -> Periodic[bytes]:
    qm.declare(RAW)
    assert qm.declare(NIGHTLY) is True
    return NIGHTLY


def echo(value: bytes, _: onceq.Context) -> bytes:
    return value


def tick_of(driver: PostgresDriver) -> Tick:
    """What a process has computed, and is about to do."""
    (due,) = driver.perform(DueTicks())
    (one,) = due.times.plan(due.next_at, due.now)
    return Tick(name=due.name, revision=due.revision, next_at=one.due, tick_at=one.at, to=one.to)


def sent(conninfo: str, repository: str) -> int:
    done = f"(select count(*) from {repository}.history where rid ^@ 'nightly@')"
    query = f"select count(*) + {done} from {repository}.element where rid ^@ 'nightly@'"
    found: int = scalar(conninfo, query)
    return found


# --- who ticks ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nightly")
def test_many_that_tick_at_once_send_one(
    conninfo: str, repository: str, onceq_clock: Clock
) -> None:
    """All have computed the tick before the first of them performs it."""
    together = threading.Barrier(AT_ONCE)

    def tick(_: int) -> TickState:
        with driving(conninfo, repository) as driver:
            op = tick_of(driver)
            together.wait()
            return driver.perform(op).state

    for day in range(1, 6):
        onceq_clock.advance(DAY_S)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            states = list(pool.map(tick, range(AT_ONCE)))
        assert states.count(TickState.SENT) == 1
        assert states.count(TickState.GONE) == AT_ONCE - 1
        assert sent(conninfo, repository) == day
        with driving(conninfo, repository) as driver:
            driver.perform(ops.Dequeue(queue="raw"))


@pytest.mark.usefixtures("nightly")
def test_who_waits_for_another_tick_does_nothing(
    conninfo: str, repository: str, onceq_clock: Clock
) -> None:
    """The first has not committed; the second does not wait for it."""
    onceq_clock.advance(DAY_S)
    with driving(conninfo, repository) as one, driving(conninfo, repository) as other:
        op = tick_of(one)
        one.perform(ops.BeginWork())
        assert one.perform(op).state is TickState.SENT
        assert other.perform(op).state is TickState.GONE
        one.perform(ops.Rollback())
        assert other.perform(op).state is TickState.SENT
    assert sent(conninfo, repository) == 1


@pytest.mark.usefixtures("nightly")
def test_an_idle_server_ticks(
    qm: onceq.QueueManager, conninfo: str, repository: str, onceq_clock: Clock
) -> None:
    with serving(conninfo, repository, RAW.handled_by(echo), concurrency=2) as server:
        onceq_clock.advance(DAY_S)
        wait_until(lambda: server.statistics().done == 1)
        info = qm.show_periodic("nightly")
        assert info.lag_s == 0.0
        assert info.ticked_at is not None
        onceq_clock.advance(DAY_S)
        wait_until(lambda: server.statistics().done == 2)
    assert sent(conninfo, repository) == 2


@pytest.mark.usefixtures("nightly")
def test_a_server_that_is_never_idle_ticks(
    qm: onceq.QueueManager, conninfo: str, repository: str, onceq_clock: Clock
) -> None:
    """Each of its sessions finds work whenever it looks; the tick is seen between two requests."""

    def again(value: bytes, _: onceq.Context) -> bytes:
        if value == b"on" and not sent(conninfo, repository):
            qm.enqueue(RAW, b"on")
        return value

    qm.enqueue(RAW, b"on")
    with serving(conninfo, repository, RAW.handled_by(again), concurrency=1) as server:
        wait_until(lambda: server.statistics().done > 2)
        onceq_clock.advance(DAY_S)
        wait_until(lambda: sent(conninfo, repository) == 1)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.usefixtures("nightly")
def test_a_dequeue_that_waits_ticks(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    onceq_clock: Clock,
    *,
    is_async: bool,
) -> None:
    async def wait_async() -> Any:
        async with onceq.open_async(conninfo, repository=repository) as other:
            return await other.dequeue("raw", timeout_s=30)

    def wait() -> Any:
        return asyncio.run(wait_async()) if is_async else qm.dequeue("raw", timeout_s=30)

    waiting = Background(wait)
    onceq_clock.advance(DAY_S)
    element = waiting.result()
    assert element is not None
    assert (element.body, element.rid[:8]) == (b"count", "nightly@")


@pytest.mark.usefixtures("nightly")
def test_without_anybody_tend_ticks(
    qm: onceq.QueueManager, onceq_clock: Clock, conninfo: str, repository: str
) -> None:
    assert qm.tend() == 0
    onceq_clock.advance(DAY_S)
    assert qm.tend() == 1
    assert qm.tend() == 0

    async def tend() -> int:
        async with onceq.open_async(conninfo, repository=repository) as other:
            return await other.tend()

    assert asyncio.run(tend()) == 0


@pytest.mark.usefixtures("nightly")
def test_a_dequeue_in_the_callers_transaction_leaves_it_alone(
    qm: onceq.QueueManager, onceq_clock: Clock, conninfo: str
) -> None:
    """It would be the caller's commit that moves the tick."""
    onceq_clock.advance(DAY_S)
    with plain(conninfo) as connection, connection.transaction():
        assert qm.dequeue("raw", timeout_s=0.5, connection=connection) is None
    assert qm.tend() == 1


# --- upgrades -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nightly")
def test_a_process_that_does_not_know_of_ticks_leaves_them(
    qm: onceq.QueueManager, onceq_clock: Clock, conninfo: str, repository: str
) -> None:
    """What code of the former commit asks, by the names of the columns."""
    onceq_clock.advance(DAY_S)
    survey = (
        f"select missing, numbers, ready, stopped, due_s, value, holders from {repository}.survey("
        "gen_random_uuid(), '{raw}', false, false, null, '{}')"
    )
    ((missing, _, ready, *_),) = rows(conninfo, survey)
    assert (missing, ready) == (0, [False])
    assert sent(conninfo, repository) == 0
    assert qm.tend() == 1


# --- with the other things that queues are told ---------------------------------------------------


def test_a_strict_queue_takes_it(qm: onceq.QueueManager, onceq_clock: Clock) -> None:
    strict = onceq.Queue("strict", bytes, bytes, order="strict")
    qm.declare(strict)
    qm.declare(Periodic("nightly", strict, b"count", "0 2 * * *"))
    qm.enqueue(strict, b"before")
    onceq_clock.advance(DAY_S)
    assert qm.tend() == 1
    bodies = [element.body for _ in range(2) if (element := qm.dequeue("strict")) is not None]
    assert bodies == [b"before", b"count"]


def test_a_volatile_queue_takes_it(qm: onceq.QueueManager, onceq_clock: Clock) -> None:
    qm.declare(onceq.Queue("volatile", bytes, bytes, durable=False))
    qm.declare(Periodic("often", onceq.Queue("volatile", bytes, bytes), b"x", "* * * * *"))
    onceq_clock.advance(120)
    assert qm.tend() == 1


@emits(telemetry.TickRefused)
def test_a_full_queue_gets_it_later_and_the_log_has_it_once(
    qm: onceq.QueueManager, onceq_clock: Clock, events: Events
) -> None:
    one = onceq.Queue("one", bytes, bytes, limits=onceq.Limits(depth=1))
    qm.declare(one)
    qm.declare(Periodic("nightly", one, b"count", "0 2 * * *"))
    qm.enqueue(one, b"in the way")
    onceq_clock.advance(DAY_S)
    for _ in range(3):
        assert qm.tend() == 0
        onceq_clock.advance(2)
    (event,) = events.of(telemetry.TickRefused)
    assert event["periodic"] == "nightly"
    assert 'queue "one" is full' in event["error"]
    info = qm.show_periodic("nightly")
    assert 'queue "one" is full' in (info.error or "")
    assert info.lag_s > 0
    qm.dequeue("one")
    assert qm.tend() == 1
    assert qm.show_periodic("nightly").error is None


@pytest.mark.usefixtures("nightly")
def test_a_zone_that_this_machine_does_not_know_is_put_off(
    qm: onceq.QueueManager,
    onceq_clock: Clock,
    conninfo: str,
    repository: str,
    events: Events,
) -> None:
    with plain(conninfo) as connection:
        connection.execute(f"update {repository}.periodic set zone = 'Mars/Olympus'".encode())
    onceq_clock.advance(DAY_S)
    assert qm.tend() == 0
    assert "Mars/Olympus" in events.of(telemetry.TickRefused)[0]["error"]
    assert "install the package tzdata" in (qm.show_periodic("nightly").error or "")
    with plain(conninfo) as connection:
        connection.execute(f"update {repository}.periodic set zone = 'UTC'".encode())
    assert qm.tend() == 0
    onceq_clock.advance(61)
    assert qm.tend() == 1


@pytest.mark.usefixtures("nightly")
def test_a_change_that_a_tick_overtakes_is_computed_anew(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """What comes next was computed, then another process sent just that."""
    with driving(conninfo, repository) as driver:
        change = ticking.pause("nightly", paused=True)
        assert driver.run(change) is True
        resume = ticking.pause("nightly", paused=False)
        op = next(resume)
        while not type(op).__name__.startswith("Pause"):
            op = resume.send(driver.perform(op))
        with plain(conninfo) as connection:
            connection.execute(
                f"update {repository}.periodic set ticked_at = next_at,"
                " next_at = next_at + interval '1 day'".encode()
            )
        op = resume.send(driver.perform(op))
        with contextlib.suppress(StopIteration):  # it ends
            while True:
                op = resume.send(driver.perform(op))
    info = qm.show_periodic("nightly")
    assert info.ticked_at is not None
    assert info.next_at > info.ticked_at


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"name": "a b"}, InvalidName, "periodic request's name"),
        ({"name": None}, InvalidName, "periodic request's name"),
        ({"queue": "orders"}, InvalidValue, "the queue is an onceq.Queue"),
        ({"request": Order}, InvalidValue, "request for queue 'orders'"),
        ({"request": {"cents": "x"}}, InvalidValue, "request for queue 'orders'"),
        ({"schedule": "0 2 * *"}, InvalidValue, "has 4 fields"),
        ({"schedule": "61 2 * * *"}, InvalidValue, "Bad minute"),
        ({"zone": "Berlin"}, InvalidValue, "zone 'Berlin' is not known here"),
        ({"missed": "some"}, InvalidValue, "missed is one of"),
        ({"overlap": 1}, InvalidValue, "overlap is True or False"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(
    given: dict[str, Any], error: type[Exception], says: str
) -> None:
    right: Any = {"name": "nightly", "queue": ORDERS, "request": Order(1), "schedule": "0 2 * * *"}
    Periodic(**right)
    with pytest.raises(error, match=says):
        Periodic(**{**right, **given})


def test_a_queue_that_cannot_take_it_is_refused(qm: onceq.QueueManager) -> None:
    with pytest.raises(QueueNotFound, match='queue "raw" does not exist'):
        qm.declare(NIGHTLY)
    qm.declare(onceq.Queue("raw", bytes, bytes, body_bytes_max=3))
    with pytest.raises(TooLarge, match="takes at most 3"):
        qm.declare(NIGHTLY)
    failed = Periodic("x", onceq.Queue("raw.error", bytes, bytes), b"x", "0 2 * * *")
    with pytest.raises(IllegalState, match="a periodic request needs a queue of requests"):
        qm.declare(failed)
    assert qm.periodics() == []


@pytest.mark.usefixtures("nightly")
def test_its_queue_is_not_destroyed(qm: onceq.QueueManager) -> None:
    with pytest.raises(QueueNotEmpty, match="that of a periodic request: remove that first"):
        qm.destroy("raw")
    assert qm.remove_periodic("nightly") is True
    qm.destroy("raw")


def test_one_that_is_not_there_is_not_found(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    for call in (qm.show_periodic, qm.pause_periodic, qm.resume_periodic):
        with pytest.raises(PeriodicNotFound, match="'nightly' does not exist: declare it first"):
            call("nightly")
    with pytest.raises(PeriodicNotFound):
        qm.alter_periodic(NIGHTLY)
    assert qm.remove_periodic("nightly") is False
    wrong: Any = RAW
    with pytest.raises(InvalidValue, match=r"write onceq\.Periodic"):
        qm.alter_periodic(wrong)


@pytest.mark.usefixtures("nightly")
def test_a_declaration_that_differs_is_refused_and_changed_by_alter(qm: onceq.QueueManager) -> None:
    assert qm.declare(NIGHTLY) is False
    later = Periodic("nightly", RAW, b"count", "0  3 * * *", zone="Europe/Berlin")
    with pytest.raises(
        SettingsDiffer, match=r"schedule is '0 2 \* \* \*', declared '0 3 \* \* \*'"
    ):
        qm.declare(later)
    qm.alter_periodic(later)
    assert qm.declare(later) is False
    assert [one.schedule for one in qm.periodics()] == ["0 3 * * *"]


# --- what is measured -----------------------------------------------------------------------------


@pytest.mark.usefixtures("nightly")
def test_the_lag_is_measured(qm: onceq.QueueManager, onceq_clock: Clock) -> None:
    def lag() -> float:
        text = qm.metrics().text()
        (line,) = [x for x in text.splitlines() if x.startswith("onceq_periodic_lag_seconds{")]
        assert line.startswith('onceq_periodic_lag_seconds{periodic="nightly"} ')
        return float(line.split()[1])

    assert lag() == 0
    onceq_clock.advance(2 * DAY_S)
    assert lag() > DAY_S - 5
    qm.tend()
    assert lag() == 0
