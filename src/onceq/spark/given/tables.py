"""How a Spark server changes the user's tables: insert, upsert, add, as values.

Public through `onceq.spark`. Pure: no Spark, no I/O. The commit of the micro-batch changes the
tables, for exactly the requests that it removes (spec P2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceq.errors import InvalidValue

COLUMNS_MAX = 64
RESERVED = frozenset(
    {"eid", "eids", "reply", "error", "code", "reject", "retry", "after_s", "traceback"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """What to do with the rows that a batch returns for a table. Made by insert, upsert and add.

    into: the table, perhaps with its schema in front, quoted as in SQL; None: the name that
    the change has in `tables=`.
    """

    mode: str
    keys: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    into: str | None = None

    def check(self, name: str, columns: Sequence[str]) -> None:
        """Checks the columns of the rows against the change. Raises InvalidValue."""
        if not 1 <= len(columns) <= COLUMNS_MAX:
            raise InvalidValue(f"table {name!r}: rows have 1 to {COLUMNS_MAX} columns")
        missing = [key for key in (*self.keys, *self.added) if key not in columns]
        if missing:
            raise InvalidValue(f"table {name!r}: the rows have no column {missing[0]!r}")
        if self.mode == "add" and set(columns) != {*self.keys, *self.added}:
            surplus = sorted(set(columns) - {*self.keys, *self.added})
            raise InvalidValue(
                f"table {name!r}: add() says nothing of column {surplus[0]!r}: name it, or drop it"
            )

    def for_sql(self, name: str, number: int, columns: Sequence[str]) -> dict[str, Any]:
        """Returns the change in the form of the commit function."""
        return {
            "no": number,
            "table": self.into or name,
            "mode": self.mode,
            "columns": list(columns),
            "keys": list(self.keys),
            "add": list(self.added),
        }


def insert(*, into: str | None = None) -> TableChange:
    """Inserts the rows. If a constraint refuses one, its request is aborted."""
    return TableChange(mode="insert", into=into)


def upsert(*keys: str, into: str | None = None) -> TableChange:
    """Inserts the rows, or replaces those with the same keys, which are unique in the table.

    Among rows of a batch with the same keys, that of the request enqueued last wins.
    Raises InvalidValue without keys.
    """
    if not keys:
        raise InvalidValue("upsert() needs the key columns: upsert('customer')")
    return TableChange(mode="upsert", keys=keys, into=into)


def add(*columns: str, keys: Sequence[str] | None = None, into: str | None = None) -> TableChange:
    """Adds numbers to those in the table: for "customer", "cents", the cents by customer.

    keys: the key columns, unique in the table and not null; None: the first of `columns`. One
    row for each request: the commit sums them over the requests that it removes, so one that
    was killed or taken over meanwhile is in no sum. Raises InvalidValue.
    """
    chosen = tuple(columns[:1] if keys is None else keys)
    added = tuple(name for name in columns if name not in chosen)
    if not chosen or not added:
        raise InvalidValue("add() needs a key column and one to add: add('customer', 'cents')")
    return TableChange(mode="add", keys=chosen, added=added, into=into)


def check_tables(tables: Mapping[str, TableChange]) -> dict[str, TableChange]:
    """Returns the changes by column name. Raises InvalidValue for a name that means a reply."""
    for name in tables:
        if name in RESERVED:
            raise InvalidValue(
                f"a table cannot be called {name!r} here: give it another, with into="
            )
    return dict(tables)
