"""What is to be judged, as two tables: places, and what anyone said of them.

Used by `onceq.spark.audit.auditing`. Here they are made from files of events and a final state
beside them; `places` makes them from a repository. The same decoder as everywhere parses the
lines, in Spark's tasks. Source: spec P6.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceq.history import events as ev
from onceq.history.events import files
from onceq.spark.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
_PLACE_NAMES: Final = [one.split()[0] for one in PLACES.split(", ")]

Said = tuple[int, str | None, str | None, str | None, str | None, str | None, str | None]
"""stage, registrant, thread, rid, eid, other, actor."""


def _of_client(event: Any) -> Said:
    return CLIENT, event.registrant, event.thread, None, None, None, None


def _of_element(event: Any) -> Said:
    return OTHER, None, None, event.rid, event.eid or None, None, None


def _executed(event: ev.Executed) -> Said:
    return OTHER, None, None, event.rid, event.eid, None, event.actor


def _redriven(event: ev.Redriven) -> Said:
    return OTHER, None, None, event.rid, event.eid, event.new_eid, None


def _enqueue_begun(event: ev.EnqueueBegun) -> Said:
    return OTHER, None, None, event.rid, None, None, event.actor


def _fault(event: ev.Fault) -> Said:
    if event.what == ev.HELD_IN_CRASH:
        return OTHER, None, None, event.rid, event.target, None, None
    return FAULT, None, None, None, None, None, None


def _unused(_event: ev.Event) -> Said:
    return UNUSED, None, None, None, None, None, None


_OTHERS: Final[dict[type[ev.Event], Callable[[Any], Said]]] = {
    ev.Executed: _executed,
    ev.Redriven: _redriven,
    ev.EnqueueBegun: _enqueue_begun,
    ev.Fault: _fault,
    ev.Doubted: _unused,
    ev.Effect: _unused,
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
    arrays = [pa.array(stages, pa.int32()), pa.array(kinds, pa.string())]
    arrays += [pa.array(values, pa.string()) for values in others]
    arrays.append(pa.array(raw, pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, names=[one.split()[0] for one in SAID.split(", ")])


_KINDS: Final = {"aborts": pa.int32(), "is_volatile": pa.bool_()}


def _places(part: files.Part) -> Iterator[Any]:
    for _, places in files.read_part(part, files.PLACES):
        arrays = [
            pa.array([getattr(one, name) for one in places], _KINDS.get(name, pa.string()))
            for name in _PLACE_NAMES
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=_PLACE_NAMES)
