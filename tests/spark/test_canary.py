"""What onceq.spark relies on in Spark's Python data sources, much of it undocumented.

A new PySpark that changes one of these facts fails here first, with the fact's name.
Source: spark.md, Stream reader and Stream writer.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.canary_source import CanarySource, read_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 150


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(CanarySource)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "available").write_text("5")
    return tmp_path


def start(
    spark: SparkSession, directory: Path, *, limit: int = 2, checkpoint: str = "checkpoint"
) -> StreamingQuery:
    stream = spark.readStream.format("canary").option("directory", str(directory))
    writer = stream.option("limit", limit).load().writeStream.format("canary")
    writer = writer.option("directory", str(directory)).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(directory / checkpoint)).start()


def run(spark: SparkSession, directory: Path, **options: Any) -> str:
    """Run until what is available now has been read; return the query's id."""
    query = start(spark, directory, **options)
    assert query.awaitTermination(WAIT_S)
    return str(query.id)


def fail(spark: SparkSession, directory: Path) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        start(spark, directory).awaitTermination(WAIT_S)
    return str(caught.value)


def calls(directory: Path, name: str) -> list[dict[str, Any]]:
    return [entry for entry in read_log(directory) if entry["call"] == name]


def committed(directory: Path) -> dict[int, list[int]]:
    """Return the numbers of each batch, as staged by the attempts its commit named."""
    staged = {entry["attempt"]: entry["numbers"] for entry in calls(directory, "write")}
    return {
        entry["batch"]: [n for m in entry["messages"] for n in staged[m["attempt"]]]
        for entry in calls(directory, "commit sink")
    }


def test_the_read_limit_divides_what_is_available_into_batches(
    spark: SparkSession, directory: Path
) -> None:
    run(spark, directory)
    assert committed(directory) == {0: [0, 1], 1: [2, 3], 2: [4]}
    assert {entry["limit"] for entry in calls(directory, "latestOffset")} == {"ReadMaxRows"}


def test_available_now_ends_although_more_arrives(spark: SparkSession, directory: Path) -> None:
    (directory / "growing").touch()
    run(spark, directory)
    (prepared,) = calls(directory, "prepareForTriggerAvailableNow")
    # The target is fixed once, before any offset is asked for, and is where it ends.
    assert prepared["target"] == 5
    assert committed(directory) == {0: [0, 1], 1: [2, 3], 2: [4]}
    assert int((directory / "available").read_text()) > 5


def test_one_reader_in_one_process_answers_for_the_whole_query(
    spark: SparkSession, directory: Path
) -> None:
    run(spark, directory)
    planned = [e for e in read_log(directory) if e["call"] in ("latestOffset", "initialOffset")]
    assert len({(entry["pid"], entry["reader"]) for entry in planned}) == 1
    assert {entry["pid"] for entry in calls(directory, "read")}.isdisjoint(
        entry["pid"] for entry in planned
    )


def test_the_order_of_calls_in_a_batch(spark: SparkSession, directory: Path) -> None:
    (directory / "available").write_text("2")
    run(spark, directory, limit=1)
    order = [entry["call"] for entry in read_log(directory)]
    order = [call for call in order if call not in ("initialOffset", "stop")]
    batch = ["partitions", "read", "write", "commit sink"]
    # The source's commit lags one batch, and never comes for the last one.
    assert order == [
        "prepareForTriggerAvailableNow",
        "latestOffset",
        *batch,
        "latestOffset",
        "commit source",
        *batch,
        "latestOffset",
    ]
    assert [entry["end"] for entry in calls(directory, "commit source")] == [{"position": 1}]


def test_initial_offset_is_asked_again_until_the_first_commit_is_logged(
    spark: SparkSession, directory: Path
) -> None:
    (directory / "fail commit").touch()
    fail(spark, directory)
    first = len(calls(directory, "initialOffset"))
    assert first >= 1
    run(spark, directory)
    second = len(calls(directory, "initialOffset"))
    assert second > first
    (directory / "available").write_text("7")
    run(spark, directory)
    assert len(calls(directory, "initialOffset")) == second


def test_write_learns_the_query_and_the_batch_from_the_task(
    spark: SparkSession, directory: Path
) -> None:
    query = run(spark, directory)
    messages = [
        (entry["batch"], message["query"], message["batch"], message["rows"])
        for entry in calls(directory, "commit sink")
        for message in entry["messages"]
    ]
    assert messages == [(0, query, "0", 2), (1, query, "1", 2), (2, query, "2", 1)]


def test_the_query_keeps_its_id_with_its_checkpoint_only(
    spark: SparkSession, directory: Path
) -> None:
    first = run(spark, directory)
    (directory / "available").write_text("6")
    assert run(spark, directory) == first
    shutil.rmtree(directory / "checkpoint")
    other = run(spark, directory)
    assert other != first
    assert calls(directory, "write")[-1]["query"] == other
    assert calls(directory, "write")[-1]["batch"] == "2"


def test_the_first_batch_runs_even_when_nothing_is_there(
    spark: SparkSession, directory: Path
) -> None:
    (directory / "available").write_text("0")
    run(spark, directory)
    assert committed(directory) == {0: []}
    run(spark, directory)
    (directory / "available").write_text("1")
    run(spark, directory)
    assert committed(directory) == {0: [], 1: [0]}


def test_an_empty_batch_has_its_commit_too(spark: SparkSession, directory: Path) -> None:
    (directory / "available").write_text("3")
    stream = spark.readStream.format("canary").option("directory", str(directory)).load()
    writer = stream.where("number < 0").writeStream.format("canary")
    writer = writer.option("directory", str(directory)).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    assert writer.start().awaitTermination(WAIT_S)
    assert committed(directory) == {0: []}
    assert [entry["rows"] for entry in calls(directory, "write")] == [0]


def test_a_failed_commit_aborts_and_comes_again_with_the_same_number(
    spark: SparkSession, directory: Path
) -> None:
    (directory / "fail commit").touch()
    assert "planned failure of a commit" in fail(spark, directory)
    assert [entry["batch"] for entry in calls(directory, "abort")] == [0]
    run(spark, directory)
    assert [entry["batch"] for entry in calls(directory, "commit sink")] == [0, 0, 1, 2]
    assert committed(directory) == {0: [0, 1], 1: [2, 3], 2: [4]}


def test_a_batch_whose_commit_is_not_logged_is_read_and_committed_again(
    spark: SparkSession, directory: Path
) -> None:
    run(spark, directory)
    for path in (directory / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    run(spark, directory)
    assert [entry["batch"] for entry in calls(directory, "commit sink")] == [0, 1, 2, 2]
    assert [entry["numbers"] for entry in calls(directory, "write")][-2:] == [[4], [4]]


def test_a_failed_write_is_none_in_the_abort(spark: SparkSession, directory: Path) -> None:
    (directory / "fail write").touch()
    assert "planned failure of a write" in fail(spark, directory)
    (entry,) = calls(directory, "abort")
    assert (entry["batch"], entry["messages"]) == (0, ["NoneType"])
    assert calls(directory, "commit sink") == []


def test_a_python_process_that_dies_fails_the_query_and_is_replaced(
    spark: SparkSession, directory: Path
) -> None:
    (directory / "exit write").touch()
    fail(spark, directory)
    assert calls(directory, "commit sink") == []
    run(spark, directory)
    assert committed(directory) == {0: [0, 1], 1: [2, 3], 2: [4]}


def test_an_empty_offsets_file_stops_the_query_and_a_new_checkpoint_cures_it(
    spark: SparkSession, directory: Path
) -> None:
    first = run(spark, directory)
    (directory / "available").write_text("6")
    for name in (".2.crc", "2"):
        path = directory / "checkpoint" / "offsets" / name
        if path.exists():
            path.write_text("")
    fail(spark, directory)
    assert run(spark, directory, checkpoint="another") != first
