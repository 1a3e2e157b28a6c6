"""What one of the user's tables refuses: of one request, or of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as st

from onceq import errors
from onceq.model.spark_ops import SparkCheckTable
from onceq.spark import insert
from onceq.spark.serve.schema import samples
from tests.spark.serving import make_server
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)

GUARD = """
create function {}.guard() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' and new.cents = %s then
        raise exception 'not seven, says onceq.errors.Fenced' using errcode = '%s';
    end if;
    return new;
end $$;
create trigger guard before insert on {}.booked for each row execute function {}.guard()
"""


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def serve_once(
    spark: SparkSession, repository: Repository, faults: Path, **options: Any
) -> dict[str, int]:
    server = make_server(repository.name, faults, **options)
    where: dict[str, Any] = {"repository": repository.name, "spark": spark, "once": True}
    server.run(repository.conninfo, checkpoint=faults / "checkpoint", **where)
    return dict(server.statistics().failures)


@pytest.mark.parametrize("sqlstate", ["42501", "42P01"])
def test_one_row_refused_as_if_the_schema_were_wrong_fails_alone(
    spark: SparkSession, repository: Repository, tmp_path: Path, sqlstate: str
) -> None:
    repository.do(GUARD.replace("%s", "7", 1).replace("%s", sqlstate))
    rids = repository.send(4, first=5)
    serve_once(spark, repository, tmp_path)
    outcomes = {rid: outcome for rid, (outcome, _) in repository.replies().items()}
    assert outcomes == dict.fromkeys(rids, "done") | {"r7": "failed"}
    assert repository.ask("select rid, aborts from {}.history where aborts > 0") == [("r7", 2)]
    assert repository.seqs_left() == 0


def test_what_is_refused_without_a_row_too_stops_the_server(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)
    repository.do("alter table {}.totals drop constraint totals_pkey")
    with pytest.raises(errors.StatementRefused, match="no unique or exclusion constraint"):
        serve_once(spark, repository, tmp_path)
    assert repository.ask("select aborts, claimed_by from {}.element") == [(0, None)]


def test_a_column_of_another_type_is_found_before_the_first_batch(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)
    repository.do("alter table {}.booked alter cents type date using null")
    with pytest.raises(errors.StatementRefused, match=r'column "cents" of table .* is date'):
        serve_once(spark, repository, tmp_path)
    assert repository.ask("select aborts, claimed_by from {}.element") == [(0, None)]


FITS = {
    "boolean": ("boolean", "text"),
    "bigint": ("bigint", "numeric", "text", "double precision", "high", "jsonb"),
    "double": ("double precision", "bigint", "text"),
    "decimal(9,2)": ("numeric", "double precision", "text"),
    "timestamp": ("timestamptz", "timestamp", "date", "text"),
    "date": ("date", "timestamptz", "text"),
    "binary": ("bytea", "text"),
    "array<int>": ("jsonb", "json", "text"),
    "struct<a:int>": ("jsonb", "json", "text"),
    "map<string,int>": ("jsonb", "text"),
    "string": ("text", "uuid", "bigint", "jsonb", "date", "varchar(3)"),
}
MISFITS = {
    "boolean": ("bigint", "date"),
    "bigint": ("boolean", "date", "uuid", "bigint[]"),
    "double": ("boolean", "timestamptz"),
    "decimal(9,2)": ("bigint",),
    "timestamp": ("bigint", "numeric"),
    "date": ("integer", "uuid"),
    "binary": ("jsonb", "bigint"),
    "array<int>": ("bigint",),
    "struct<a:int>": ("bigint", "bytea[]"),
    "map<string,int>": ("numeric",),
}


@pytest.mark.usefixtures("spark")
def test_which_types_fit_which_columns(repository: Repository) -> None:
    repository.do("create domain {}.high as bigint check (value > 1000)")

    def is_taken(kind: str, column: str) -> bool:
        column = f"{repository.name}.high" if column == "high" else column
        repository.do("drop table if exists {}.t; create table {}.t (c " + column + ")")
        schema = st.StructType().add("t", st._parse_datatype_string(f"struct<c:{kind}>"))
        spec = insert(into=f"{repository.name}.t").for_sql("t", 1, ["c"])
        spec["samples"] = samples(schema, "t", ["c"])
        try:
            repository.driver.perform(SparkCheckTable(table=spec))
        except errors.StatementRefused:
            return False
        return True

    assert [(k, c) for k, some in FITS.items() for c in some if not is_taken(k, c)] == []
    assert [(k, c) for k, some in MISFITS.items() for c in some if is_taken(k, c)] == []


def test_what_a_table_refuses_fails_in_its_words_within_one_life(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.do("alter table {}.booked add constraint low check (cents < 90)")
    rids = repository.send(20, first=80)
    assert serve_once(spark, repository, tmp_path) == {}
    outcomes = {rid: outcome for rid, (outcome, _) in repository.replies().items()}
    assert outcomes == dict.fromkeys(rids[:10], "done") | dict.fromkeys(rids[10:], "failed")
    failed = repository.ask("select aborts, code, error from {}.element where role = 'failed'")
    said = 'new row for relation "booked" violates check constraint "low" (SQLSTATE 23514)'
    assert set(failed) == {(2, "StatementRefused", said)}
    assert sum(repository.totals().values()) == sum(range(80, 90))


def test_numbers_that_overflow_together_are_taken_as_far_as_they_go(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    repository.do("alter table {}.totals alter cents type bigint")
    most = 2**63 - 1
    rids = repository.send(20, customer="a", cents=most // 10)
    assert serve_once(spark, repository, tmp_path) == {}
    outcomes = [repository.replies()[rid][0] for rid in rids]
    assert outcomes == ["done"] * 10 + ["failed"] * 10
    assert repository.totals() == {"a": most // 10 * 10}
    texts = repository.ask("select distinct error from {}.element where role = 'failed'")
    assert texts == [("bigint out of range (SQLSTATE 22003)",)]
