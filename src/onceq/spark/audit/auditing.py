"""The audit: whole histories against the guarantees, live or archived, by the checker, on Spark.

Public through `onceq.spark.pipelines`. Spark reads, finds what belongs together, and gives each
part to the history checker; only what needs all of a client at once is asked in SQL (`tags`).
Never writes into the repository. Source: spec P6.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceq.engine.perform.spark_driver import spark_driver
from onceq.errors import InvalidValue
from onceq.history import FinalState
from onceq.history.events import StoredFinal
from onceq.model.archive_ops import ArchiveManifest
from onceq.spark.archive.sessions import own_session
from onceq.spark.audit.audited import Audited, Evidence, judge, kept
from onceq.spark.audit.evidence import final_of_folder, of_folder
from onceq.spark.audit.places import Repository
from onceq.spark.audit.tags import unknown_to_tags
from onceq.spark.given.place import find_place, reach
from onceq.spark.session import build_session, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOST: Final = "nothing was judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known besides the contents of a repository. None: nothing.

    events: a folder of what processes recorded, which all executors see: all that the clients
    in it ever did. effects: a table to which handlers add rows, and in which nothing is changed,
    with the eid of the request in each; effects_each: how many rows each done request has.
    abort_limit: of all queues, if it was never different. retry_limit: the largest that any queue
    ever had; None: the largest that any has now, or the default if that is larger.
    """

    events: str | Path | None = None
    effects: str | None = None
    effects_each: int | None = None
    abort_limit: int | None = None
    retry_limit: int | None = None


NOTHING: Final = Known()


def audit(
    url: str | None = None,
    *,
    repository: str = "onceq",
    known: Known = NOTHING,
    save: str | Path | None = None,
    spark: SparkSession | None = None,
) -> Audited:
    """Judges a repository: all that has ended, archived or not, and everything in its queues.

    It is judged as of one moment, whoever else is working. save: a folder that does not exist yet,
    for all violations as JSON lines. Raises InvalidValue, CannotConnect, SchemaMissing,
    EnvironmentFault (Spark failed): nothing was judged.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        located = held.enter_context(reach(url, repository))
        session = held.enter_context(own_session(spark or build_session("onceq audit"), LOST))
        place = held.enter_context(find_place(located, repository, local=is_local(session)))
        driver = held.enter_context(spark_driver(place))
        volatile = Repository.volatile_queues(driver)
        snapshot = held.enter_context(driver.snapshot())
        there = Repository(
            session=session,
            place=place,
            snapshot=snapshot,
            manifest=driver.perform(ArchiveManifest()),
            volatile=volatile,
        )
        places = held.enter_context(kept(there.places()))
        said = there.redrives(places)
        if known.events is None:
            said = said.unionByName(there.aborts())
        else:
            said = said.unionByName(of_folder(session, _folder(known.events)))
        if known.effects is not None:
            said = said.unionByName(there.effects(driver, known.effects))
        evidence = Evidence(
            places=places,
            said=held.enter_context(kept(said)),
            stated=FinalState(
                places=(),
                effects=(),
                finished=False,
                effects_expected=bool(known.effects_each),
                effects_each=known.effects_each,
                abort_limit=known.abort_limit,
                retry_limit=there.retry_limit(driver, known.retry_limit),
                aborts_recorded=known.events is None and not _is_older(places),
            ),
            by_client=known.events is not None,
            besides=None if volatile else unknown_to_tags(places, there.tags()),
            volatile=volatile,
            has_effects=known.effects is not None,
        )
        return judge(session, evidence, save, began)


def audit_files(
    folder: str | Path, *, save: str | Path | None = None, spark: SparkSession | None = None
) -> Audited:
    """Judges files of events by the final state saved beside them, as `check_files` does.

    folder: all executors see it. Raises FileNotFoundError if no final state was saved, and what
    `audit` raises.
    """
    began = time.monotonic()
    where = _folder(folder)
    stated = StoredFinal.open(where).stated
    given = spark if spark is not None else build_session("onceq audit")
    with own_session(given, LOST) as session:
        places, effects = final_of_folder(session, where)
        with (
            kept(places) as there,
            kept(of_folder(session, where).unionByName(effects)) as said,
        ):
            evidence = Evidence(
                places=there, said=said, stated=stated, by_client=True, has_effects=True
            )
            return judge(session, evidence, save, began)


def _folder(given: str | Path) -> Path:
    folder = Path(given).absolute()
    if not folder.is_dir():
        raise InvalidValue(f"{folder} is no directory: recorded events are files in one")
    return folder


def _is_older(places: DataFrame) -> bool:
    """Whether aborts were counted before they were recorded, by an older version of onceq."""
    return not places.where("record_no = 1 and aborts > 0").isEmpty()
