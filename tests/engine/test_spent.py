"""Rids whose history was trimmed: each way of sending looks for them (finding 3)."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.files import TrimOrder, trim_history
from onceq.manager import trimming
from onceq.model import ops
from onceq.model.archive_ops import ArchiveBegin, ArchiveOwners, ArchiveSpend
from onceq.model.spark_ops import SparkEnqueue
from tests.parts import Background, plain, scalar, serving, wait_blocked

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

WORDS = onceq.Queue("words", bytes, bytes, backoff_ms=0)
ALL = TrimOrder(keep_days=0, unarchived=True)


def reverse(word: bytes, _: onceq.Context) -> bytes:
    return word[::-1]


@pytest.fixture
def driver(onceq_url: str, qm: onceq.QueueManager) -> Iterator[SparkDriver]:
    qm.declare(WORDS)
    with contextlib.closing(connect(onceq_url)) as connection:
        yield SparkDriver(connection, qm.repository)


def end(qm: onceq.QueueManager, *rids: str) -> None:
    """Sends these, whose bodies are their rids, receives their replies, and one more."""
    with (
        serving(qm.located.conninfo, qm.repository, WORDS.handled_by(reverse)),
        qm.clerk("till", WORDS) as clerk,
    ):
        for rid in (*rids, "last"):
            clerk.send(rid, rid.encode())
            clerk.receive(timeout_s=60)
        clerk.disconnect()


def trim(qm: onceq.QueueManager) -> int:
    return trim_history(ALL, qm.located, qm.repository).trimmed["history"]


def rows(life: ops.Connection, *rids: str, bodies: list[bytes] | None = None) -> SparkEnqueue:
    return SparkEnqueue(
        registrant_id=life.registrant_id,
        epoch=life.epoch,
        queue=WORDS.name,
        send_no=life.s_no,
        rids=list(rids),
        bodies=[rid.encode() for rid in rids] if bodies is None else bodies,
        content_type=None,
    )


def one(life: ops.Connection, rid: str, body: bytes) -> ops.Send:
    who = ops.Identity(registrant_id=life.registrant_id, epoch=life.epoch)
    request = ops.Request(rid=rid, body=body)
    return ops.Send(who=who, queue=WORDS.name, request=request, send_no=9, ack=[])


def test_rows_whose_history_was_trimmed_are_not_enqueued_again(
    qm: onceq.QueueManager, driver: SparkDriver
) -> None:
    end(qm, "a", "b")
    assert trim(qm) == 2
    life = driver.perform(ops.Connect(name="till"))
    assert driver.perform(rows(life, "a", "b", "c")) == 1
    with pytest.raises(errors.RidReused, match='"b" was sent before with other content'):
        driver.perform(rows(life, "b", "d", bodies=[b"other", b"d"]))
    assert driver.perform(rows(life, "a", "b", "c", "d")) == 1


def test_a_clerk_that_sends_it_again_is_told_that_it_is_done(
    qm: onceq.QueueManager, driver: SparkDriver
) -> None:
    end(qm, "a", "b")
    trim(qm)
    with qm.clerk("till", WORDS, window=9) as clerk:
        assert clerk.send("a", b"a").state == "done"
        with pytest.raises(errors.ReplyGone):
            clerk.receive(rid="a", timeout_s=60)
        with pytest.raises(errors.RidReused):
            clerk.send("b", b"other")
        states = [sent.state for sent in clerk.send_many([("b", b"b"), ("c", b"c")])]
        assert states == ["done", "new"]
    assert driver.perform(ArchiveOwners(before=datetime.now(UTC))) == []


def test_what_is_left_is_small_and_of_what_was_trimmed_only(
    qm: onceq.QueueManager, driver: SparkDriver
) -> None:
    end(qm, *map(str, range(9)))
    assert trim(qm) == 9
    left = f"select count(*), max(pg_column_size(s.*)) <= 120 from {qm.repository}.spent s"
    assert driver.connection.execute(left.encode()).fetchone() == (9, True)


def test_a_trim_does_not_wait_long_for_a_transaction_of_a_client(
    qm: onceq.QueueManager, driver: SparkDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send that has looked before the trim keeps history, whatever it looked at by then."""
    end(qm, "a")
    monkeypatch.setattr(trimming, "WAIT_S", 0.05)
    life = driver.perform(ops.Connect(name="till"))
    with contextlib.closing(connect(qm.located.conninfo)) as connection:
        sender = SparkDriver(connection, qm.repository)
        sender.perform(ops.BeginWork())
        assert sender.perform(one(life, "a", b"a")).state == "done"
        assert trim(qm) == 0
        assert sender.perform(one(life, "a", b"a")).state == "done"
        sender.perform(ops.Rollback())
        assert trim(qm) == 1
        sender.perform(ops.BeginWork())  # from now on nobody is waited for
        assert sender.perform(one(life, "a", b"a")).state == "done"
        assert trim(qm) == 0


def test_no_send_is_between_the_mark_and_the_trim(
    qm: onceq.QueueManager, driver: SparkDriver
) -> None:
    """The mark waits for who has read that nothing is spent, though it has written nothing yet."""
    end(qm, "a")
    life = driver.perform(ops.Connect(name="till"))
    spend = ArchiveSpend(registrant_id=life.registrant_id, timeout_s=60.0)
    reads = f"select has_spent from {qm.repository}.registrant where name = 'till'"
    with plain(qm.located.conninfo) as connection, connection.transaction():
        connection.execute(
            f"select {qm.repository}.check_epoch(%s, %s)".encode(), (life.registrant_id, life.epoch)
        )
        marking = Background(lambda: driver.perform(spend))
        wait_blocked(qm.located.conninfo, "archive_spend", marking)
        assert scalar(qm.located.conninfo, reads) is False
    assert marking.result() is True
    assert scalar(qm.located.conninfo, reads) is True


def test_history_of_who_was_not_asked_stays(qm: onceq.QueueManager, driver: SparkDriver) -> None:
    """As with a trim of a former version, which does not ask."""
    end(qm, "a")
    due = driver.run(trimming.due(datetime.now(UTC) + timedelta(days=1), unarchived=True))
    epoch = driver.perform(ArchiveBegin(root=None)).epoch

    def removed() -> int:
        return driver.run(trimming.remove(epoch, due))["history"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trimming, "ArchiveOwners", _nobody)
        assert removed() == 0
    assert removed() == 1


def test_a_closed_client_leaves_nothing_and_nobody_connects_by_its_name(
    qm: onceq.QueueManager, driver: SparkDriver
) -> None:
    end(qm, "a", "b")
    trim(qm)
    assert [one.s_rid for one in qm.close_client("till", forced=True)] == ["last"]
    says = "connect by a name that was never used"
    with pytest.raises(errors.IllegalState, match=says), qm.clerk("till", WORDS) as clerk:
        clerk.connect()
    assert [one.state for one in qm.clients("till")] == ["closed"]
    left = f"select count(*) from {qm.repository}.spent"
    assert scalar(qm.located.conninfo, left) == 0
    driver.connection.execute(f"delete from {qm.repository}.registration".encode())
    assert trim(qm) == 1
    assert scalar(qm.located.conninfo, left) == 0
    assert qm.close_client("nobody") == []


@pytest.mark.usefixtures("driver")
def test_a_close_waits_for_who_is_connecting(qm: onceq.QueueManager) -> None:
    """A thread that is new is not left out, whichever comes first."""
    with qm.clerk("till", WORDS) as clerk:
        clerk.connect()
    with contextlib.closing(connect(qm.located.conninfo)) as connection:
        late = SparkDriver(connection, qm.repository)
        late.perform(ops.BeginWork())
        late.perform(ops.Connect(name="till", thread="2"))
        closing = Background(lambda: qm.close_client("till", forced=True, timeout_s=60))
        wait_blocked(qm.located.conninfo, "close_client", closing)
        late.perform(ops.Commit())
        assert [one.thread for one in closing.result()] == ["", "2"]


def _nobody(**_: Any) -> Generator[Any, Any, list[int]]:
    yield from ()
    return []
