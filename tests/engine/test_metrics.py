"""A look at a repository for metrics: what it counts, what it does not read, where it goes on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import InvalidValue
from onceq.manager.metrics import BOUNDS_S, BOUNDS_US, METRICS, UP
from tests.parts import install_variant, plain, scalar, serving

if TYPE_CHECKING:
    import psycopg

    from onceq.testing.clock import Clock

WORK = onceq.Queue("work", str, str, abort_limit=2, backoff_ms=0)
LATER = 10.0
DAY_S = 86_400.0
ENDED = """
insert into {0}.history (finished_at, started_at, enqueued_at, queue_id, aborts, role, outcome, eid,
        rid, sha256)
    select at, at - served, at - served - waited, queue_id, 0, 'request', 'done',
        gen_random_uuid(), 'r', ''
    from (select queue_id, {0}.now() - make_interval(secs => %s) as at,
            %s * interval '1 microsecond' as served, %s * interval '1 microsecond' as waited
        from {0}.queue where name = 'work') moment, generate_series(1, %s)
"""


def work(word: str, _: onceq.Context) -> str:
    match word:
        case "reject":
            raise onceq.Reject("never")
        case "fail":
            raise ValueError(word)
        case _:
            return word


@pytest.fixture
def noon(onceq_clock: Clock) -> Clock:
    """The clock of the repository, at noon: no test meets midnight by chance."""
    now = onceq_clock.now()
    away = now.replace(hour=12, minute=0) - now
    onceq_clock.advance(away if away > timedelta() else away + timedelta(days=1))
    return onceq_clock


def values(seen: onceq.Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Returns the values of a name by their labels, without those of 0."""
    found = {
        tuple(one.labels.values()): one.value
        for one in seen.samples()
        if one.name == f"onceq_{name}"
    }
    return {labels: value for labels, value in found.items() if value}


def ended(conninfo: str, repository: str, n: int, ago_s: float, *took_us: int) -> None:
    """Puts n requests into history that are done. took_us: execution, and wait before it."""
    with plain(conninfo) as connection:
        put(connection, repository, n, ago_s, *took_us)


def put(
    connection: psycopg.Connection[Any], repository: str, n: int, ago_s: float, *took_us: int
) -> None:
    served, waited = took_us or (1_000_000, 1_000_000)
    connection.execute(ENDED.format(repository).encode(), (ago_s, served, waited, n))


@pytest.fixture
def known(qm: onceq.QueueManager, conninfo: str, noon: Clock) -> onceq.QueueManager:
    """Five done, two failed, one rejected, one killed; two wait, and all replies do."""
    with (
        serving(conninfo, qm.repository, WORK.handled_by(work)),
        qm.clerk("ann", WORK, window=20) as clerk,
    ):
        clerk.send_many([(f"{n}", "echo") for n in range(5)])
        clerk.send_many([("bad", "fail"), ("worse", "fail"), ("no", "reject")])
        for _ in range(8):
            clerk.receive(timeout_s=60)
    eid = qm.enqueue(WORK, "killed")
    qm.enqueue_many(WORK, ["left", "over"])
    qm.kill(eid)
    noon.advance(LATER)
    return qm


def test_known_work_gives_these_figures(known: onceq.QueueManager) -> None:
    seen = known.metrics()
    assert values(seen, "up") == {(): 1}
    assert values(seen, "requests_finished_total") == {
        ("work", "done"): 5,
        ("work", "failed"): 3,
        ("work", "cancelled"): 1,
    }
    assert values(seen, "aborts_total") == {("work", "charge"): 4, ("work", "reject"): 1}
    assert values(seen, "queue_elements") == {("work", "ready"): 2, ("work.error", "held"): 3}
    ages = values(seen, "queue_oldest_age_seconds")
    assert ages.keys() == {("work",), ("work.error",)}
    assert all(LATER <= age < 100 for age in ages.values())
    assert values(seen, "queue_paused") == {}
    assert values(seen, "replies_waiting") == {(): 8}
    assert values(seen, "servers") == {}
    assert values(seen, "request_service_seconds_count") == {("work",): 5}
    assert values(seen, "request_waiting_seconds_bucket")["work", "+Inf"] == 5
    known.stop("work", enqueue=False)
    assert values(known.metrics(after=seen), "queue_paused") == {("work",): 1}


def test_every_metric_is_there_even_without_work(qm: onceq.QueueManager) -> None:
    """A counter that is not there until it has counted is not seen to grow."""
    qm.declare(WORK)
    found = {one.name for one in qm.metrics().samples()}
    names = [UP.name, *(one.name for one in METRICS)]
    missing = {name for name in names if not any(one.startswith(name) for one in found)}
    assert missing == {"onceq_archive_lag_seconds", "onceq_periodic_lag_seconds"}
    text = qm.metrics().text()
    assert 'onceq_requests_finished_total{queue="work",outcome="failed"} 0\n' in text
    assert 'onceq_request_waiting_seconds_bucket{queue="work",le="0.005"} 0\n' in text
    assert "# TYPE onceq_request_waiting_seconds histogram\n" in text


def test_servers_that_live(qm: onceq.QueueManager, conninfo: str) -> None:
    with serving(conninfo, qm.repository, WORK.handled_by(work)):
        assert values(qm.metrics(), "servers") == {("true",): 1}


def test_what_ended_lately_is_left_to_the_next_look(
    qm: onceq.QueueManager, conninfo: str, noon: Clock
) -> None:
    qm.declare(WORK)
    ended(conninfo, qm.repository, 3, 0)
    first = qm.metrics()
    assert values(first, "requests_finished_total") == {}
    noon.advance(LATER)
    assert values(qm.metrics(after=first), "requests_finished_total") == {("work", "done"): 3}


def test_a_look_that_goes_on_says_what_a_new_one_says(
    known: onceq.QueueManager, conninfo: str, noon: Clock
) -> None:
    seen: onceq.Metrics | None = None
    counters = ("requests_finished_total", "aborts_total", "request_waiting_seconds_sum")
    for n in range(4):
        ended(conninfo, known.repository, n, 1, 1_000, 250_000)
        seen = known.metrics(after=seen)
        new = known.metrics()
        assert [values(seen, one) for one in counters] == [values(new, one) for one in counters]
        noon.advance(LATER)
    seen = known.metrics(after=seen)
    assert values(seen, "requests_finished_total")["work", "done"] == 5 + 1 + 2 + 3


def test_counters_stay_where_history_is_trimmed(
    known: onceq.QueueManager, conninfo: str, noon: Clock
) -> None:
    ended(conninfo, known.repository, 7, DAY_S)
    before = known.metrics(after=known.metrics())
    assert values(before, "requests_finished_total")["work", "done"] == 5
    with plain(conninfo) as connection:  # what ended yesterday counts for nobody
        connection.execute(
            f"delete from {known.repository}.history where finished_at < date_trunc('day', "
            f"{known.repository}.now(), 'UTC')".encode()
        )
    assert values(known.metrics(), "requests_finished_total")["work", "done"] == 5
    noon.advance(LATER)
    settled = known.metrics(after=before)
    assert settled.counted.since is not None
    with plain(conninfo) as connection:
        connection.execute(f"delete from {known.repository}.history".encode())
        connection.execute(f"delete from {known.repository}.attempt".encode())
    after = known.metrics(after=settled)
    for name in ("requests_finished_total", "aborts_total", "request_service_seconds_count"):
        assert values(after, name) == values(before, name) != {}


def test_what_commits_late_is_counted(qm: onceq.QueueManager, conninfo: str, noon: Clock) -> None:
    """Its time is before that of looks which could not see it."""
    qm.declare(WORK)
    with plain(conninfo) as late, late.transaction():
        put(late, qm.repository, 4, 0)
        seen: onceq.Metrics | None = None
        for _ in range(3):
            noon.advance(LATER)
            ended(conninfo, qm.repository, 1, 7)
            seen = qm.metrics(after=seen)
        assert seen is not None
        assert values(seen, "requests_finished_total") == {("work", "done"): 3}
    seen = qm.metrics(after=seen)
    assert values(seen, "requests_finished_total") == {("work", "done"): 7}
    seen = qm.metrics(after=qm.metrics(after=seen))
    assert values(seen, "requests_finished_total") == {("work", "done"): 7}


def test_counters_begin_anew_with_the_day(
    known: onceq.QueueManager, conninfo: str, noon: Clock
) -> None:
    seen = known.metrics(after=known.metrics())
    noon.advance(timedelta(hours=12))
    ended(conninfo, known.repository, 1, 0)
    noon.advance(LATER)
    for one in (known.metrics(after=seen), known.metrics()):
        assert values(one, "requests_finished_total") == {("work", "done"): 1}
        assert values(one, "aborts_total") == {}
    assert 'onceq_aborts_total{queue="work",charge="charge"} 0\n' in known.metrics().text()


def test_a_bucket_has_its_bound(qm: onceq.QueueManager, conninfo: str, noon: Clock) -> None:
    """One at each bound, and one that took a microsecond more."""
    del noon
    qm.declare(WORK)
    for took_us in BOUNDS_US:
        ended(conninfo, qm.repository, 1, 6, took_us, 0)
        ended(conninfo, qm.repository, 1, 6, took_us + 1, took_us)
    seen = qm.metrics()
    buckets = values(seen, "request_service_seconds_bucket")
    for number, bound in enumerate(BOUNDS_S):
        assert buckets["work", f"{bound:g}"] == 2 * number + 1
    assert buckets["work", "+Inf"] == 2 * len(BOUNDS_S)
    total = sum(BOUNDS_S)
    (served,) = values(seen, "request_service_seconds_sum").values()
    assert served == pytest.approx(2 * total, abs=0.001)
    buckets = values(seen, "request_waiting_seconds_bucket")
    assert buckets["work", "0.005"] == len(BOUNDS_S) + 1
    (waited,) = values(seen, "request_waiting_seconds_sum").values()
    assert waited == pytest.approx(total)


def test_a_look_does_not_read_what_is_older(
    qm: onceq.QueueManager, conninfo: str, noon: Clock
) -> None:
    del noon
    qm.declare(WORK)
    ended(conninfo, qm.repository, 10, 60)
    few = _blocks(conninfo, qm.repository)
    ended(conninfo, qm.repository, 50_000, 2 * DAY_S)
    with plain(conninfo) as connection:
        connection.execute(f"vacuum analyze {qm.repository}.history".encode())
    assert _blocks(conninfo, qm.repository) < few + 20


def _blocks(conninfo: str, repository: str) -> int:
    """Returns how many pages a first look for what has ended reads."""
    with plain(conninfo) as connection:
        look = f"select {repository}.measure(null, null, '{{1}}')"
        query = f"explain (analyze, buffers, format json) {look}"
        connection.execute(query.encode())  # what is read of the catalogue stays in memory
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    top: dict[str, Any] = row[0][0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def test_the_lag_of_the_archive(qm: onceq.QueueManager, conninfo: str, noon: Clock) -> None:
    del noon
    qm.declare(WORK)
    ended(conninfo, qm.repository, 1, 100)
    assert values(qm.metrics(), "archive_lag_seconds") == {}
    schema = qm.repository
    with plain(conninfo) as connection:
        connection.execute(f"insert into {schema}.archive default values".encode())
        assert values(qm.metrics(), "archive_lag_seconds")[()] == pytest.approx(100, abs=20)
        run = f"insert into {schema}.archive_run (run, epoch) values (gen_random_uuid(), 1)"
        connection.execute(run.encode())
        connection.execute(
            f"insert into {schema}.archive_file (path, kind, day, rows, bytes, first_us, last_us,"
            " since, until, sha256, run) select 'a', 'history', now()::date, 1, 1, 1,"
            f" (select extract(epoch from finished_at) * 1000000 from {schema}.history), 0, 9, '',"
            f" run from {schema}.archive_run".encode()
        )
        assert values(qm.metrics(), "archive_lag_seconds") == {}
        assert "onceq_archive_lag_seconds 0\n" in qm.metrics().text()
        ended(conninfo, schema, 1, 50)
        assert values(qm.metrics(), "archive_lag_seconds")[()] == pytest.approx(50, abs=20)


def test_labels_are_escaped(qm: onceq.QueueManager, conninfo: str) -> None:
    with plain(conninfo) as connection:
        connection.execute(f'create table {qm.repository}."a""\\b\n" (x int)'.encode())
        assert scalar(conninfo, f'select count(*) from {qm.repository}."a""\\b\n"') == 0
    assert 'onceq_dead_rows{table="a\\"\\\\b\\n"} ' in qm.metrics().text()


def test_an_old_transaction_is_seen(qm: onceq.QueueManager, conninfo: str) -> None:
    with plain(conninfo) as connection, connection.transaction():
        connection.execute(b"select pg_sleep(0.2)")
        assert values(qm.metrics(), "oldest_transaction_seconds")[()] >= 0.2


def test_a_look_goes_on_from_a_look(qm: onceq.QueueManager) -> None:
    wrong: Any = "yesterday"
    with pytest.raises(InvalidValue, match="after is of class Metrics"):
        qm.metrics(after=wrong)


def test_a_look_with_asyncio(conninfo: str, known: onceq.QueueManager) -> None:
    async def looked() -> onceq.Metrics:
        async with onceq.open_async(conninfo, repository=known.repository) as qm:
            return await qm.metrics(after=await qm.metrics())

    assert values(asyncio.run(looked()), "requests_finished_total")["work", "done"] == 5


def test_without_the_settling_what_commits_late_is_lost(
    qm: onceq.QueueManager, conninfo: str, noon: Clock
) -> None:
    """The test of that would notice."""
    install_variant(
        conninfo,
        qm.repository,
        "measure",
        (
            "xmin := pg_snapshot_xmin(pg_current_snapshot())",
            "xmin := pg_snapshot_xmax(pg_current_snapshot())",
        ),
    )
    with pytest.raises(AssertionError):
        test_what_commits_late_is_counted(qm, conninfo, noon)
