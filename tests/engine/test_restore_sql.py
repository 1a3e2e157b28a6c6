"""Restoring in the database: rows of a file go back, once, under the names that they had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq import errors
from onceq.model.archive_ops import ArchiveManifest, ArchiveRestore
from onceq.spark.archive.restoring import SHAPE, WRONG
from onceq.spark.read.relations import HISTORY as RELATION
from proof.harness.ledger import ask
from tests.engine.test_archive_sql import (
    WORDS,
    begin,
    commit,
    driver,
    end_some,
    file,
    settled,
    trim,
    trimmed,
)

if TYPE_CHECKING:
    from onceq.engine.perform.spark_driver import SparkDriver

__all__ = ["driver"]

HISTORY = "select to_jsonb(h) from {}.history h order by record_no"
COLUMNS = ", ".join(f"{one.by} as {one.name}" for one in RELATION.columns)
NAMES = [one.name for one in RELATION.columns]


def held(driver: SparkDriver, repository: str) -> list[tuple[Any, ...]]:
    """Return the rows as the archive has them in a file."""
    query = f"select {COLUMNS} from {RELATION.source}".replace("{schema}", repository)
    return driver.connection.execute(query.encode()).fetchall()


def restored(
    driver: SparkDriver, epoch: int, rows: list[tuple[Any, ...]], name: str = "a.parquet"
) -> int:
    return driver.restore(
        ArchiveRestore(epoch=epoch, path=f"history/run=1/{name}"),
        SHAPE.format(columns=COLUMNS, source=RELATION.source),
        WRONG.format(
            source=RELATION.source,
            alias=RELATION.table.split()[1],
            digest=RELATION.columns[-1].by,
        ),
        iter(rows),
    )


@pytest.fixture
def archived(driver: SparkDriver, qm: onceq.QueueManager) -> tuple[int, list[tuple[Any, ...]]]:
    """The epoch of a run that has three rows in a file; and these."""
    end_some(qm, 3)
    epoch = begin(driver)
    commit(driver, epoch, 0, settled(driver, epoch), file(3))
    return epoch, held(driver, qm.repository)


def test_what_was_trimmed_comes_back_once_and_is_trimmed_again(
    driver: SparkDriver,
    qm: onceq.QueueManager,
    onceq_url: str,
    archived: tuple[int, list[tuple[Any, ...]]],
) -> None:
    epoch, rows = archived
    before = ask(onceq_url, HISTORY.format(qm.repository))
    assert trim(driver, epoch) == 3
    assert trimmed(driver) == [True]
    assert restored(driver, epoch, rows) == 3
    assert ask(onceq_url, HISTORY.format(qm.repository)) == before
    assert trimmed(driver) == [False]
    assert restored(driver, epoch, rows) == 0
    assert ask(onceq_url, HISTORY.format(qm.repository)) == before
    assert trim(driver, epoch) == 3


def test_a_file_that_has_lost_a_row_and_one_that_is_not_archived_are_refused(
    driver: SparkDriver, qm: onceq.QueueManager, archived: tuple[int, list[tuple[Any, ...]]]
) -> None:
    epoch, rows = archived
    trim(driver, epoch)
    for some, name in ((rows[:2], "a.parquet"), (rows, "b.parquet")):
        with pytest.raises(errors.IllegalState, match="not in the manifest with so many rows"):
            restored(driver, epoch, some, name)
    assert held(driver, qm.repository) == []
    assert trimmed(driver) == [True]


def test_a_row_of_a_queue_that_nobody_has_is_not_left_out_in_silence(
    driver: SparkDriver, qm: onceq.QueueManager, archived: tuple[int, list[tuple[Any, ...]]]
) -> None:
    epoch, rows = archived
    trim(driver, epoch)
    at = NAMES.index("queue")
    strange = [(*row[:at], "nobody's", *row[at + 1 :]) for row in rows[:1]] + rows[1:]
    with pytest.raises(errors.IllegalState, match="queue 'nobody''s'"):
        restored(driver, epoch, strange)
    assert held(driver, qm.repository) == []


def test_a_row_goes_back_to_the_queue_that_had_its_name_then(
    driver: SparkDriver,
    qm: onceq.QueueManager,
    onceq_url: str,
    archived: tuple[int, list[tuple[Any, ...]]],
) -> None:
    epoch, rows = archived
    query = f"select distinct queue_id from {qm.repository}.history"
    then = ask(onceq_url, query)
    qm.destroy(WORDS.name)
    qm.declare(WORDS)
    trim(driver, epoch)
    assert restored(driver, epoch, rows) == 3
    assert ask(onceq_url, query) == then


def test_a_restore_whose_run_was_overtaken_restores_nothing(
    driver: SparkDriver, qm: onceq.QueueManager, archived: tuple[int, list[tuple[Any, ...]]]
) -> None:
    epoch, rows = archived
    trim(driver, epoch)
    begin(driver)
    with pytest.raises(errors.Fenced):
        restored(driver, epoch, rows)
    assert held(driver, qm.repository) == []
    assert driver.perform(ArchiveManifest()).files[0].is_trimmed
