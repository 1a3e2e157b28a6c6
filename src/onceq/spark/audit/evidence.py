"""What is to be judged, as two tables: places, and what anyone said of them.

Used by `onceq.spark.audit.auditing`. Here they are made from files of events and a final state
beside them; `places` makes them from a repository. The same decoder as everywhere parses the
lines, in Spark's tasks. Source: spec P6.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceq.history import events as ev
from onceq.history.events import files
from onceq.spark.arrow import batch_of, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE, EFFECT, OTHER, CLIENT, FAULT, UNUSED = range(6)
"""The order in which the checker takes events; everyone is told of a fault, nobody of the rest."""

PLACES: Final = (
    "registrant string, thread string, rid string, eid string, role string, state string, "
    "outcome string, aborts int, code string, correlation_id string, is_volatile boolean"
)
"""The places that are judged: the fields of `Place`."""
SAID: Final = (
    "stage int, kind string, registrant string, thread string, rid string, eid string, "
    "other string, actor string, payload binary"
)
"""A row for each event, and each effect. other: the eid that it links to eid. actor: who executed
or enqueued. payload: its line.
"""
_PART_BYTES: Final = 32 << 20
_PIECES_PER_CORE: Final = 4
PLACES_IN_ARROW: Final = schema_of(PLACES)
SAID_IN_ARROW: Final = schema_of(SAID)

Said = tuple[int, str | None, str | None, str | None, str | None, str | None, str | None]
"""stage, registrant, thread, rid, eid, other, actor."""


def _of_client(event: Any) -> Said:
    return CLIENT, event.registrant, event.thread, None, None, None, None


def _of_element(event: Any) -> Said:
    return OTHER, None, None, event.rid, event.eid or None, None, None


def _fault(event: ev.Fault) -> Said:
    if event.what == ev.HELD_IN_CRASH:
        return OTHER, None, None, event.rid, event.target, None, None
    return FAULT, None, None, None, None, None, None


_OTHERS: Final[dict[type[ev.Event], Callable[[Any], Said]]] = {
    ev.Executed: lambda one: (OTHER, None, None, one.rid, one.eid, None, one.actor),
    ev.Redriven: lambda one: (OTHER, None, None, one.rid, one.eid, one.new_eid, None),
    ev.EnqueueBegun: lambda one: (OTHER, None, None, one.rid, None, None, one.actor),
    ev.Fault: _fault,
    ev.Doubted: lambda _: (UNUSED, None, None, None, None, None, None),
    ev.Ended: lambda _: (UNUSED, None, None, None, None, None, None),
    ev.Effect: lambda _: (UNUSED, None, None, None, None, None, None),
}
_SAYS: Final[dict[type[ev.Event], Callable[[Any], Said]]] = {
    kind: _OTHERS.get(kind, _of_client if issubclass(kind, ev.ClientEvent) else _of_element)
    for kind in ev.KINDS
}
"""Whom, or what, each kind of event is about."""


def _effect(effect: ev.Effect) -> Said:
    return EFFECT, None, None, effect.rid, effect.eid or None, None, None


def of_folder(session: SparkSession, folder: Path) -> DataFrame:
    """Returns what is said in the files of events of a folder, which all executors see."""
    return _read(session, sorted(folder.glob(files.EVENTS_PATTERN)), _events, SAID)


def final_of_folder(session: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Returns the places, like a repository's, and the effects, of a final state in a folder."""
    places = _read(session, [folder / ev.PLACES_NAME], _places, PLACES)
    places = places.selectExpr(
        "*",
        "false as is_archived",
        "cast(null as string) as day",
        "cast(null as bigint) as ended_s",
    )
    return places, _read(session, [folder / ev.EFFECTS_NAME], _effects, SAID)


def _read(
    session: SparkSession,
    paths: Sequence[Path],
    read: Callable[[files.Part], Iterator[Any]],
    schema: str,
) -> DataFrame:
    spark: Any = session  # its types are partial
    every = [part for path in paths for part in files.parts(path, _PART_BYTES)]
    rows = [(one.path, one.begin, one.end) for one in every]
    given = spark.createDataFrame(rows, "path string, begin bigint, end bigint")
    most = _PIECES_PER_CORE * spark.sparkContext.defaultParallelism
    spread = given.repartition(max(1, min(len(rows), most)))
    found: DataFrame = spread.mapInArrow(functools.partial(_on_executor, read), schema)
    return found


def _on_executor(
    read: Callable[[files.Part], Iterator[Any]], batches: Iterator[Any]
) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            yield from read(files.Part(**row))


def _events(part: files.Part) -> Iterator[Any]:
    for raw, events in files.read_part(part, files.EVENTS):
        says = [_SAYS[type(event)](event) for event in events]
        yield _said_batch(raw, [type(event).__name__ for event in events], says)


def _effects(part: files.Part) -> Iterator[Any]:
    for raw, effects in files.read_part(part, files.EFFECTS):
        yield _said_batch(raw, ["Effect"] * len(raw), [_effect(one) for one in effects])


def _said_batch(raw: list[bytes], kinds: list[str], says: list[Said]) -> Any:
    stages, *others = zip(*says, strict=True)
    return batch_of((stages, kinds, *others, raw), SAID_IN_ARROW)


def _places(part: files.Part) -> Iterator[Any]:
    for _, places in files.read_part(part, files.PLACES):
        columns = ([getattr(one, name) for one in places] for name in PLACES_IN_ARROW.names)
        yield batch_of(columns, PLACES_IN_ARROW)
