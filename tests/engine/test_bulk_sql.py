"""Bulk enqueue in the database: each rid once, wherever the earlier one is, and who may send."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.model import ops
from onceq.model.spark_ops import SparkEnqueue
from proof.harness.ledger import ask
from tests.parts import Background, install_variant, plain, serving, wait_blocked, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = onceq.Queue("words", bytes, bytes, abort_limit=1, body_bytes_max=100)
PLACES = "select rid, count(*), min(role::text) from {}.element group by rid order by rid"


def reverse(word: bytes, _: onceq.Context) -> bytes:
    """Fails what is bad."""
    if word == b"bad":
        raise ValueError("it is bad")
    return word[::-1]


@pytest.fixture
def driver(onceq_url: str, qm: onceq.QueueManager) -> Iterator[SparkDriver]:
    qm.declare(WORDS)
    with contextlib.closing(connect(onceq_url)) as connection:
        yield SparkDriver(connection, qm.repository)


@pytest.fixture
def life(driver: SparkDriver) -> ops.Connection:
    return driver.perform(ops.Connect(name="till"))


def rows(life: ops.Connection | None, *rids: str, **more: Any) -> SparkEnqueue:
    """Returns what enqueues a row for each rid, of which the body is the rid."""
    given: dict[str, Any] = {
        "registrant_id": None if life is None else life.registrant_id,
        "epoch": None if life is None else life.epoch,
        "queue": WORDS.name,
        "send_no": 0 if life is None else life.s_no,
        "rids": list(rids),
        "bodies": [rid.encode() for rid in rids],
        "content_type": "text/plain",
    }
    return SparkEnqueue(**given | more)


@pytest.mark.parametrize("is_request", [True, False])
def test_a_rid_is_enqueued_once_wherever_it_is(
    driver: SparkDriver,
    life: ops.Connection,
    qm: onceq.QueueManager,
    onceq_url: str,
    *,
    is_request: bool,
) -> None:
    who = life if is_request else None
    url, names = onceq_url, qm.repository
    assert driver.perform(rows(who, "b", "a", "b", "bad")) == 3
    assert driver.perform(rows(who, "a", "b", "c", "bad")) == 1
    with serving(url, names, WORDS.handled_by(reverse)):
        _wait_idle(url, names)
    assert driver.perform(rows(who, "a", "b", "c", "bad", "d")) == 1
    roles = {rid: (count, role) for rid, count, role in ask(url, PLACES.format(names))}
    ended = dict(ask(url, f"select rid, count(*) from {names}.history group by rid"))
    assert ended == {"a": 1, "b": 1, "c": 1, "bad": 1}
    if is_request:
        replies = dict.fromkeys("abc", (1, "reply"))
        assert roles == {**replies, "bad": (2, "failed"), "d": (1, "request")}
        with qm.clerk("till", WORDS, window=9) as clerk:
            assert {clerk.receive(timeout_s=60).rid for _ in range(4)} == {"a", "b", "c", "bad"}
            clerk.acknowledge(clerk.unacknowledged)
        life = driver.perform(ops.Connect(name="till"))
        assert driver.perform(rows(life, "a", "b", "c", "bad", "d")) == 0
    else:
        assert roles == {"bad": (1, "failed"), "d": (1, "datagram")}


def _wait_idle(url: str, repository: str) -> None:
    query = f"select count(*) from {repository}.element where role in ('request', 'datagram')"
    wait_until(lambda: ask(url, query) == [(0,)])


def test_a_row_has_what_its_columns_say(
    driver: SparkDriver, life: ops.Connection, qm: onceq.QueueManager, onceq_url: str
) -> None:
    late = dt.datetime(2100, 1, 1, 0, 0, 0, 123457, dt.UTC)
    micros = int(late.timestamp()) * 1_000_000 + 123_457
    assert driver.perform(
        rows(
            life,
            "a",
            "b",
            priorities=[None, 9],
            not_before=[None, micros],
            expires_at=[micros, None],
            content_types=["x/y", None],
            properties=['{"k": [1]}', None],
        )
    )
    found = ask(
        onceq_url,
        "select rid, lane, priority, turn = seq, not_before, expires_at, content_type, properties,"
        f" send_no > 0, correlation_id from {qm.repository}.element order by rid",
    )
    assert found == [
        ("a", 5, 4, True, None, late, "x/y", {"k": [1]}, True, None),
        ("b", 10, 9, False, late, None, "text/plain", None, True, None),
    ]
    assert ask(onceq_url, f"select expires from {qm.repository}.registrant") == [(True,)]
    sent = {one.rid: one for one in driver.perform(_outstanding(life))}
    last = driver.perform(ops.Connect(name="till"))
    assert last.s_no == max(one.send_no for one in sent.values())
    assert sent[last.s_rid or ""].send_no == last.s_no


def _outstanding(life: ops.Connection) -> ops.Outstanding:
    return ops.Outstanding(who=life.who)


def test_the_next_life_counts_on(
    driver: SparkDriver, life: ops.Connection, qm: onceq.QueueManager
) -> None:
    driver.perform(rows(life, "a", "b"))
    with qm.clerk("till", WORDS, window=9) as clerk:
        clerk.send("c", b"c")
    after = driver.perform(ops.Connect(name="till"))
    assert after.s_rid == "c"
    driver.perform(rows(after, "d"))
    assert driver.perform(ops.Connect(name="till")).s_rid == "d"


def test_who_was_fenced_enqueues_nothing(driver: SparkDriver, life: ops.Connection) -> None:
    driver.perform(ops.Connect(name="till"))
    with pytest.raises(errors.Fenced):
        driver.perform(rows(life, "a"))
    assert list(driver.rows("select 1 from {schema}.element", [], 1)) == []


@pytest.mark.parametrize("is_request", [True, False])
@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"bodies": [b"a", b"x" * 101]}, errors.TooLarge, 'rid "new" has 101 bytes'),
        ({"bodies": [b"other", b"new"]}, errors.RidReused, 'rid "a" was sent before'),
        ({"priorities": [4, 10]}, errors.InvalidValue, "from 0 to 9, not 10"),
        ({"properties": [None, "{"]}, errors.InvalidValue, "json"),
        ({"queue": "nowhere"}, errors.QueueNotFound, "nowhere"),
        ({"queue": "words.error"}, errors.IllegalState, "takes no requests"),
    ],
)
def test_one_bad_row_refuses_them_all(
    driver: SparkDriver,
    life: ops.Connection,
    more: dict[str, Any],
    error: type[Exception],
    says: str,
    *,
    is_request: bool,
) -> None:
    who = life if is_request else None
    driver.perform(rows(who, "a"))
    with pytest.raises(error, match=says):
        driver.perform(rows(who, "a", "new", **more))
    found = list(driver.rows("select rid from {schema}.element", [], 9))
    assert found == [[("a",)]]


def test_other_content_in_one_batch_or_in_history_is_refused(
    driver: SparkDriver, qm: onceq.QueueManager
) -> None:
    with pytest.raises(errors.RidReused):
        driver.perform(rows(None, "a", "a", bodies=[b"1", b"2"]))
    driver.perform(rows(None, "a"))
    assert qm.dequeue(WORDS.name) is not None
    with pytest.raises(errors.RidReused):
        driver.perform(rows(None, "a", bodies=[b"1"]))
    assert driver.perform(rows(None, "a")) == 0


def test_a_stopped_queue_refuses(driver: SparkDriver, qm: onceq.QueueManager) -> None:
    qm.stop(WORDS.name, enqueue=True)
    with pytest.raises(errors.QueueStopped):
        driver.perform(rows(None, "a"))


@pytest.mark.parametrize("is_request", [True, False])
def test_a_twin_waits_and_finds_them_known(
    life: ops.Connection,
    qm: onceq.QueueManager,
    onceq_url: str,
    *,
    is_request: bool,
) -> None:
    who = life if is_request else None
    with plain(onceq_url) as slow, contextlib.closing(connect(onceq_url)) as connection:
        slow.execute("begin")
        assert SparkDriver(slow, qm.repository).perform(rows(who, "a", "b", "c")) == 3
        twin = SparkDriver(connection, qm.repository)
        call = Background(lambda: twin.perform(rows(who, "c", "d", "a")))
        wait_blocked(onceq_url, "enqueue_each_row", call)
        slow.execute("commit")
        assert call.result() == 1


def test_what_ends_between_the_looks_is_not_enqueued_again(
    driver: SparkDriver, life: ops.Connection, qm: onceq.QueueManager, onceq_url: str
) -> None:
    """As when a twin's row came, was served and went after the insert's snapshot was taken."""
    ended = (
        "insert into onceq.history (finished_at, enqueued_at, queue_id, aborts, role, outcome,"
        " eid, rid, sha256, registrant_id) values (now(), now(), q.queue_id, 0, 'request', 'done',"
        " gen_random_uuid(), 'a', sha256('a'), p_registrant);"
    )
    looks = "get diagnostics added = row_count;"
    install_variant(onceq_url, qm.repository, "enqueue_each_row", (looks, f"{looks} {ended}"))
    with pytest.raises(errors.EnvironmentFault, match="being sent by others"):
        driver.perform(rows(life, "a"))
    assert list(driver.rows("select 1 from {schema}.element", [], 1)) == []


def test_rows_of_a_volatile_queue_are_of_this_life_of_the_database(
    driver: SparkDriver, qm: onceq.QueueManager, onceq_url: str
) -> None:
    qm.declare(onceq.Queue("soft", bytes, bytes, durable=False))
    assert driver.perform(rows(None, "a", queue="soft")) == 1
    query = f"select e.life = l.life from {qm.repository}.element e, {qm.repository}.life l"
    assert ask(onceq_url, query) == [(True,)]
    assert driver.perform(rows(None, "a", queue="soft")) == 0
    assert driver.perform(rows(None, "a")) == 1  # a rid is known within its queue
