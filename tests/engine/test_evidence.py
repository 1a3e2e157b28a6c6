"""Who is charged for the end of a server, and whose a claim is: single sessions, step by step."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.errors import DeadlineExceeded
from onceq.model import ops
from onceq.model.element import Charge, Fate, KillAnswer
from tests.lives import Life, living
from tests.parts import rows, scalar, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.element import Element

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)
SUSPECT = 11
AGAIN = 10
FRESH = 5


@pytest.fixture(autouse=True)
def _three(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    for body in (b"1", b"2", b"3"):
        qm.enqueue(RAW, body)


@pytest.fixture
def held(conninfo: str, repository: str) -> Callable[[], list[tuple[int, int, bool]]]:
    """Of each element in order: its lane, its aborts, and whether it is claimed."""
    columns = "lane, aborts, claimed_by is not null"
    query = f"select {columns} from {repository}.element order by enqueued_at"
    return lambda: rows(conninfo, query)


def die(conninfo: str, *lives: Life) -> None:
    """Closes the connections, and waits until the database knows."""
    pids = [life.driver.connection.info.backend_pid for life in lives]
    for life in lives:
        life.driver.connection.close()
    alive = "select count(*) from pg_stat_activity where pid = any (%s)"
    wait_until(lambda: scalar(conninfo, alive, pids) == 0)


def begin_batch(life: Life, first: Element) -> None:
    """Begins a batch: whoever dies in it leaves the marker of its first, negated."""
    batch = ops.Begin(
        slot=life.slot, seq=-first.seq, token="test", isolation="read committed", alone=False
    )
    life.driver.perform(batch)


def test_a_takeover_leaves_the_living_alone(
    conninfo: str, repository: str, held: Callable[[], list[tuple[int, int, bool]]]
) -> None:
    """Also a process of which one session has died: its other session lives."""
    process = uuid.uuid4()
    with (
        living(conninfo, repository) as other,
        living(conninfo, repository, process) as one,
        living(conninfo, repository, process) as two,
    ):
        one.begin(one.claim("raw", 2)[0])
        two.begin(two.claim_one("raw"))
        other.take_over()
        die(conninfo, one)
        other.take_over()
        assert held() == [(FRESH, 0, True)] * 3
        die(conninfo, two)
        other.take_over(two)
        assert not any(claimed for _, _, claimed in held())


def test_of_several_that_had_started_none_is_charged(
    conninfo: str, repository: str, held: Callable[[], list[tuple[int, int, bool]]]
) -> None:
    process = uuid.uuid4()
    with (
        living(conninfo, repository) as other,
        living(conninfo, repository, process) as one,
        living(conninfo, repository, process) as two,
    ):
        first, _ = one.claim("raw", 2)
        one.begin(first)
        two.begin(two.claim_one("raw"))
        die(conninfo, one, two)
        other.take_over(one)
    assert held() == [(SUSPECT, 0, False), (AGAIN, 0, False), (SUSPECT, 0, False)]


def test_of_a_batch_none_is_charged_and_they_run_in_halves(
    conninfo: str, repository: str, held: Callable[[], list[tuple[int, int, bool]]]
) -> None:
    with living(conninfo, repository) as other, living(conninfo, repository) as life:
        first, *_ = life.claim("raw", 3)
        begin_batch(life, first)
        die(conninfo, life)
        other.take_over(life)
        assert held() == [(SUSPECT, 0, False)] * 3
        assert rows(conninfo, f"select together from {repository}.element") == [(2,)] * 3
        assert [len(other.claim("raw", 9)) for _ in range(3)] == [2, 1, 0]


@pytest.mark.parametrize("how", ["died", "cut"])
def test_what_a_batch_left_to_the_next_one_had_not_begun(
    conninfo: str, repository: str, held: Callable[[], list[tuple[int, int, bool]]], how: str
) -> None:
    """It finished what there was time for; its marker names one that is gone, and nobody."""
    process = uuid.uuid4()
    with living(conninfo, repository) as other, living(conninfo, repository, process) as life:
        first, second, _ = life.claim("raw", 3)
        begin_batch(life, first)
        life.finish_all([first, second], [b"", b""])
        life.commit()
        die(conninfo, life)
        if how == "died":
            other.take_over(life)
        else:
            with living(conninfo, repository, process, life.incarnation):
                pass
    assert held() == [(AGAIN, 0, False)]
    assert rows(conninfo, f"select code, faults, together from {repository}.element") == [
        (None, 0, None)
    ]
    assert rows(conninfo, f"select charge from {repository}.attempt") == []


def test_a_cut_connection_charges_nobody(
    conninfo: str, repository: str, held: Callable[[], list[tuple[int, int, bool]]]
) -> None:
    process = uuid.uuid4()
    with living(conninfo, repository, process) as life:
        life.begin(life.claim_one("raw"))
        die(conninfo, life)
        with living(conninfo, repository, process, life.incarnation):
            assert held()[0] == (AGAIN, 0, False)
    assert scalar(conninfo, f"select sum(faults) from {repository}.element") == 0  # no others done
    assert rows(conninfo, f"select charge from {repository}.attempt") == [("environment",)]


def test_the_eleventh_retry_makes_a_suspect_and_the_next_is_charged(
    conninfo: str, repository: str, held: Callable[[], list[tuple[int, int, bool]]]
) -> None:
    with living(conninfo, repository) as life:
        (element,) = life.claim("raw")
        for fault in range(1, 13):
            assert life.abort(element, Charge.RETRY) is Fate.RETURNED
            assert held()[0][:2] == (SUSPECT if fault > 10 else AGAIN, int(fault > 11))
            again = ops.ClaimEid(
                incarnation=life.incarnation, queue_id=element.queue_id, eid=element.eid
            )
            life.driver.perform(ops.AlterQueue(queue="raw", dequeue_started=True))  # ends a pause
            assert life.driver.perform(again) is not None


def test_one_suspect_at_a_time_is_claimed(conninfo: str, repository: str) -> None:
    """In the whole repository: when the database goes down, it is charged for it."""
    with living(conninfo, repository) as one, living(conninfo, repository) as two:
        for element in one.claim("raw", 3):
            assert one.abort(element, Charge.SUSPECT) is Fate.RETURNED
        first = one.claim_one("raw")
        assert first.is_suspect
        for turn in (1, 2):
            assert two.claim("raw", turn=turn) == []
        one.run(first)
        assert two.claim_one("raw").is_suspect


def test_an_incarnation_is_not_its_slot(conninfo: str, repository: str) -> None:
    with living(conninfo, repository) as one:
        one.driver.perform(ops.CloseIncarnation(incarnation=one.incarnation))
        with living(conninfo, repository) as two:
            assert two.slot == one.slot
            assert two.incarnation > one.incarnation


def test_what_is_claimed_is_nobody_elses(conninfo: str, repository: str) -> None:
    with living(conninfo, repository) as one, living(conninfo, repository) as two:
        assert [element.body for element in one.claim("raw", 2)] == [b"1", b"2"]
        assert [element.body for element in two.claim("raw", 9)] == [b"3"]


def test_from_its_finish_on_a_kill_waits(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Of a batch: for all that it has done."""
    with living(conninfo, repository) as life:
        first, second, other = life.claim("raw", 3)
        life.begin(first)
        life.finish_all([first, second], [b"", b""])
        assert qm.kill(other.eid) is KillAnswer.KILLED
        for one in (first, second):
            with pytest.raises(DeadlineExceeded):
                qm.kill(one.eid, timeout_s=0.05)


def test_the_row_of_a_session_that_is_finishing_stays(
    conninfo: str, repository: str, held: Callable[[], list[tuple[int, int, bool]]]
) -> None:
    """Or nobody would return what it holds, should it not finish after all."""
    with living(conninfo, repository) as other, living(conninfo, repository) as life:
        element = life.claim_one("raw")
        life.begin(element)
        life.finish(element)
        other.driver.perform(ops.CloseIncarnation(incarnation=life.incarnation))
        row = f"select count(*) from {repository}.server where incarnation = %s"
        assert scalar(conninfo, row, life.incarnation) == 1
        die(conninfo, life)
        other.take_over(life)
    assert not any(claimed for _, _, claimed in held())


def test_the_last_abort_leaves_one_reply(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    once = onceq.Queue("once", bytes, bytes, abort_limit=1)
    qm.declare(once)
    with qm.clerk("till", once) as clerk, living(conninfo, repository) as life:
        clerk.send("1", b"x")
        assert life.abort(life.claim_one("once")) is Fate.FAILED
    found = rows(conninfo, f"select role::text, rid from {repository}.element where rid = '1'")
    assert sorted(found) == [("failed", "1"), ("reply", "1")]
