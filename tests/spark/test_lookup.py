"""Old requests are found in the archive as they were found in PostgreSQL: by command, by join."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq import errors
from onceq.model.archive_ops import Kind
from onceq.model.element import RequestOutcome
from onceq.spark.pipelines import archive, records
from proof.harness.ledger import ask
from tests.cli.parts import Cli
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from onceq.spark.pipelines import Archived

ORDERS = onceq.Queue("orders", bytes, bytes, abort_limit=2, backoff_ms=1, keep_body=True)
FAILING = onceq.Queue("failing", bytes, bytes, abort_limit=1)
RIDS = ("1", "2", "3")


def handler(request: bytes, _: onceq.Context) -> bytes:
    """Fails what is bad."""
    if request == b"bad":
        raise ValueError("it is bad")
    return request


@pytest.fixture
def cli(onceq_url: str, qm: onceq.QueueManager) -> Cli:
    return Cli(onceq_url, qm.repository)


@pytest.fixture
def failed(cli: Cli, qm: onceq.QueueManager) -> uuid.UUID:
    """The eid of "2", which failed, and was run again; "1" and "3" are done; all replies read."""
    qm.declare(ORDERS)
    with (
        serving(cli.url, cli.repository, ORDERS.handled_by(handler)),
        qm.clerk("till", ORDERS, window=3) as clerk,
    ):
        eids = [clerk.send(rid, b"bad" if rid == "2" else b"good").eid for rid in RIDS]
        for rid in RIDS:
            clerk.receive(rid=rid, timeout_s=60)
        clerk.acknowledge(clerk.unacknowledged)
    qm.redrive(eids[1])
    return eids[1]


def archived(spark: SparkSession, cli: Cli, root: Path, keep_days: int | None = None) -> Archived:
    return archive(root, cli.url, repository=cli.repository, spark=spark, keep_days=keep_days)


def seen(cli: Cli, failed: uuid.UUID) -> list[object]:
    """All that the command line tells of the three."""
    words: list[tuple[str, ...]] = [("request", "show", rid) for rid in (*RIDS, str(failed))]
    words += [("request", "find"), ("request", "find", "--outcome", "failed", "--limit", "1")]
    words += [("request", "find", "--registrant", "till", "--queue", "orders", "--limit", "2")]
    words += [("request", "show", "2", "--client", "till")]
    found = [cli.json(*one).lines for one in words]
    second = found[4][1]["finished_at"]
    found += [cli.json("request", "find", word, second).lines for word in ("--since", "--until")]
    return [[one for one in lines if one.get("state", "finished") == "finished"] for lines in found]


def test_the_command_line_finds_what_was_trimmed(
    spark: SparkSession, cli: Cli, failed: uuid.UUID, tmp_path: Path
) -> None:
    before = seen(cli, failed)
    assert archived(spark, cli, tmp_path / "archive").rows["history"] >= 3
    assert seen(cli, failed) == before  # in both places, shown once
    archived(spark, cli, tmp_path / "archive", keep_days=0)
    left = ask(cli.url, f"select rid from {cli.repository}.history")
    assert left == [("3",)]  # the one that the client sent last
    assert seen(cli, failed) == _without_tracebacks(before)
    cli("request", "show", "99", code=3)
    cli("request", "find", "--registrant", "nobody", code=3)
    assert "ValueError" in cli("request", "show", "2").out


def told(qm: onceq.QueueManager, failed: uuid.UUID, *, archive: bool) -> list[Any]:
    """All that a queue manager tells of the three."""
    places = [
        *(qm.lookup(rid, state="finished", archive=archive) for rid in RIDS),
        *(qm.lookup(state="finished", limit=n, archive=archive) for n in (1, 2, 100)),
        qm.lookup(eid=failed, state="finished", archive=archive),
        qm.lookup("2", registrant="till", queue="orders", state="finished", archive=archive),
    ]
    every = qm.find(archive=archive)
    ends = [
        *(qm.find(rid=rid, archive=archive) for rid in RIDS),
        *(qm.find(limit=n, archive=archive) for n in (1, 2, 100)),
        qm.find(outcome=RequestOutcome.FAILED, registrant="till", archive=archive),
        qm.find(since=every[1].finished_at, archive=archive),
        qm.find(until=every[1].finished_at, queue="orders", archive=archive),
        *(qm.find(after=one, limit=1, archive=archive) for one in every),
    ]
    aborts = qm.attempts(failed, archive=archive)
    return [places, ends, [replace(one, traceback=None) for one in aborts]]


def test_a_queue_manager_finds_what_was_trimmed_by_the_same_call(
    spark: SparkSession, cli: Cli, qm: onceq.QueueManager, failed: uuid.UUID, tmp_path: Path
) -> None:
    before = told(qm, failed, archive=False)
    assert [len(one) for one in before[1]] == [1, 1, 1, 1, 2, 3, 1, 2, 1, 1, 1, 0]
    assert told(qm, failed, archive=True) == before  # nothing was ever archived
    archived(spark, cli, tmp_path / "archive")
    assert told(qm, failed, archive=True) == before  # in both places, told once
    assert qm.attempts(failed, archive=True)[0].traceback is not None
    archived(spark, cli, tmp_path / "archive", keep_days=0)
    assert told(qm, failed, archive=True) == before
    assert qm.lookup("1") == qm.lookup("1", state="held", archive=True) == []
    assert [one.name for one in qm.explain("till", "2").reasons] == ["trimmed"]
    explained = qm.explain("till", "2", archive=True)
    assert explained == qm.explain(eid=failed, archive=True)
    ended = ("sent", "aborted", "aborted", "failed", "collected", "redriven", "archived")
    assert (tuple(one.name for one in explained.life), explained.reasons) == (ended, ())
    assert cli.json("explain", "till", "2").item["state"] == "finished"
    assert [one.rid for one in qm.find()] == ["3"]
    waiting = qm.enqueue(ORDERS, b"x", rid="1")  # another one
    assert [one.state for one in qm.lookup("1", archive=True)] == ["queued", "finished"]
    assert [one.eid for one in qm.lookup("1", limit=1, archive=True)] == [waiting]

    async def ask_in_a_loop() -> list[Any]:
        async with onceq.open_async(cli.url, repository=cli.repository) as own:
            return [
                await own.lookup("2", state="finished", archive=True),
                await own.find(rid="2", archive=True),
                await own.attempts(failed, archive=True),
            ]

    asked = [
        qm.lookup("2", state="finished", archive=True),
        qm.find(rid="2", archive=True),
        qm.attempts(failed, archive=True),
    ]
    assert asyncio.run(ask_in_a_loop()) == asked
    assert all(asked)


def lose(archive: Path, _: Callable[[], Path]) -> None:
    shutil.rmtree(archive)


def exchange(archive: Path, other: Callable[[], Path]) -> None:
    shutil.rmtree(archive)
    other().rename(archive)


def cut(archive: Path, _: Callable[[], Path]) -> None:
    for path in archive.rglob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-1])


def spoil(archive: Path, _: Callable[[], Path]) -> None:
    for path in archive.rglob("*.parquet"):
        path.write_bytes(b"\0" * path.stat().st_size)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lose, "is in {root}, and no such directory is here"),
        (exchange, "{root} does not hold the archive of repository '{repository}'"),
        (cut, "is in the archive's manifest, and cannot be read: it has"),
        (spoil, "is in the archive's manifest, and cannot be read:"),
    ],
)
def test_an_archive_that_cannot_be_read_is_an_error_and_never_no_such_request(
    spark: SparkSession,
    cli: Cli,
    qm: onceq.QueueManager,
    failed: uuid.UUID,
    tmp_path: Path,
    harm: Callable[[Path, Callable[[], Path]], None],
    said: str,
) -> None:
    root = tmp_path / "archive"
    archived(spark, cli, root, keep_days=0)

    def other() -> Path:
        """The archive of another repository, in this database."""
        another = Cli(cli.url, f"t_{uuid.uuid4().hex[:16]}")
        another("init")
        with onceq.open(cli.url, repository=another.repository) as second:
            second.declare(FAILING)
            second.kill(second.enqueue(FAILING, b"x"))
        archived(spark, another, tmp_path / "other")
        ask(cli.url, f"drop schema {another.repository} cascade")
        return tmp_path / "other"

    assert qm.lookup("1", archive=True)
    harm(root, other)
    asked: list[Callable[[], object]] = [
        lambda: qm.lookup("1", archive=True),
        lambda: qm.find(archive=True),
        lambda: qm.attempts(failed, archive=True),
    ]
    for ask_it in asked:
        with pytest.raises(errors.FileMismatch) as refused:
            ask_it()
        assert said.format(root=root, repository=cli.repository) in str(refused.value)
        assert refused.value.outcome is onceq.Outcome.NOTHING_HAPPENED
    assert [one.rid for one in qm.find()] == ["3"]
    answer = cli.json("request", "show", "3", code=1)
    assert [one["rid"] for one in answer.lines] == ["3"]
    assert said.format(root=root, repository=cli.repository) in answer.err


def test_a_file_whose_times_do_not_fit_is_not_opened(
    spark: SparkSession, cli: Cli, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    qm.declare(ORDERS)
    for day in (1, 2, 3):
        qm.kill(qm.enqueue(ORDERS, b"x", rid=f"d{day}"))
        moved = f"set finished_at = '2026-01-0{day} 00:00+00' where rid = 'd{day}'"
        ask(cli.url, f"update {cli.repository}.history {moved}")
    archived(spark, cli, tmp_path / "archive", keep_days=0)
    first, second, third = reversed(qm.find(archive=True))
    assert qm.find() == []
    for path in (tmp_path / "archive").rglob("day=2026-01-01/*.parquet"):
        path.unlink()
    assert qm.find(limit=2, archive=True) == [third, second]
    assert qm.find(since=second.finished_at, archive=True) == [third, second]
    assert qm.find(after=third, limit=1, archive=True) == [second]
    (tmp_path / "archive").rename(tmp_path / "away")
    assert qm.find(until=first.finished_at, archive=True) == []
    with pytest.raises(errors.FileMismatch, match="no such directory"):
        qm.lookup("d1", archive=True)


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_whether_to_ask_the_archive_is_true_or_false(qm: onceq.QueueManager, value: Any) -> None:
    for ask_it in (qm.lookup, qm.find):
        with pytest.raises(errors.InvalidValue, match="archive"):
            ask_it(archive=value)
    misspelt: Any = {"eit": uuid.uuid4()}
    with pytest.raises(errors.InvalidValue, match=r"'eit'.*'eid' was meant"):
        qm.lookup(**misspelt)


def _without_tracebacks(told: Any) -> Any:
    """What is archived has none."""
    match told:
        case dict():
            return {
                key: None if key == "traceback" else _without_tracebacks(value)
                for key, value in told.items()
            }
        case list():
            return [_without_tracebacks(one) for one in told]
        case _:
            return told


def test_a_file_that_is_gone_is_said_and_hides_nothing_else(
    spark: SparkSession, cli: Cli, qm: onceq.QueueManager, failed: uuid.UUID, tmp_path: Path
) -> None:
    archived(spark, cli, tmp_path / "archive", keep_days=0)
    for path in (tmp_path / "archive" / "history").rglob("*.parquet"):
        path.unlink()
    assert "is in the archive's manifest" in cli("request", "show", str(failed), code=1).err
    qm.kill(qm.enqueue(ORDERS, b"x", rid="new"))
    for words, told in ((("show", "new"), ["new"]), (("find",), ["new", "3"])):
        answer = cli.json("request", *words, code=1)
        assert [one["rid"] for one in answer.lines] == told
        assert "this is what PostgreSQL holds" in answer.err
    assert [one["rid"] for one in cli.json("request", "find", "--limit", "1").lines] == ["new"]


def test_those_that_ended_together_keep_their_order(
    spark: SparkSession, cli: Cli, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    qm.declare(ORDERS)
    for eid in qm.enqueue_many(ORDERS, [b"x"] * 9):
        qm.kill(eid)
    together = f"update {cli.repository}.history set finished_at = '2026-01-01 00:00+00'"
    ask(cli.url, together)
    before = [cli.json("request", "find", "--limit", str(n)).lines for n in (4, 9)]
    archived(spark, cli, tmp_path / "archive", keep_days=0)
    assert [cli.json("request", "find", "--limit", str(n)).lines for n in (4, 9)] == before


def test_a_datagram_that_was_run_again_has_two_ends(
    spark: SparkSession, cli: Cli, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    qm.declare(FAILING)
    with serving(cli.url, cli.repository, FAILING.handled_by(handler)):
        eid = qm.enqueue(FAILING, b"bad", rid="d")
        wait_until(lambda: len(qm.find(rid="d")) == 1)
    assert qm.redrive(eid) is not None
    before = cli.json("request", "show", "d").lines
    archived(spark, cli, tmp_path / "archive")
    qm.kill(eid)
    ends = cli.json("request", "find", "--queue", "failing").lines
    assert [one["outcome"] for one in ends] == ["cancelled", "failed"]
    first = [one for one in before if one["state"] == "finished"]
    archived(spark, cli, tmp_path / "archive", keep_days=0)
    assert cli.json("request", "find", "--queue", "failing").lines == ends
    after = cli.json("request", "show", str(eid)).lines
    assert {one["outcome"] for one in after} == {"cancelled", "failed"}
    assert {len(one["aborted"]) for one in after} == {len(first[0]["aborted"])} == {1}


def test_all_that_has_ended_is_a_table_whose_rows_are_there_once(
    spark: SparkSession, cli: Cli, qm: onceq.QueueManager, failed: uuid.UUID, tmp_path: Path
) -> None:
    def look() -> list[str]:
        with records(spark, url=cli.url, repository=cli.repository) as history:
            wanted = spark.createDataFrame([("1",), ("2",), ("4",), ("x",)], "rid string")
            return sorted(row["rid"] for row in history.join(wanted, "rid").collect())

    assert look() == ["1", "2"]
    archived(spark, cli, tmp_path / "archive")
    assert look() == ["1", "2"]
    qm.kill(qm.enqueue(ORDERS, b"x", rid="4"))
    assert look() == ["1", "2", "4"]
    archived(spark, cli, tmp_path / "archive", keep_days=0)
    assert look() == ["1", "2", "4"]
    with records(spark, Kind.ATTEMPT, cli.url, repository=cli.repository) as attempts:
        found = {row["eid"] for row in attempts.where("charge = 'charge'").collect()}
    assert found == {str(failed)}
