"""A query that something else ends, a checkpoint of two, and Java that is gone: each is said."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceq import errors
from onceq.spark import ServerSettings
from tests.parts import wait_until
from tests.programs import run_python
from tests.spark.driving import run as drive
from tests.spark.keeping import in_pairs
from tests.spark.serving import check_all_done, make_server
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def run(spark: SparkSession, repository: Repository, faults: Path, server: Any, **how: Any) -> None:
    where: dict[str, Any] = {"repository": repository.name, "spark": spark}
    server.run(repository.conninfo, checkpoint=faults / "checkpoint", **where, **how)


def test_a_query_that_something_else_stops_is_no_good_end(
    spark: SparkSession, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(repository.name, tmp_path)
    begin = server._begin

    def begun(*given: Any) -> Any:
        query = begin(*given)
        query.stop()
        return query

    monkeypatch.setattr(server, "_begin", begun)
    with pytest.raises(errors.IllegalState, match=r"stopped by something else than its stop\(\)"):
        run(spark, repository, tmp_path, server)


def test_once_serves_what_was_there_also_if_something_else_stops_its_query(
    spark: SparkSession, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has claimed anything, and in a batch that it has claimed."""
    rids = repository.send(4)
    server = make_server(repository.name, tmp_path, batch_rows=2)
    begin, lives = server._begin, iter(("at once", "in a batch"))
    (tmp_path / "staged.pause").touch()

    def begun(*given: Any) -> Any:
        query = begin(*given)
        life = next(lives, None)
        if life == "in a batch":
            wait_until((tmp_path / "staged.pause.reached").exists)
        if life is not None:
            query.stop()
        return query

    monkeypatch.setattr(server, "_begin", begun)
    run(spark, repository, tmp_path, server, once=True)
    check_all_done(repository, rids)
    assert (server.statistics().lives, server.statistics().failures) == (3, {})


def test_two_servers_do_not_share_a_checkpoint(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)
    run(spark, repository, tmp_path, make_server(repository.name, tmp_path), once=True)
    notes = sorted(str(path) for path in (tmp_path / "checkpoint").rglob("*"))
    other = make_server(repository.name, tmp_path, name="other")
    with pytest.raises(errors.InvalidValue, match=r'of another Spark server, {"server":"spark"'):
        run(spark, repository, tmp_path, other, once=True)
    assert notes == sorted(str(path) for path in (tmp_path / "checkpoint").rglob("*"))
    run(spark, repository, tmp_path, make_server(repository.name, tmp_path), once=True)


def test_a_checkpoint_that_has_finished_nothing_is_made_anew_with_its_state(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    """As a full disk leaves it; one that has finished a batch is left alone."""
    settings = ServerSettings(backoff_s=0.01, backoff_max_s=0.1, stateful=True)
    options: dict[str, Any] = {"batch": in_pairs, "tables": {}, "settings": settings}
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "state" / "0" / "0").mkdir(parents=True)
    (checkpoint / "state" / "0" / "0" / "1.delta").write_bytes(b"")
    repository.send(2, customer="a")
    server = make_server(repository.name, tmp_path, **options)
    run(spark, repository, tmp_path, server, once=True)
    assert server.statistics().failures == {"FORGET": 1}
    assert len(repository.replies()) == 2
    for kind in ("offsets", "commits"):
        for path in (checkpoint / kind).iterdir():
            path.unlink()
    repository.send(2, first=2, customer="a")
    with pytest.raises(errors.FileMismatch, match="put the last copy back"):
        run(spark, repository, tmp_path, make_server(repository.name, tmp_path, **options))
    assert (checkpoint / "state" / "0").exists()


def test_a_code_of_a_megabyte_is_cut(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)

    def batch(requests: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sf  # noqa: PLC0415 - beside its use

        long = sf.repeat(sf.lit("x"), 1_000_000)
        empty = sf.lit(None).cast("string").alias("reply")
        return requests.select("eid", empty, long.alias("error"), long.alias("code"))

    server = make_server(repository.name, tmp_path, batch=batch, tables={})
    run(spark, repository, tmp_path, server, once=True)
    found = "select length(code), length(error) from {}.element where role = 'failed'"
    assert repository.ask(found) == [(200, 4000)]


def test_a_session_that_is_stopped_is_said_and_loses_nothing(
    repository: Repository, tmp_path: Path
) -> None:
    """Before it is given to a server, in the batch function, and while the query runs."""
    repository.send(1)
    code, printed = drive("tests.spark.stopping_child", repository, tmp_path)
    said = [line.partition(", by spark.stop(): ")[0] for line in printed.splitlines()]
    ways = ("before", "within", "beside")
    assert said == [f"{way}: IllegalState: Spark's session was stopped" for way in ways], (
        tmp_path / "errors"
    ).read_text()[-2000:]
    assert code == 0
    assert repository.ask("select max(aborts) from {}.element") == [(0,)]


CHILD = """
import sys
from pathlib import Path
import psutil
from onceq import errors
from onceq.spark.session import build_session
from tests.spark.serving import make_server

spark = build_session("dies", master="local[1]")
server = make_server(sys.argv[2], Path(sys.argv[3]))
begin = server._begin

def begun(*given):
    query = begin(*given)
    for one in psutil.Process().children(recursive=True):
        if one.name() == "java":
            one.kill()
    return query

server._begin = begun
try:
    server.run(sys.argv[1], repository=sys.argv[2], spark=spark)
except errors.EnvironmentFault as error:
    print("said:", error)
"""


def test_java_that_is_killed_is_said_and_loses_nothing(
    repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)
    arguments = [repository.conninfo, repository.name, str(tmp_path)]
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    ran = run_python(["-c", CHILD, *arguments], cwd=tmp_path, env=os.environ | path)
    assert "said: Spark's Java has died" in ran.stdout, ran.stderr[-2000:]
    assert ran.returncode in (0, -signal.SIGTERM)
    assert repository.ask("select aborts from {}.element where role = 'request'") == [(0,)]
