"""Reports: numbers against a history that was counted by hand, empty ones, and long ones."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

import onceq
from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.spark.pipelines import Reported, Span, archive, report
from onceq.spark.report import findings, report_page, reporting
from onceq.spark.report.facts import BY, measured
from onceq.spark.report.findings import BUCKETS_MAX, DAYS, TOP
from onceq.spark.report.report_tables import ABORTS, ENDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

Table = list[dict[str, Any]]
PEOPLE = "insert into {r}.registrant (name) values ('ann'), ('<b>bob</b>')"
QUEUES = "insert into {r}.queue (name, kind) values ('a', 'request'), ('b', 'request')"
END = """
insert into {r}.history (eid, queue_id, registrant_id, role, outcome, server, enqueued_at,
        started_at, finished_at, aborts, code, error, rid, sha256)
    select md5(%(eid)s)::uuid, q.queue_id, r.registrant_id, %(role)s, %(outcome)s, %(server)s,
        %(day)s::timestamp at time zone 'UTC' + %(enqueued)s::interval,
        %(day)s::timestamp at time zone 'UTC' + %(started)s::interval,
        %(day)s::timestamp at time zone 'UTC' + %(finished)s::interval,
        %(aborts)s, %(code)s, %(error)s, %(eid)s, ''
    from {r}.queue q left join {r}.registrant r on r.name = %(client)s where q.name = %(queue)s
"""
ABORT = """
insert into {r}.attempt (eid, ended_at, server, host, pid, charge, code)
    values (md5(%s)::uuid, %s::timestamptz, %s, 'host-1', 4711, %s, %s)
"""
SERVES = """
insert into {r}.server (slot, incarnation, process, host, pid, backend_pid, postmaster_start,
        queue_ids)
    values (1, 10, gen_random_uuid(), 'here', 12, 0, now(), '{}')
"""
SPARK = """
insert into {r}.spark_server (name, queue_id, server_no)
    select 'north', queue_id, 9 from {r}.queue limit 1
"""
HELD = """
insert into {r}.history (eid, queue_id, role, outcome, enqueued_at, finished_at, aborts, rid,
        sha256)
    select eid, queue_id, 'failed', 'dequeued', enqueued_at, finished_at, 2, rid, ''
    from {r}.history where outcome = 'failed'
"""
FIRST = """
eid queue client     role     outcome   server day        enqueued started  finished   aborts code
1   a     ann        request  done      7      2026-11-01 10:00:00 10:00:01 10:00:01.5 0      -
2   a     ann        request  done      7      2026-11-01 10:30:00 10:30:03 10:30:03.1 1      -
3   a     <b>bob</b> request  failed    8      2026-11-01 10:10:00 -        10:40:00   2      E<1>
"""
LATER = """
eid queue client     role     outcome   server day        enqueued started  finished   aborts code
4   b     -          datagram done      10     2026-11-01 11:00:00 10:59:59 11:00:02   0      -
5   b     <b>bob</b> request  cancelled -      2026-11-01 11:00:00 -        24:00:00   0      killed
6   a     ann        request  done      9      2026-11-02 00:00:00 00:29:59 00:30:00   0      -
"""
ABORTED: list[tuple[Any, ...]] = [
    ("2", "2026-11-01 10:30:01+00", 7, "charge", "E2"),
    ("3", "2026-11-01 10:20:00+00", 7, "charge", "E<1>"),
    ("3", "2026-11-01 10:40:00+00", 8, "reject", "E<1>"),
    ("6", "2026-11-02 00:10:00+00", 9, "environment", None),
    ("not ended", "2026-11-02 00:10:00+00", 9, "suspect", "server_died"),
]


def put(url: str, repository: str, lines: str) -> None:
    head, *rows = (line.split() for line in lines.strip().splitlines())
    for row in rows:
        values = {name: None if one == "-" else one for name, one in zip(head, row, strict=True)}
        error = f"<script>{values['eid']}</script>" if values["code"] else None
        ask_with(url, repository, END, {**values, "error": error})


def ask_with(url: str, repository: str, query: str, values: Any = None) -> None:
    with connect(url) as connection:
        connection.execute(query.replace("{r}", repository).encode(), values)


@pytest.fixture
def run(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str, tmp_path: Path
) -> Callable[..., Reported]:
    def run(**how: Any) -> Reported:
        out = tmp_path / "out"
        return report(out, onceq_url, repository=qm.repository, spark=spark, **how)

    return run


def rows_of(folder: str) -> Table:
    rows: Table = pq.read_table(folder).to_pylist()
    return rows


def some(rows: Table, span: str, by: str, *columns: str) -> list[tuple[Any, ...]]:
    """Returns columns of the rows of a span and a group, by when they begin, and by name."""
    kept = [row for row in rows if row["span"] == span and row["by"] == by]
    ordered = sorted(kept, key=lambda row: (row["starts_at"], row["name"] or ""))
    return [(f"{row['starts_at']:%d %H}", *(row[name] for name in columns)) for row in ordered]


def test_a_history_is_counted_as_by_hand(
    spark: SparkSession,
    qm: onceq.QueueManager,
    onceq_url: str,
    tmp_path: Path,
    run: Callable[..., Reported],
) -> None:
    url, name = onceq_url, qm.repository
    for text in (PEOPLE, QUEUES):
        ask_with(url, name, text)
    put(url, name, FIRST)
    ask_with(url, name, HELD)
    for one in ABORTED[:3]:
        ask_with(url, name, ABORT, one)
    archive(tmp_path / "archive", url, repository=name, keep_days=0, spark=spark)
    put(url, name, LATER)
    for text in (SERVES, SPARK):
        ask_with(url, name, text)
    for one in ABORTED[3:]:
        ask_with(url, name, ABORT, one)
    done = run()
    assert (done.ended, done.aborts) == (6, 5)
    ends, aborts = rows_of(done.tables["ends"]), rows_of(done.tables["aborts"])
    assert list(ends[0]) == list(ENDS)
    assert list(aborts[0]) == list(ABORTS)
    check_ends(ends)
    check_aborts(aborts)
    text = Path(done.page).read_text(encoding="utf-8")
    assert "<script>" not in text
    for said in (
        "&lt;b&gt;bob&lt;/b&gt;",
        "E&lt;1&gt;",
        "&lt;script&gt;3",
        "7 (host-1, process 4711)",
        "10 (here, process 12)",
        "9 (Spark server north)",
    ):
        assert said in text
    assert sorted(one.name for one in Path(done.page).parent.iterdir()) == [
        "aborts",
        "ends",
        "report.html",
    ]
    early = run(span=Span(since=at("2026-11-01 11:00"), until=at("2026-11-02 00:30")))
    assert (early.ended, early.aborts) == (2, 2)


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def check_ends(ends: Table) -> None:
    counts = ("ended", "done", "failed", "cancelled", "requests", "datagrams", "recovered")
    assert some(ends, "hour", "all", *counts) == [
        ("01 10", 3, 2, 1, 0, 3, 0, 1),
        ("01 11", 1, 1, 0, 0, 0, 1, 0),
        ("02 00", 2, 1, 0, 1, 2, 0, 1),
    ]
    assert some(ends, "day", "all", *counts) == [
        ("01 00", 4, 3, 1, 0, 3, 1, 1),
        ("02 00", 2, 1, 0, 1, 2, 0, 1),
    ]
    times = ("measured", "p50_ms", "p90_ms", "p99_ms", "max_ms")
    expected = {
        "waiting": (3, 1000.0, 3000.0, 3000.0, 3000.0),
        "service": (3, 500.0, 3000.0, 3000.0, 3000.0),
        "total": (4, 2000.0, 1_800_000.0, 1_800_000.0, 1_800_000.0),
    }
    for time, values in expected.items():
        found = some(ends, "day", "all", *(f"{time}_{one}" for one in times))
        assert found[0] == ("01 00", *values)
    assert some(ends, "day", "queue", "name", "ended") == [
        ("01 00", "a", 3),
        ("01 00", "b", 1),
        ("02 00", "a", 1),
        ("02 00", "b", 1),
    ]
    assert some(ends, "hour", "registrant", "name", "ended", "failed")[:3] == [
        ("01 10", "<b>bob</b>", 1, 1),
        ("01 10", "ann", 2, 0),
        ("01 11", None, 1, 0),
    ]
    assert some(ends, "day", "server", "name", "ended") == [
        ("01 00", "10", 1),
        ("01 00", "7", 2),
        ("01 00", "8", 1),
        ("02 00", None, 1),
        ("02 00", "9", 1),
    ]


def check_aborts(aborts: Table) -> None:
    def counted(span: str, by: str) -> list[tuple[Any, ...]]:
        return sorted(some(aborts, span, by, "name", "charge", "code", "aborts"), key=repr)

    assert counted("day", "all") == [
        ("01 00", None, "charge", "E2", 1),
        ("01 00", None, "charge", "E<1>", 1),
        ("01 00", None, "reject", "E<1>", 1),
        ("02 00", None, "environment", None, 1),
        ("02 00", None, "suspect", "server_died", 1),
    ]
    assert counted("hour", "registrant") == [
        ("01 10", "<b>bob</b>", "charge", "E<1>", 1),
        ("01 10", "<b>bob</b>", "reject", "E<1>", 1),
        ("01 10", "ann", "charge", "E2", 1),
        ("02 00", "ann", "environment", None, 1),
        ("02 00", None, "suspect", "server_died", 1),
    ]
    assert {row[1] for row in counted("day", "queue")} == {"a", None}
    assert {row[1] for row in counted("day", "server")} == {"7", "8", "9"}


def test_a_percentile_is_off_by_no_more_than_is_said(spark: SparkSession) -> None:
    for count, off in ((4_999, 0), (60_000, 6)):
        times = ", ".join(f"cast(id + 1 as double) as {one}_ms" for one in ("waiting", "service"))
        rows = spark.range(count).orderBy(sf.hash("id")).repartition(3)
        ends = rows.selectExpr(
            *times.split(", "),
            "cast(null as double) as total_ms",
            "'done' as outcome",
            "'request' as role",
            "true as is_recovered",
        )
        (found,) = measured(ends).collect()
        for rank, name in ((50, "p50"), (90, "p90"), (99, "p99")):
            assert abs(found[f"waiting_{name}_ms"] - -(-count * rank // 100)) <= off
            assert found[f"total_{name}_ms"] is None
        assert (found["service_max_ms"], found["total_measured"]) == (count, 0)


def test_where_nothing_has_ended_the_page_says_so(run: Callable[..., Reported]) -> None:
    done = run()
    assert (done.ended, done.aborts) == (0, 0)
    assert "Nothing ended in this time" in Path(done.page).read_text(encoding="utf-8")
    for name, columns in (("ends", ENDS), ("aborts", ABORTS)):
        table = pq.read_table(done.tables[name])
        assert table.num_rows == 0
        assert table.column_names == list(columns)


MANY = """
insert into {r}.queue (name, kind) select 'q' || n, 'request' from generate_series(1, 60) n;
insert into {r}.registrant (name) select 'client ' || n from generate_series(1, 70) n;
insert into {r}.history (eid, queue_id, registrant_id, role, outcome, server, enqueued_at,
        started_at, finished_at, aborts, code, rid, sha256)
    select gen_random_uuid(), mod(n, 60) + 1, mod(n, 70) + 1, 'request',
        case when mod(n, 2) = 0 then 'done' else 'failed' end::{r}.outcome, mod(n, 80), ended,
        ended, ended, 0, case when mod(n, 2) = 1 then 'E' || mod(n, 90) end, n, ''
    from generate_series(1, 3000) n,
        lateral (select timestamptz '2020-01-01 00:00:00+00' + n * interval '1 day') t (ended);
insert into {r}.attempt (eid, ended_at, server, charge, code)
    select gen_random_uuid(), timestamptz '2020-01-01 00:00:00+00' + n * interval '2 days', n,
        'charge', 'A' || n
    from generate_series(1, 1000) n
"""


def test_what_comes_to_the_driver_is_bounded(
    qm: onceq.QueueManager,
    onceq_url: str,
    run: Callable[..., Reported],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask_with(onceq_url, qm.repository, MANY)
    came: list[int] = []
    collect = ClassicDataFrame.collect

    def counted(frame: ClassicDataFrame) -> Any:
        rows = collect(frame)
        came.append(len(rows))
        return rows

    monkeypatch.setattr(ClassicDataFrame, "collect", counted)
    shown: list[findings.Findings] = []
    make = report_page.report_page

    def seen(subject: Any, found: findings.Findings) -> str:
        shown.append(found)
        return make(subject, found)

    monkeypatch.setattr(reporting, "report_page", seen)
    done = run()
    assert (done.ended, done.aborts) == (3000, 1000)
    assert 0 < sum(came) < 6 * BUCKETS_MAX + 9 * (TOP + 1) + DAYS
    (found,) = shown
    assert found.ends == (at("2020-01-02"), at("2028-03-19"))
    assert found.buckets is not None
    assert (found.buckets.width, found.buckets.count) == (dt.timedelta(days=28), 108)
    assert sum(row["ended"] for row in found.series.values()) == 3000
    others = {by: found.busiest[by][-1] for by in BY}
    assert {by: row["others"] for by, row in others.items()} == {
        "queue": 60 - TOP,
        "server": 80 - TOP,
        "registrant": 70 - TOP,
    }
    for by in BY:
        assert len(found.busiest[by]) == TOP + 1
        assert sum(row["ended"] for row in found.busiest[by]) == 3000
    assert [row["ended"] for row in found.busiest["queue"]] == [50] * TOP + [50 * 50]
    assert (found.failures[-1]["others"], sum(row["count"] for row in found.failures)) == (35, 1500)
    assert (found.aborts[-1]["others"], sum(row["count"] for row in found.aborts)) == (990, 1000)
    assert len(found.days) == DAYS
    assert "50 others" in Path(done.page).read_text(encoding="utf-8")


def test_a_run_that_fails_leaves_the_former_result(
    run: Callable[..., Reported], monkeypatch: pytest.MonkeyPatch
) -> None:
    former = run()
    text = Path(former.page).read_bytes()
    monkeypatch.setattr(reporting, "gather", lambda read, *_: read.history.sparkSession.table("no"))
    with pytest.raises(errors.EnvironmentFault, match="there is no new report"):
        run()
    assert Path(former.page).read_bytes() == text
    assert len(list(Path(former.page).parents[1].glob("run-*"))) == 1


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (dt.datetime(2026, 1, 1), None, "time zone"),  # noqa: DTZ001 - the case
        (at("2026-01-01"), at("2026-01-01"), "is not before"),
    ],
)
def test_a_span_that_is_none_is_refused(since: Any, until: Any, said: str) -> None:
    with pytest.raises(errors.InvalidValue, match=said):
        Span(since=since, until=until)
