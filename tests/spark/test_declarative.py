"""The tables of examples/pipelines, as their file defines them; spark-pipelines is not run."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import pipelines

import onceq
from onceq.errors import IllegalState
from onceq.spark.pipelines import archive, archived_files
from onceq.spark.session import activate
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).resolve().parents[2] / "examples/pipelines"
WORDS = onceq.Queue("words", str, str, abort_limit=1)


def defined(path: Path) -> Any:
    """Import a file of definitions, as spark-pipelines does."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_hold_what_is_archived(
    spark: SparkSession,
    conninfo: str,
    qm: onceq.QueueManager,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("ONCEQ_URL", conninfo)
    monkeypatch.setattr(pipelines, "materialized_view", lambda define: define)
    activate(spark)
    module = defined(FOLDER / "transformations/ended.py")
    monkeypatch.setattr(module, "REPOSITORY", qm.repository)
    qm.declare(WORDS)
    with pytest.raises(IllegalState, match="was ever archived"):
        archived_files(repository=qm.repository)
    with serving(conninfo, qm.repository, WORDS.handled_by(lambda word, _: word[:1] or word[1])):
        rids = [f"r{number}" for number in range(3)]
        for rid, word in zip(rids, ("one", "two", ""), strict=True):
            qm.enqueue(WORDS, word, rid=rid)
        wait_until(lambda: len(qm.find()) == len(rids))
    archive(tmp_path / "archive", conninfo, repository=qm.repository, spark=spark)
    ended = module.ended()
    assert sorted(row["rid"] for row in ended.collect()) == rids
    ended.createOrReplaceTempView("ended")
    found = module.ended_by_hour().collect()
    counts = {(row["queue"], row["outcome"]): (row["ended"], row["aborts"]) for row in found}
    assert counts == {("words", "done"): (2, 0), ("words", "failed"): (1, 1)}
    assert all(row["waited_p99_s"] > 0 for row in found if row["outcome"] == "done")


def test_the_specification_names_a_place_that_spark_takes() -> None:
    """Absolute, with a scheme: spark-pipelines refuses any other when it begins."""
    text = (FOLDER / "spark-pipeline.yml").read_text(encoding="utf-8")
    assert re.search(r"^storage: [a-z0-9]+://\S*/", text, re.MULTILINE)
    assert re.search(r"include: transformations/", text)
