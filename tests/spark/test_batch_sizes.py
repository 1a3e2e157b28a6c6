"""What becomes of the rows of requests is the same wherever batches end."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from onceq.engine.perform.spark_driver import REPLIES, ROWS
from onceq.errors import InvalidValue, StatementRefused
from onceq.model.spark_ops import SparkAttempt, SparkBlame
from onceq.spark import TableChange, add, insert, upsert
from onceq.spark.serve import encode
from tests.spark.spark_life import Life
from tests.spark.spark_parts import make_repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.spark_parts import Repository

REQUESTS = 40
ROUNDS_MAX = 10
REFUSALS = (InvalidValue, StatementRefused)
ROW = pa.struct(
    [("key", pa.string()), ("part", pa.int64()), ("n", pa.decimal128(20, 2)), ("more", pa.string())]
)
CHANGES: dict[str, Callable[[str], TableChange]] = {
    "insert": lambda into: insert(into=into),
    "upsert": lambda into: upsert("key", "part", into=into),
    "add": lambda into: add("key", "part", "n", keys=["key", "part"], into=into),
}


def _rows(chance: random.Random, mode: str) -> list[list[dict[str, Any]]]:
    """Returns the rows of each request: some with a null key, some with keys of one another."""
    return [
        [_row(chance, mode) for _ in range(chance.choice([0, 1, 1, 2, 3]))] for _ in range(REQUESTS)
    ]


def _row(chance: random.Random, mode: str) -> dict[str, Any]:
    row = {
        "key": chance.choice(["a", "b", "c", None]),
        "part": chance.choice([1, 2, 3, 4, None]),
        "n": chance.choice([*map(Decimal, ("1.10", "2.20", "-5", "99999.99")), None, None]),
    }
    return row if mode == "add" else {**row, "more": chance.choice(["x", "y", "z", "too long"])}


def _serve(
    repository: Repository, change: TableChange, rows: list[Any], kind: Any, size: int
) -> None:
    """Serves all requests in batches of a size, as the sink does."""
    life = Life(repository)
    group = 0
    for batch in range(0, REQUESTS, size):
        group = life.claim(start=group, n=size)
        requests = life.plan(group)
        columns = {
            "eid": pa.array([str(one.eid) for one in requests]),
            "reply": pa.array([b"ok"] * len(requests), pa.binary()),
            "t": pa.array(rows[batch : batch + len(requests)], pa.list_(kind)),
        }
        lines = pa.record_batch(list(columns.values()), names=list(columns))
        who = {"server_id": life.who.server_id, "epoch": life.who.epoch}
        with life.driver.staging(SparkAttempt(**who, query_id="q", batch_id=batch)) as stage:
            stage.copy(REPLIES, *encode.replies(lines, stage.attempt))
            for some in encode.table_rows(lines, stage.attempt, ["t"]):
                stage.copy(ROWS, *some)
        life.tables = [change.for_sql("t", 1, [field.name for field in kind])]
        for _ in range(ROUNDS_MAX):
            try:
                life.commit(([stage.attempt], stage.rows), batch)
            except REFUSALS:
                blame = SparkBlame(**who, attempts=[stage.attempt], tables=life.tables)
                assert life.driver.perform(blame)
            else:
                break
    life.end()


def _outcome(
    conninfo: str, name: str, mode: str, rows: list[Any], size: int
) -> tuple[list[Any], dict[str, Any]]:
    repository = make_repository(conninfo, name, abort_limit=1)
    try:
        unique = "" if mode == "insert" else ", unique (key, part)"
        repository.do(
            f"create table {{}}.t (key text, part int, n numeric(6, 2), more varchar(3){unique})"
        )
        repository.send(REQUESTS)
        kind = pa.struct([field for field in ROW if mode != "add" or field.name != "more"])
        change = CHANGES[mode](f"{name}.t")
        _serve(repository, change, rows, kind, size)
        table = repository.ask("select * from {}.t order by 1, 2, 3, 4")
        return table, {rid: outcome for rid, (outcome, _) in repository.replies().items()}
    finally:
        repository.do("drop schema {} cascade")
        repository.close()


@pytest.mark.parametrize("mode", CHANGES)
def test_it_does_not_depend_on_where_batches_end(
    conninfo: str, repository_name: str, mode: str
) -> None:
    rows = _rows(random.Random(22), mode)
    one, seven, whole = (
        _outcome(conninfo, f"{repository_name}_{size}", mode, rows, size)
        for size in (1, 7, REQUESTS)
    )
    assert one == seven == whole
    table, outcomes = one
    assert table
    assert set(outcomes.values()) == {"done", "failed"}


def test_rows_that_have_no_order_fail_their_request_in_words(
    conninfo: str, repository_name: str
) -> None:
    null = [{"key": None, "part": 1, "n": None, "more": None}]
    same = [{"key": "a", "part": 1, "n": Decimal(n), "more": None} for n in (1, 2)]
    rows = [null, same, [{**same[0], "part": 2}], *([] for _ in range(REQUESTS - 3))]
    table, outcomes = _outcome(conninfo, repository_name, "upsert", rows, REQUESTS)
    assert table == [("a", 2, Decimal(1), None)]
    assert [outcomes[f"r{n}"] for n in range(3)] == ["failed", "failed", "done"]
