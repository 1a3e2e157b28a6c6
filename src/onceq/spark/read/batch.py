"""The batch reader of the data source `onceq`: a relation of a repository, slice by slice.

Used by Spark, through `onceq.spark.source`. Each slice has a connection and a snapshot of its own,
on an executor: what is being served meanwhile may be seen in two places, or in none; what has ended
is stable. Simple conditions are left to PostgreSQL. Never writes. Source: spec P3.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from onceq.engine.perform.spark_driver import executor_driver, spark_driver
from onceq.errors import IllegalState
from onceq.spark.arrow import RecordBatch
from onceq.spark.read.decode import record_batch, selected
from onceq.spark.read.reading import ReadingOptions
from onceq.spark.read.relations import Relation, relation_of

BYTES_PER_BATCH: Final = 4 << 20
"""As PostgreSQL sends them, or one row more: a row may have a body and a reply of megabytes."""
ROWS_PER_SLICE_MIN: Final = 10_000
BLOCKS_PER_SLICE_MIN: Final = 100
"""Roughly as many rows."""
NO_BLOCK: Final = 2**32 - 1
"""The block of rows that have none, after all others."""
_COMPARED: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_COMPARABLE: Final = (str, int, bool, bytes, bytearray, dt.datetime)


@dataclass
class KeySlice(InputPartition):
    """The rows whose key is after `since`, up to `until`."""

    since: int
    until: int


class OnceqBatchReader(DataSourceReader):
    """Reads columns of a relation. conditions: those pushed down, as SQL and its values."""

    def __init__(self, options: ReadingOptions, names: Sequence[str]) -> None:
        self.options = options
        self.relation: Relation = relation_of(options.read).only(names)
        self.conditions: list[tuple[str, list[Any]]] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes the conditions that PostgreSQL decides as Spark would; yields the others."""
        for one in filters:
            condition = _condition(self.relation, one)
            if condition is None:
                yield one
            else:
                self.conditions.append(condition)

    def partitions(self) -> Sequence[InputPartition]:
        """Cuts the relation by its key into slices of roughly equal numbers of rows."""
        options = self.options
        first, last = options.since, options.until
        if first is None or last is None:
            lowest, highest = self._ends()
            first = lowest - 1 if first is None else first
            last = highest if last is None else last
        least = ROWS_PER_SLICE_MIN
        if self.relation.by_block:
            least = BLOCKS_PER_SLICE_MIN
            first, last = (min(max(one, -1), NO_BLOCK) for one in (first, last))
        count = max(1, min(options.partitions, (last - first) // least))
        cuts = [first + (last - first) * n // count for n in range(count + 1)]
        return [KeySlice(low, high) for low, high in itertools.pairwise(cuts)]

    def _ends(self) -> tuple[int, int]:
        relation, key = self.relation, self.relation.key
        number = "({}::text::point)[0]::bigint" if relation.by_block else "{}"
        ends = ", ".join(number.format(f"{end}({key})") for end in ("min", "max"))
        found = f"{ends}, bool_or({key} is null)"
        query = f"select {found} from {relation.table}"  # noqa: S608 # ours
        with spark_driver(self.options.route) as driver:
            (((least, greatest, has_others),),) = driver.rows(
                query, [], 1, snapshot=self.options.snapshot
            )
        keys = [one for one in (least, greatest) if one is not None]
        keys += [relation.without_key] if has_others else []
        return (min(keys), max(keys)) if keys else (1, 0)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Reads a slice."""
        if not isinstance(partition, KeySlice):
            raise IllegalState(f"{type(partition).__name__} is no partition of this source")
        text, values = self._query(partition)
        with executor_driver(self.options.route) as driver:
            snapshot = self.options.snapshot
            for lines in driver.lines(text, values, BYTES_PER_BATCH, snapshot=snapshot):
                yield record_batch(self.relation.columns, lines)

    def _query(self, cut: KeySlice) -> tuple[str, list[Any]]:
        relation = self.relation
        wire = ", ".join(selected(one) for one in relation.columns)
        conditions = [condition_of(relation, cut), *self.conditions]
        where = " and ".join(text for text, _ in conditions)
        values = [value for _, some in conditions for value in some]
        return f"select {wire} from {relation.source} where {where}", values  # noqa: S608 # ours


def condition_of(relation: Relation, cut: KeySlice) -> tuple[str, list[Any]]:
    """Returns the condition of a slice as SQL and its values."""
    key = relation.key
    if relation.by_block:
        first = f"({min(cut.since + 1, NO_BLOCK)},0)"
        if cut.until >= NO_BLOCK:  # includes rows of a foreign table, which are in no block
            return f"({key} >= %s::tid)", [first]
        return f"({key} >= %s::tid and {key} < %s::tid)", [first, f"({cut.until + 1},0)"]
    is_first = cut.since < relation.without_key <= cut.until
    within = f"({key} > %s and {key} <= %s{f' or {key} is null' if is_first else ''})"
    return within, [cut.since, cut.until]


def _condition(relation: Relation, given: Filter) -> tuple[str, list[Any]] | None:
    """Returns a condition as SQL and its values; None if Spark must decide it."""
    path: tuple[str, ...] = getattr(given, "attribute", ())
    value: Any = getattr(given, "value", None)
    column = relation.column(path[0]) if len(path) == 1 else None
    if column is None:
        return None
    by = f'({column.by}) collate "C"' if column.kind == "string" else f"({column.by})"
    match given:
        case IsNull():
            return f"{by} is null", []
        case IsNotNull():
            return f"{by} is not null", []
        case In() if all(_is_comparable(one) for one in value):
            return f"{by} = any(%s)", [list(value)]
        case StringStartsWith() if "\0" not in value:
            return f"starts_with({column.by}, %s)", [value]
        case _ if type(given) in _COMPARED and _is_comparable(value):
            return f"{by} {_COMPARED[type(given)]} %s", [value]
        case _:
            return None


def _is_comparable(value: Any) -> bool:
    return isinstance(value, _COMPARABLE) and not (isinstance(value, str) and "\0" in value)
