"""The parts of the plugin, one by one: repositories, clock, drain, crashes."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine import faultpoints
from onceq.errors import Expired, InvalidValue, SettingsDiffer
from onceq.testing.clock import Clock
from onceq.testing.crash import NotCrashed
from onceq.testing.drain import Drain, NotDrained
from onceq.testing.repositories import Repositories
from tests.parts import LIMIT_S, plain, rows, scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onceq.testing.crash import Crash

WORDS = onceq.Queue("words", str, str, backoff_ms=60_000, abort_limit=2)
LENGTHS = onceq.Queue("lengths", int, int)


def same(request: Any, _: onceq.Context) -> Any:
    return request


@pytest.fixture
def repositories(conninfo: str) -> Generator[Repositories]:
    """Others than the plugin's own, so that none is there yet."""
    made = Repositories(conninfo)
    yield made
    made.close()


def used(conninfo: str, name: str) -> None:
    """Uses a repository for a little of everything."""
    with onceq.open(conninfo, repository=name) as qm:
        assert qm.declare(WORDS)
        with qm.clerk("client", WORDS) as clerk:
            clerk.send("1", "word")
            (ran,) = Drain(conninfo, name)(WORDS.handled_by(same))
            assert (ran.rid, ran.attempt, ran.outcome) == ("1", 1, "done")
            assert clerk.receive(b"ckpt", timeout_s=60).value == "word"


def test_a_repository_is_lent_again_and_is_like_new(
    repositories: Repositories, conninfo: str
) -> None:
    name = repositories.lend()
    for _ in range(2):
        used(conninfo, name)
        repositories.take_back(name)
        assert repositories.lend() == name
    assert repositories.made == 1
    with onceq.open(conninfo, repository=name) as qm:
        assert (qm.queues(), qm.lookup()) == ([], [])
    assert scalar(conninfo, f"select last_value from {name}.element_seq_seq") == 1


def test_a_number_that_was_taken_without_a_row_is_given_again(
    repositories: Repositories, conninfo: str
) -> None:
    name = repositories.lend()
    number = f"select nextval('{name}.registration_registration_id_seq')"
    assert scalar(conninfo, number) == 1
    repositories.take_back(name)
    assert repositories.lend() == name
    assert scalar(conninfo, number) == 1


CHANGES = {
    "function": "create or replace function {0}.holds(p_class regclass, p_id integer)"
    " returns boolean language sql volatile as 'select false'",
    "table": "create table {0}.mine (n integer)",
    "column": "alter table {0}.element add column mine integer",
    "trigger": "alter table {0}.taken disable trigger all",
    "row": "update {0}.repository set schema_version = 99",
    "schema": "drop schema {0} cascade",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_repository_that_was_changed_is_not_lent_again(
    repositories: Repositories, conninfo: str, change: str
) -> None:
    name = repositories.lend()
    with plain(conninfo) as connection:
        connection.execute(change.format(name).encode())
    repositories.take_back(name)
    assert repositories.lend() != name
    assert scalar(conninfo, "select to_regnamespace(%s)", name) is None


def test_a_repository_with_a_session_left_open_is_not_lent_again(
    repositories: Repositories, conninfo: str
) -> None:
    name = repositories.lend()
    with onceq.open(conninfo, repository=name):
        repositories.take_back(name)
    assert repositories.lend() != name
    assert rows(conninfo, f"select from pg_namespace where nspname = '{name}'") == []


def test_time_moves_for_everybody(
    onceq_qm: onceq.QueueManager, onceq_clock: Clock, onceq_drain: Drain
) -> None:
    onceq_qm.declare(WORDS)
    with onceq_qm.clerk("client", WORDS, window=3) as clerk:
        start = onceq_clock.now()
        clerk.send("later", "later", not_before=start + timedelta(hours=1))
        clerk.send("never", "never", not_before=start + timedelta(hours=2),
                   expires_at=start + timedelta(hours=1))  # fmt: skip
        assert onceq_drain(WORDS.handled_by(same)) == []
        assert onceq_clock.advance(timedelta(hours=1)) >= start + timedelta(hours=1)
        (ran,) = onceq_drain(WORDS.handled_by(same))
        assert (ran.request, ran.outcome) == ("later", "done")
        onceq_clock.advance(3600)
        assert onceq_drain(WORDS.handled_by(same)) == []
        replies = {one.rid: one for one in clerk.receive_many(2, timeout_s=60)}
        assert replies["later"].value == "later"
        with pytest.raises(Expired):
            _ = replies["never"].value


def test_a_clock_goes_on_and_is_given_back(conninfo: str, repository: str) -> None:
    with Clock(conninfo, repository) as clock:
        with pytest.raises(InvalidValue, match="not back"):
            clock.advance(-1)
        clock.advance(86400)
        ahead = f"select extract(epoch from {repository}.now() - clock_timestamp())"
        assert 86399 < scalar(conninfo, ahead) < 86401
        with pytest.raises(InvalidValue, match="one at a time"):
            Clock(conninfo, repository)
        clock.advance(86400)
        assert 2 * 86400 - 1 < scalar(conninfo, ahead) < 2 * 86400 + 1
    assert abs(scalar(conninfo, ahead)) < 1


def test_a_drain_follows_what_handlers_pass_on(
    onceq_qm: onceq.QueueManager, onceq_repository: str, onceq_drain: Drain
) -> None:
    for queue in (WORDS, LENGTHS):
        onceq_qm.declare(queue)

    def measure(word: str, context: onceq.Context) -> str:
        onceq.enqueue(context.connection, LENGTHS, len(word), repository=onceq_repository)
        return word

    async def count(length: int, _: onceq.AsyncContext) -> int:
        await asyncio.sleep(0)
        return length + 1

    for word in ("a", "bb"):
        onceq_qm.enqueue(WORDS, word)
    ran = onceq_drain(WORDS.handled_by(measure), LENGTHS.handled_by(count), concurrency=2)
    assert sorted((one.queue, one.request, one.reply, one.outcome) for one in ran) == [
        ("lengths", 1, 2, "done"),
        ("lengths", 2, 3, "done"),
        ("words", "a", "a", "done"),
        ("words", "bb", "bb", "done"),
    ]
    assert onceq_drain(WORDS.handled_by(measure)) == []


def test_a_drain_tells_what_failed(
    onceq_qm: onceq.QueueManager, onceq_clock: Clock, onceq_drain: Drain
) -> None:
    def fail(word: str, _: onceq.Context) -> str:
        raise ValueError(word)

    onceq_qm.declare(WORDS)
    onceq_qm.enqueue(WORDS, "poison")
    for attempt, outcome in ((1, None), (2, "failed")):
        (ran,) = onceq_drain(WORDS.handled_by(fail))
        assert (ran.attempt, str(ran.error), ran.outcome) == (attempt, "poison", outcome)
        onceq_clock.advance(3600)
    assert onceq_qm.show("words.error").held == 1


def test_a_drain_that_does_not_end_says_what_is_left(
    onceq_qm: onceq.QueueManager, onceq_drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    left = Drain._wait

    def noted(*given: Any) -> str | None:
        try:
            return left(*given)
        finally:
            looked.set()

    def slow(word: str, _: onceq.Context) -> str:
        looked.wait(LIMIT_S)
        return word

    monkeypatch.setattr(Drain, "_wait", noted)
    onceq_qm.declare(WORDS)
    with onceq_qm.clerk("client", WORDS) as clerk:
        clerk.send("4711", "word")
        with pytest.raises(NotDrained, match=r"4711 (queued|executing) words"):
            onceq_drain(WORDS.handled_by(slow), timeout_s=0.05)


def test_a_drain_raises_what_ends_its_server(onceq_drain: Drain, onceq_qm: Any) -> None:
    onceq_qm.declare(WORDS)
    with pytest.raises(SettingsDiffer):
        onceq_drain(onceq.Queue("words", str, str, abort_limit=7).handled_by(same))


def sender(conninfo: str, repository: str) -> Callable[[], None]:
    """A client that sends and is gone."""

    def call() -> None:
        with (
            onceq.open(conninfo, repository=repository) as qm,
            qm.clerk("client", WORDS) as clerk,
        ):
            clerk.send("1", "word")

    return call


@pytest.mark.parametrize("how", ["kill", "raise"])
@pytest.mark.parametrize(
    ("point", "found"),
    [
        ("Send.before", onceq.NotSubmitted),
        ("Send.after", onceq.Submitted),
    ],
)
def test_a_crash_strikes_at_its_place(
    onceq_qm: onceq.QueueManager,
    conninfo: str,
    onceq_crash_at: Callable[..., Crash],
    how: str,
    point: str,
    found: type[object],
) -> None:
    onceq_qm.declare(WORDS)
    crash = onceq_crash_at(point, sender(conninfo, onceq_qm.repository), how=how)
    assert (crash.point, crash.reached["Connect.after"]) == (point, 1)
    assert ("Send.after" in crash.reached) is (point == "Send.after")
    with onceq_qm.clerk("client", WORDS) as clerk:
        assert isinstance(clerk.recover(), found)
    assert faultpoints.hook is None  # the child's affair


def test_a_server_dies_between_two_things(
    onceq_qm: onceq.QueueManager,
    conninfo: str,
    onceq_crash_at: Callable[..., Crash],
    onceq_drain: Drain,
) -> None:
    """At its commit, in a thread of the child: this request is charged, and runs again."""
    onceq_qm.declare(WORDS)
    onceq_qm.enqueue(WORDS, "word")

    def serve() -> None:
        onceq.Server([WORDS.handled_by(same)]).run(conninfo, repository=onceq_qm.repository)

    onceq_crash_at("Call.after", serve)
    assert [one.aborts for one in onceq_qm.lookup(queue="words")] == [0]
    assert onceq_drain(WORDS.handled_by(same)) == []  # taken over and charged, it waits now
    with Clock(conninfo, onceq_qm.repository) as clock:
        clock.advance(60)
        assert [one.attempt for one in onceq_drain(WORDS.handled_by(same))] == [2]


def test_what_does_not_crash_is_told(
    onceq_qm: onceq.QueueManager, conninfo: str, onceq_crash_at: Callable[..., Crash]
) -> None:
    onceq_qm.declare(WORDS)
    with pytest.raises(NotCrashed, match=r"(?s)time 2: it ended\nIt came to: .*Send.after x1"):
        onceq_crash_at("Send.after", sender(conninfo, onceq_qm.repository), occurrence=2)
    with pytest.raises(NotCrashed, match=r"(?s)it raised: .*ZeroDivisionError"):
        onceq_crash_at("Send.after", lambda: 1 // 0)
    with pytest.raises(NotCrashed, match=r"neither died nor ended in 0.1 s"):
        onceq_crash_at("Send.after", lambda: time.sleep(60), timeout_s=0.1)
    with pytest.raises(InvalidValue, match="how is one of"):
        onceq_crash_at("Send.after", print, how="gently")
    with pytest.raises(
        InvalidValue, match=r"there is no crash point 'x'\nThere are: .*CreateQueue"
    ):
        onceq_crash_at("x", print)
