"""A relation that is read in slices of its blocks: each row once, however its table is made."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from onceq.engine.perform.spark_driver import Route
from onceq.spark.read.batch import NO_BLOCK, KeySlice, OnceqBatchReader, condition_of
from onceq.spark.read.reading import ReadingOptions
from onceq.spark.read.relations import TABLE_OF, relation_of

ROWS = 60_000
SLICES = 3
TABLES = {
    "plain": "create table {r}.noted (eid text)",
    "without a row": "create table {r}.noted (eid text)",
    "partitioned, its parts of different sizes": """
create table {r}.noted (eid text) partition by hash (eid);
create table {r}.noted_1 partition of {r}.noted for values with (modulus 2, remainder 1);
create table {r}.noted_2 partition of {r}.noted for values with (modulus 4, remainder 2);
create table {r}.noted_0 partition of {r}.noted for values with (modulus 4, remainder 0)
""",
    "inherited": """
create table {r}.noted (eid text);
create table {r}.noted_1 () inherits ({r}.noted);
create rule elsewhere as on insert to {r}.noted where new.eid > '3'
    do instead insert into {r}.noted_1 values (new.*)
""",
}
FILL = "insert into {r}.noted select n || repeat('x', 100) from generate_series(1, {rows}) n"


@pytest.fixture(params=TABLES)
def noted(request: pytest.FixtureRequest, conninfo: str, repository: str) -> int:
    """Makes a table of the user's; returns how many rows it has."""
    rows = 0 if request.param == "without a row" else ROWS
    text = f"{TABLES[request.param]}; {FILL}"
    with psycopg.connect(conninfo) as connection:
        connection.execute(text.format(r=repository, rows=rows).encode())
    return rows


def read(conninfo: str, repository: str, **options: Any) -> list[list[str]]:
    """Returns what each slice has."""
    route = Route(url="", conninfo=conninfo, repository=repository)
    table = f'{TABLE_OF}"{repository}"."noted"'
    given = ReadingOptions(route=route, read=table, partitions=SLICES, **options)
    reader = OnceqBatchReader(given, ["eid"])
    return [
        [eid for batch in reader.read(one) for eid in batch["eid"].to_pylist()]
        for one in reader.partitions()
    ]


def test_each_row_is_in_one_slice(conninfo: str, repository: str, noted: int) -> None:
    slices = read(conninfo, repository)
    every = [eid for one in slices for eid in one]
    assert len(every) == len(set(every)) == noted
    assert len(slices) == (SLICES if noted else 1)
    assert all(slices) or not noted


def test_a_slice_reads_its_blocks_alone(conninfo: str, repository: str) -> None:
    condition, values = condition_of(relation_of("redrives"), KeySlice(6, 8))
    query = f"explain select from {repository}.redrive d where {condition}"
    with psycopg.ClientCursor(psycopg.connect(conninfo)) as cursor:
        cursor.execute(query.encode(), values)
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.connection.close()
    assert "Tid Range Scan" in plan
    assert "(ctid >= '(7,0)'::tid) AND (ctid < '(9,0)'::tid)" in plan


def test_the_last_slice_has_what_stands_in_no_block() -> None:
    """The rows of a foreign table, as a part of the user's: their place is (4294967295,0)."""
    relation = relation_of("redrives")
    assert condition_of(relation, KeySlice(6, NO_BLOCK - 2))[1] == ["(7,0)", "(4294967294,0)"]
    assert condition_of(relation, KeySlice(6, NO_BLOCK)) == ("(d.ctid >= %s::tid)", ["(7,0)"])


def test_only_one_slice_has_no_end() -> None:
    route = Route(url="", conninfo="", repository="unused")
    beyond = ReadingOptions(route=route, read="redrives", since=0, until=2**34, partitions=4)
    cuts = OnceqBatchReader(beyond, ["old_eid"]).partitions()
    ends = [cut.until for cut in cuts if isinstance(cut, KeySlice)]
    assert (len(ends), ends[-1], max(ends[:-1]) < NO_BLOCK) == (4, NO_BLOCK, True)


@pytest.mark.parametrize("noted", ["plain"], indirect=True)
def test_numbers_that_no_block_has_are_no_error(conninfo: str, repository: str, noted: int) -> None:
    (first,) = read(conninfo, repository, since=-(10**17), until=0)
    assert 0 < len(first) < noted
    after = read(conninfo, repository, since=0, until=10**17)
    assert sum(map(len, after)) == noted - len(first)
