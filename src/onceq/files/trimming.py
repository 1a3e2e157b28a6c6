"""Trims history without Spark: removes old, archived rows from PostgreSQL.

Used by `onceq history trim`. If a file is not what was archived, nothing is removed. This is a run
of the archive: it fences the previous one, and the next one fences it. Source: spec Q17.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from onceq.engine.embedded.locate import Located
from onceq.engine.perform.spark_driver import Route, SparkDriver, spark_driver
from onceq.engine.schema.sealing import check_sealed, sealed
from onceq.errors import IllegalState
from onceq.manager import trimming
from onceq.manager.trimming import Due
from onceq.model.admin_ops import MeasureRates
from onceq.model.archive_ops import ArchiveBegin, ArchiveManifest, Kind
from onceq.model.names import check_flag, check_range

SO = "nothing is trimmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimOrder:
    """What to trim: what ended more than keep_days ago, 0 to 36,500.

    unarchived: also what is in no file, which is then lost. dry_run: only count.
    """

    keep_days: int
    unarchived: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_range("keep_days", self.keep_days, 0, 36_500)
        check_flag("unarchived", self.unarchived)
        check_flag("dry_run", self.dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """What was removed, or would be, by kind. before: it had ended by then.

    left: equally old, but in no file yet. files: those that may hold it, which were read again or,
    in a dry run, would be.
    """

    before: datetime
    trimmed: dict[str, int]
    left: dict[str, int]
    files: int
    dry_run: bool


def trim_history(order: TrimOrder, located: Located, repository: str = "onceq") -> Trimmed:
    """Removes old rows from PostgreSQL that are in files which are as they were archived.

    The history of a request stays as long as it, or its reply, is in a queue, or a client's
    registration names it; its aborts stay as long as it is in a queue itself.
    A rid that is trimmed stays known, and never runs again. History of a client of which a
    transaction is open may stay until a later trim. Raises IllegalState (nothing was
    ever archived), FileMismatch (a file is not what was archived), Fenced (a run of the archive
    has begun), CannotConnect, ConnectionLost, InDoubt: some may be removed, and it may be repeated.
    """
    where = Route(url="", conninfo=located.conninfo, repository=repository)
    with spark_driver(where) as driver:
        root = driver.perform(ArchiveManifest()).root
        if root is None and not order.unarchived:
            raise IllegalState(
                f"nothing of repository {repository!r} was ever archived, so {SO}: `onceq spark "
                "archive` does it first; to remove for good what is in no file, say so"
            )
        if order.dry_run:
            return _count(driver, order)
        begun = driver.perform(ArchiveBegin(root=None))
        due = driver.run(trimming.due(_before(begun.begun_at, order), unarchived=order.unarchived))
        files = driver.run(trimming.holding(due))
        for file in files:
            check_sealed(Path(root or ""), file, sealed(root or "", file.path), SO)
        return _answer(order, due, driver.run(trimming.remove(begun.epoch, due)), len(files))


def _before(now: datetime, order: TrimOrder) -> datetime:
    return now - timedelta(days=order.keep_days)


def _count(driver: SparkDriver, order: TrimOrder) -> Trimmed:
    now = driver.perform(MeasureRates()).at  # the database's clock
    due = driver.run(trimming.due(_before(now, order), unarchived=order.unarchived))
    also = due.others if order.unarchived else dict.fromkeys(Kind, 0)
    counted = {kind.value: due.archived[kind] + also[kind] for kind in Kind}
    return _answer(order, due, counted, len(driver.run(trimming.holding(due))))


def _answer(order: TrimOrder, due: Due, trimmed: dict[str, int], files: int) -> Trimmed:
    left = {kind.value: 0 if order.unarchived else due.others[kind] for kind in Kind}
    return Trimmed(
        before=due.before, trimmed=trimmed, left=left, files=files, dry_run=order.dry_run
    )
