"""The Spark server in one session: faults at every point, poison, fencing, schema errors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import functions as sf

from onceq import errors, telemetry
from onceq.engine.perform.spark_driver import spark_driver
from onceq.spark.source import POINTS
from tests.events import emits
from tests.spark.faulty_source import book
from tests.spark.serving import ORDERS, check_all_done, make_server
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from onceq.engine.perform.spark_driver import Route, SparkDriver
    from tests.events import Events

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def serve_once(
    spark: SparkSession, repository: Repository, faults: Path, **options: Any
) -> dict[str, int]:
    """Serve what is there; return the failures on the way."""
    server = make_server(repository.name, faults, **options)
    server.run(
        repository.conninfo,
        repository=repository.name,
        spark=spark,
        checkpoint=faults / "checkpoint",
        once=True,
    )
    return dict(server.statistics().failures)


def test_a_failure_at_every_point_changes_nothing(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = []
    for number, point in enumerate(POINTS):
        rids += repository.send(5, first=5 * number)
        kind = f"{point}.exit" if number % 2 else point
        (tmp_path / kind).touch()
        assert serve_once(spark, repository, tmp_path) == {"CRASH": 1}, point
        assert (tmp_path / f"{kind}.reached").exists()
        assert repository.ask("select max(aborts) from {}.history") == [(0,)]
        check_all_done(repository, rids)
    assert repository.ask("select count(*) from {}.spark_group") == [(0,)]
    assert repository.ask("select count(*) from {}.spark_reply") == [(0,)]


def test_a_database_that_is_not_there_is_said_before_spark_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def begin(_name: str) -> SparkSession:
        raise AssertionError("Spark was begun")

    monkeypatch.setattr("onceq.spark.serve.server.build_session", begin)
    with pytest.raises(errors.CannotConnect):
        make_server("onceq", tmp_path).run(f"postgresql:///d?host={tmp_path}")


@emits(telemetry.QueryEnded, telemetry.SparkBegan, telemetry.SparkStopped)
def test_a_database_that_goes_away_while_spark_begins_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    events: Events,
    spark: SparkSession,
    repository: Repository,
    tmp_path: Path,
) -> None:
    rids = repository.send(2)
    away = iter([True, True])

    def driver(route: Route) -> AbstractContextManager[SparkDriver]:
        if next(away, False):
            raise errors.CannotConnect("the database system is starting up")
        return spark_driver(route)

    monkeypatch.setattr("onceq.engine.perform.steadfast.spark_driver", driver)
    assert serve_once(spark, repository, tmp_path) == {"ENVIRONMENT": 2}
    ended = {"server": "spark", "verdict": "ENVIRONMENT", "delay_s": ANY}
    ended["error"] = "the database system is starting up"
    assert events.of(telemetry.QueryEnded) == [ended, ended]
    check_all_done(repository, rids)


def test_a_query_that_spark_could_not_begin_is_begun_again(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(2)
    dies = iter([True])

    def batch(requests: DataFrame) -> DataFrame:
        if next(dies, False):
            raise PySparkRuntimeError(
                errorClass="CANNOT_OPEN_SOCKET", messageParameters={"errors": "none is free"}
            )
        return book(requests)

    assert serve_once(spark, repository, tmp_path, batch=batch) == {"ENVIRONMENT": 1}
    check_all_done(repository, rids)


def test_two_deaths_in_one_batch(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(6)
    for point in ("staged", "concluded"):
        (tmp_path / f"{point}.exit").touch()
    assert serve_once(spark, repository, tmp_path) == {"CRASH": 2}
    assert len(list(tmp_path.glob("*.exit.reached"))) == 2
    assert repository.ask("select max(aborts) from {}.history") == [(0,)]
    check_all_done(repository, rids)


@pytest.mark.parametrize("point", ["staged", "concluded"])
def test_a_process_that_exits_and_a_deleted_checkpoint(
    spark: SparkSession, repository: Repository, tmp_path: Path, point: str
) -> None:
    rids = repository.send(6)
    (tmp_path / f"{point}.exit").touch()
    serve_once(spark, repository, tmp_path)
    rids += repository.send(6, first=6)
    (tmp_path / "elsewhere").mkdir()
    serve_once(spark, repository, tmp_path / "elsewhere")
    check_all_done(repository, rids)


def test_poison_fails_alone(spark: SparkSession, repository: Repository, tmp_path: Path) -> None:
    rids = repository.send(4)
    (poison,) = repository.send(1, first=4, customer="poison")
    rids += repository.send(3, first=5)
    failures = serve_once(spark, repository, tmp_path)
    assert failures["CRASH"] <= 3 + 2
    replies = repository.replies()
    assert replies.pop(poison)[0] == "failed"
    assert {rid: outcome for rid, (outcome, _) in replies.items()} == dict.fromkeys(
        set(rids), "done"
    )
    assert repository.ask("select rid, aborts, code from {}.element where role = 'failed'") == [
        (poison, 2, "server_died")
    ]


def test_errors_of_the_batch_function(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.send(1, first=0, cents=-5)
    repository.send(1, first=1, cents=-500)
    repository.send(1, first=2)
    assert serve_once(spark, repository, tmp_path) == {}
    outcomes = {rid: outcome for rid, (outcome, _) in repository.replies().items()}
    assert outcomes == {"r0": "failed", "r1": "failed", "r2": "done"}
    aborts = repository.ask("select rid, aborts from {}.element where role = 'failed' order by 1")
    assert aborts == [("r0", 2), ("r1", 1)]
    assert repository.booked() == [("r2", "a2", 2)]


def test_a_newer_driver_fences_the_older(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(3)
    older = make_server(repository.name, tmp_path)
    raised: list[BaseException] = []

    def serve() -> None:
        try:
            older.run(
                repository.conninfo,
                repository=repository.name,
                spark=spark,
                checkpoint=tmp_path / "older",
            )
        except errors.Fenced as error:
            raised.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    wait_until(lambda: repository.seqs_left() == 0)
    newer = Life(repository)
    thread.join(150)
    assert not thread.is_alive()
    assert "another driver serves under" in str(raised[0])
    rids += repository.send(3, first=3)
    group = newer.claim()
    assert len(newer.plan(group)) == 3
    newer.end()


def wait_until(holds: Any, limit_s: int = 150) -> None:
    pause = threading.Event()
    for _ in range(10 * limit_s):
        if holds():
            return
        pause.wait(0.1)
    raise AssertionError("it did not come to pass")


def test_a_broken_and_a_strange_checkpoint_are_rebuilt(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(3)
    serve_once(spark, repository, tmp_path)
    offsets = tmp_path / "checkpoint" / "offsets"
    last = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda p: p.name)
    last.write_text("")
    (offsets / f".{last.name}.crc").unlink(missing_ok=True)
    rids += repository.send(3, first=3)
    assert serve_once(spark, repository, tmp_path) == {"FORGET": 1}
    check_all_done(repository, rids)
    repository.do("delete from {}.spark_server")
    repository.do("alter sequence {}.incarnation_seq restart")
    rids += repository.send(3, first=6)
    assert serve_once(spark, repository, tmp_path) == {"FORGET": 1}
    check_all_done(repository, rids)


DAMAGES = {
    "offsets": ("", "v1\n{", "v1\nnonsense", "v9\n{}", "x"),
    "commits": ("", "v1\n{"),
    "metadata": ("", "{x"),
}


def test_whatever_of_a_checkpoint_is_damaged_it_is_made_anew(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(1)
    serve_once(spark, repository, tmp_path)
    checkpoint = tmp_path / "checkpoint"
    for kind, text in [(kind, text) for kind, texts in DAMAGES.items() for text in texts]:
        found = checkpoint / kind
        if found.is_dir():
            found = max(found.glob("[0-9]*"), key=lambda path: int(path.name))
        if text != "x":  # else its checksum is wrong
            (found.parent / f".{found.name}.crc").unlink(missing_ok=True)
        found.write_text(text)
        rids += repository.send(1, first=len(rids))
        assert serve_once(spark, repository, tmp_path) == {"FORGET": 1}, (kind, text)
    check_all_done(repository, rids)


def test_a_password_is_in_nothing_that_spark_shows(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(1)
    server = make_server(repository.name, tmp_path)
    url = f"{repository.conninfo} password=s3cret"
    server.run(
        url,
        repository=repository.name,
        spark=spark,
        checkpoint=tmp_path / "checkpoint",
        once=True,
    )
    check_all_done(repository, rids)
    options = (tmp_path / "options").read_text()
    assert "passfile" in options
    shown = [options, str(spark.sparkContext.getConf().getAll())]
    shown += [
        path.read_bytes().decode("latin-1")
        for path in (tmp_path / "checkpoint").rglob("*")
        if path.is_file()
    ]
    assert not [text for text in shown if "s3cret" in text]


def without_eid(requests: DataFrame) -> DataFrame:
    return requests.select(sf.lit("ok").alias("reply"))


def reply_of_numbers(requests: DataFrame) -> DataFrame:
    return requests.select("eid", sf.lit(1).alias("reply"))


def no_rows(requests: DataFrame) -> DataFrame:
    return requests.select("eid", "body").withColumnRenamed("body", "reply")


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (without_eid, "no column 'eid' .string."),
        (reply_of_numbers, "'reply' as int, not as binary"),
        (no_rows, "needs a column 'booked' of type struct"),
    ],
)
def test_wrong_columns_are_the_author_s_error(
    spark: SparkSession, repository: Repository, tmp_path: Path, batch: Any, says: str
) -> None:
    repository.send(1)
    with pytest.raises(errors.InvalidValue, match=says):
        serve_once(spark, repository, tmp_path, batch=batch)
    assert repository.ask("select aborts, claimed_by from {}.element") == [(0, None)]


def test_a_missing_table_stops_the_server_and_charges_nobody(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)
    repository.do("drop table {}.booked")
    with pytest.raises(errors.SchemaMissing, match="there is no table"):
        serve_once(spark, repository, tmp_path)
    assert repository.ask("select aborts, claimed_by from {}.element") == [(0, None)]
    assert ORDERS.name == "orders"
