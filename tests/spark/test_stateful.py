"""A query that keeps a state, killed where a replay must read what was read before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq import errors
from onceq.spark import ServerSettings
from tests.spark.keeping import in_pairs
from tests.spark.serving import make_server
from tests.spark.spark_parts import Repository, make_repository
from tests.spark.test_serving import serve_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)
SETTINGS = ServerSettings(backoff_s=0.01, hold_s=3600, stateful=True)
KEEPING: dict[str, Any] = {
    "batch": in_pairs,
    "tables": {},
    "settings": SETTINGS,
    "batch_rows": 2,
}


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def test_a_state_survives_a_death_after_its_commit(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    """The batch comes again, and its rows are gone from the queue: what was kept is read."""
    rids = repository.send(6)
    (tmp_path / "committed.exit").touch()
    assert serve_once(spark, repository, tmp_path, **KEEPING) == {"CRASH": 1}
    assert (tmp_path / "committed.exit.reached").exists()
    sums = {rid: b"%d" % (2 * (n % 3) + 3) for n, rid in enumerate(rids)}
    assert repository.replies() == {rid: ("done", total) for rid, total in sums.items()}
    assert repository.ask("select max(aborts) from {}.history") == [(0,)]
    check_a_broken_checkpoint_stays(spark, repository, tmp_path)


def check_a_broken_checkpoint_stays(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    """What is in it is nowhere else, so that a person decides."""
    offsets = tmp_path / "checkpoint" / "offsets"
    last = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda p: p.name)
    last.write_text("")
    (offsets / f".{last.name}.crc").unlink(missing_ok=True)
    repository.send(1, first=6)
    with pytest.raises(errors.FileMismatch, match="put the last copy back, or delete it"):
        serve_once(spark, repository, tmp_path, **KEEPING)
    assert last.exists()
    assert repository.ask("select rid, claimed_by from {}.element where role = 'request'") == [
        ("r6", None)
    ]


def test_a_state_must_be_declared(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)
    undeclared = KEEPING | {"settings": ServerSettings(hold_s=3600)}
    with pytest.raises(errors.InvalidValue, match="keeps a state from batch to batch"):
        serve_once(spark, repository, tmp_path, **undeclared)
    assert repository.ask("select aborts, claimed_by from {}.element") == [(0, None)]


def test_a_state_needs_a_place(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidValue, match="needs checkpoint="):
        make_server("onceq", tmp_path, **KEEPING).run(f"postgresql:///d?host={tmp_path}")
