"""The judgement of parts: the one checker judges each of them, in a task of its own.

Used by `onceq.spark.audit.auditing`. A part holds all that is said of the clients and elements
in it; each is given what is known of the whole (`Facts`). Source: spec P6.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from onceq.history.blame import Facts, Injected
from onceq.history.checker import Checker, Owned
from onceq.history.events import Fault, FinalState, files
from onceq.spark.arrow import batch_of, schema_of
from onceq.spark.audit import evidence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOUND: Final = "guarantee string, rid string, text string, acknowledged bigint"
"""A violation; or, without a guarantee, how many acknowledged requests a part has."""


def judged(parts: DataFrame, stated: FinalState, facts: Facts) -> DataFrame:
    """Returns what is found in parts: partitions of (stage, payload), each ordered by stage."""
    frame: Any = parts  # its types are partial
    found: DataFrame = frame.mapInArrow(functools.partial(_judge, stated, facts), FOUND)
    return found


def _judge(stated: FinalState, facts: Facts, batches: Iterator[Any]) -> Iterator[Any]:
    checker = Checker(stated)
    owned: Owned = defaultdict(list)
    for stage, payload in _runs(batches):
        match stage:
            case evidence.PLACE:
                checker.places(files.PLACES.decode(payload))
            case evidence.EFFECT:
                checker.effects(files.EFFECTS.decode(payload))
            case _:
                checker.take(files.EVENTS.decode(payload), owned)
    checker.judge_clients(owned)
    found = checker.violations(facts)
    rows: list[tuple[Any, ...]] = [(one.guarantee, one.rid, one.text, None) for one in found]
    rows.append((None, None, None, checker.acknowledged))
    yield batch_of(zip(*rows, strict=True), schema_of(FOUND))


def _runs(batches: Iterator[Any]) -> Iterator[tuple[int, bytes]]:
    """Yields consecutive rows of one stage together, as lines."""
    for batch in batches:
        stages, payloads = batch.column("stage").to_pylist(), batch.column("payload").to_pylist()
        for stage, rows in itertools.groupby(zip(stages, payloads, strict=True), itemgetter(0)):
            yield stage, b"\n".join(payload for _, payload in rows)


def injected(payloads: Iterator[bytes]) -> Injected:
    """Returns faults, not yet sorted."""
    faults = Injected()
    for payload in payloads:
        for fault in files.EVENTS.decode(payload):
            if isinstance(fault, Fault):
                faults.add(fault.target, fault.at)
    return faults
