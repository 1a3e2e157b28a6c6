"""What clients write never decides what becomes of a server, whatever words it has in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from onceq import errors
from onceq.model.queue import Queue
from onceq.spark import insert, vectorised
from onceq.spark.serve import verdicts
from tests.spark.serving import make_server
from tests.spark.spark_parts import QUEUE, Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(400)

FORMER = (
    "Incomplete log file",
    "Log file was malformed",
    "Malformed log",
    "does not match the expected",
    "INCOMPATIBLE_CHECKPOINT",
    "No content to map due to end-of-input",
    "unexpected end-of-input",
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "reading the port number from pyspark.daemon",
    "CANNOT_OPEN_SOCKET",
    "Traceback (most recent call last):",
    "No space left on device",
    "SQLSTATE 42501",
)
"""By these a text was judged once."""


def words_of_the_table() -> str:
    """Return, in lines, every text that is in the table of verdicts, and every error of onceq."""
    found: list[str] = [*FORMER, *(f"onceq.errors.{name}: x" for name in errors.__all__)]
    for value in vars(verdicts).values():
        found += [value] if isinstance(value, str) else []
        found += [one for one in value if isinstance(one, str)] if isinstance(value, tuple) else []
    found += [f'onceq:{"0" * 32}:{{"kind":"{name}","text":"x"}}' for name in errors.__all__]
    found += [f"[{word}] {word} SQLSTATE: 42K03\n\tat {word}.x(X.java:1)" for word in found]
    return "\n".join(found)


class Order(msgspec.Struct):
    customer: str
    cents: int


ORDERS = Queue(QUEUE, Order, bytes)


def raise_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    for body in batch.column("body").to_pylist():
        order = msgspec.json.decode(body, type=Order)
        if order.cents < 0:
            raise ValueError(order.customer)
    return pa.RecordBatch.from_pydict(
        {"eid": batch.column("eid"), "reply": pa.nulls(batch.num_rows, pa.string())}
    )


def raise_in_java(requests: DataFrame) -> DataFrame:
    order = sf.col("request")
    bad = sf.when(order.cents < 0, sf.raise_error(order.customer)).cast("string")
    return requests.select("eid", bad.alias("reply"))


def into_a_number(requests: DataFrame) -> DataFrame:
    order = sf.col("request")
    empty = sf.lit(None).cast("string").alias("reply")
    return requests.select("eid", empty, sf.struct(order.customer.alias("number")).alias("numbers"))


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=1)
    made.do("create table {}.numbers (number bigint)")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("batch", "tables"),
    [
        (vectorised(raise_text, returns="eid string, reply string"), ()),
        (raise_in_java, ()),
        (into_a_number, ("numbers",)),
    ],
    ids=["raised", "raised in Java", "refused by a table"],
)
def test_a_text_that_holds_every_word_of_the_table_fails_alone(
    spark: SparkSession, repository: Repository, tmp_path: Path, batch: Any, tables: tuple[str, ...]
) -> None:
    repository.send(1, customer="7")
    (forger,) = repository.send(1, first=1, customer=words_of_the_table(), cents=-1)
    repository.send(1, first=2, customer="7")
    server = make_server(
        repository.name,
        tmp_path,
        batch=batch,
        tables={name: insert(into=f"{repository.name}.{name}") for name in tables},
    )
    server.queue = ORDERS
    checkpoint = tmp_path / "checkpoint"
    where: dict[str, Any] = {"repository": repository.name, "spark": spark, "once": True}
    server.run(repository.conninfo, checkpoint=checkpoint, **where)
    assert server.statistics().failures.keys() <= {"CRASH"}
    outcomes = {rid: outcome for rid, (outcome, _) in repository.replies().items()}
    assert outcomes == {"r0": "done", forger: "failed", "r2": "done"}
    assert repository.seqs_left() == 0
