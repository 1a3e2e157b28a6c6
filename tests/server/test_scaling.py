"""How many processes a service is to have: the rules, the texts for them, and what is looked at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

import onceq
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import locate
from onceq.engine.perform.backlog import WAITING_MAX, Backlog, look
from onceq.errors import InvalidValue
from onceq.server.scaling import GROW_AFTER_S, SHRINK_AFTER_S, Present, Scale, Window, wanted
from tests.lives import living

if TYPE_CHECKING:
    from collections.abc import Generator

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
BUSY = tuple(uuid4() for _ in range(12))


def there(count: int) -> Present:
    return Present(BUSY[:count], count)


def seen(waiting: int = 0, oldest_s: float = 0.0, busy: int = 0) -> Backlog:
    return Backlog(NOON, waiting, oldest_s, frozenset(BUSY[:busy]))


@pytest.mark.parametrize(
    ("text", "present", "backlog", "idle_s", "count"),
    [
        ("2", 0, seen(), 0.0, 2),
        ("1..4", 0, seen(), 0.0, 1),
        ("1..4", 6, seen(9, 9.0), 0.0, 4),
        ("0..4", 0, seen(), 0.0, 0),
        ("0..4", 0, seen(1), 0.0, 1),
        ("1..8", 2, seen(50, GROW_AFTER_S), 0.0, 4),
        ("1..8", 2, seen(1, GROW_AFTER_S), 0.0, 3),
        ("1..3", 2, seen(50, GROW_AFTER_S), 0.0, 3),
        ("1..8", 2, seen(50, GROW_AFTER_S - 0.1), 0.0, 2),
        ("1..8", 3, seen(), SHRINK_AFTER_S, 2),
        ("1..8", 3, seen(), SHRINK_AFTER_S - 0.1, 3),
        ("1..8", 1, seen(), SHRINK_AFTER_S, 1),
        ("0..8", 1, seen(), SHRINK_AFTER_S, 0),
        ("1..8", 3, seen(busy=3), SHRINK_AFTER_S, 3),
        ("1..8", 3, seen(busy=2), SHRINK_AFTER_S, 2),
    ],
)
def test_it_grows_by_what_waits_and_shrinks_when_nothing_does(
    text: str, present: int, backlog: Backlog, idle_s: float, count: int
) -> None:
    assert wanted(Scale.parse(text), there(present), backlog, idle_s) == count


def test_the_first_starts_when_enough_wait() -> None:
    scale = Scale.parse("0..4", start_at=3)
    assert [wanted(scale, there(0), seen(waiting, 60.0), 0.0) for waiting in (2, 3)] == [0, 1]
    assert wanted(scale, there(1), seen(1, GROW_AFTER_S), 0.0) == 2, "it is not asked of the others"


def test_while_one_is_only_beginning_none_is_added() -> None:
    assert wanted(Scale.parse("0..8"), Present(BUSY[:2], 1), seen(50, 60.0), 0.0) == 2


@given(
    least=st.integers(0, 5),
    more=st.integers(0, 5),
    present=st.integers(0, 12),
    waiting=st.integers(0, 20),
    oldest_s=st.floats(0, 100),
    idle_s=st.floats(0, 100),
)
def test_it_stays_within_its_range(
    least: int, more: int, present: int, waiting: int, oldest_s: float, idle_s: float
) -> None:
    most = max(1, least + more)
    scale = Scale(least=least, most=most)
    count = wanted(scale, there(present), seen(waiting, oldest_s), idle_s)
    assert least <= count <= most
    assert count <= max(least, 2 * present, 1)


@pytest.mark.parametrize(
    ("text", "zone", "at", "is_open"),
    [
        ("22:00-06:00", "UTC", NOON, False),
        ("22:00-06:00", "UTC", NOON.replace(hour=23), True),
        ("22:00-06:00", "UTC", NOON.replace(hour=5, minute=59), True),
        ("22:00-06:00", "UTC", NOON.replace(hour=6), False),
        ("09:00-17:30", "UTC", NOON.replace(hour=17, minute=29), True),
        ("09:00-17:30", "UTC", NOON.replace(hour=17, minute=30), False),
        ("09:00-17:30", "UTC", NOON.replace(hour=8, minute=59), False),
        ("14:00-15:00", "Europe/Berlin", NOON, True),
        ("14:00-15:00", "Europe/Berlin", NOON.replace(month=1), False),
    ],
)
def test_a_window_is_open_each_day_in_its_zone(
    text: str, zone: str, at: datetime, *, is_open: bool
) -> None:
    assert Window.parse(text, zone).is_open(at) is is_open
    scale = Scale.parse("2..4", window=Window.parse(text, zone))
    assert wanted(scale, there(2), Backlog(at, 9, 9.0), 0.0) == (4 if is_open else 0)


def test_a_window_without_a_zone_is_this_machines() -> None:
    local = NOON.astimezone()
    text = f"{local:%H:%M}-{local + timedelta(minutes=1):%H:%M}"
    assert Window.parse(text).is_open(NOON)
    assert not Window.parse(text).is_open(NOON + timedelta(minutes=1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a number or a range"),
        ("two", "a number or a range"),
        ("1..", "a number or a range"),
        ("-1", "a number or a range"),
        ("1...3", "a number or a range"),
        ("\N{ARABIC-INDIC DIGIT TWO}", "a number or a range"),
        ("0", "from 1 to 1000"),
        ("1001", "from 1 to 1000"),
        ("3..2", "from 0 to 2"),
    ],
)
def test_a_range_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        Scale.parse(text)


@pytest.mark.parametrize(
    ("text", "zone", "said"),
    [
        ("22-6", None, "22:00-06:00"),
        ("24:00-06:00", None, "00:00 to 23:59"),
        ("22:60-06:00", None, "00:00 to 23:59"),
        ("22:00-22:00", None, "has no length"),
        ("22:00-06:00", "Europe/Atlantis", "Europe/Atlantis"),
        ("22:00-06:00", "../etc/passwd", "etc/passwd"),
        ("22:00-06:00", "", "zone"),
    ],
)
def test_a_window_that_is_none_is_refused(text: str, zone: str | None, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        Window.parse(text, zone)


def test_a_start_is_for_a_service_that_may_have_none() -> None:
    with pytest.raises(InvalidValue, match=r"say 0\.\.4"):
        Scale.parse("1..4", start_at=2)
    with pytest.raises(InvalidValue, match="start_at"):
        Scale.parse("0..4", start_at=WAITING_MAX + 1)


# what is looked at

RAW = onceq.Queue("raw", bytes, bytes)
STRICT = onceq.Queue("strict", bytes, bytes, order="strict")
OTHER = onceq.Queue("other", bytes, bytes)


@pytest.fixture
def link(qm: onceq.QueueManager, conninfo: str) -> Generator[Link]:
    for queue in (RAW, STRICT, OTHER):
        qm.declare(queue)
    found = Link(locate(conninfo), qm.repository)
    found.reconnect()
    yield found
    found.close()


def looked(link: Link, *queues: str, processes: tuple[UUID, ...] = ()) -> Backlog:
    return look(link.connection, link.repository, queues, processes)


def test_what_could_run_is_counted_and_nothing_else(link: Link, qm: onceq.QueueManager) -> None:
    assert (looked(link, "raw").waiting, looked(link, "raw").oldest_s) == (0, 0.0)
    qm.enqueue(RAW, b"x", not_before=looked(link).now + timedelta(hours=1))
    assert looked(link, "raw").waiting == 0, "it is not due"
    for _ in range(3):
        qm.enqueue(RAW, b"x")
    found = looked(link, "raw", "other")
    assert (found.waiting, found.oldest_s >= 0.0) == (3, True)
    assert (looked(link, "other").waiting, looked(link).waiting) == (0, 0)
    qm.stop("raw", dequeue=True)
    assert looked(link, "raw").waiting == 0, "nobody may dequeue it"


def test_how_long_the_oldest_has_waited_is_told(link: Link, qm: onceq.QueueManager) -> None:
    qm.enqueue(RAW, b"x")
    first = looked(link, "raw")
    qm.enqueue(RAW, b"x", priority=9)
    later = looked(link, "raw")
    assert later.oldest_s - first.oldest_s == pytest.approx(
        (later.now - first.now).total_seconds(), abs=1e-3
    )


def test_what_runs_is_not_waiting_and_its_process_is_busy(
    link: Link, qm: onceq.QueueManager, conninfo: str
) -> None:
    for queue in (RAW, RAW, STRICT, STRICT):
        qm.enqueue(queue, b"x")
    with living(conninfo, qm.repository) as life:
        assert looked(link, "raw", processes=(life.process,)).busy == frozenset()
        life.begin(life.claim_one("raw"))
        found = looked(link, "raw", processes=(life.process,))
        assert (found.waiting, found.busy) == (1, frozenset({life.process}))
        assert looked(link, "raw", processes=(BUSY[0],)).busy == frozenset()
        life.rollback()
        assert looked(link, "strict").waiting == 2
        life.claim_one("strict")
        assert looked(link, "strict").waiting == 0, "none may run beside it"
