"""Old requests are found in the archive as they were found in PostgreSQL: by command, by join."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.model.archive_ops import Kind
from onceq.spark.pipelines import archive, records
from proof.harness.ledger import ask
from tests.cli.parts import Cli
from tests.parts import serving, wait_until

if TYPE_CHECKING:
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
