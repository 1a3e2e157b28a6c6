"""From Arrow to a user's table: exact values, insert, upsert and add, names, refusals."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import REPLIES, ROWS
from onceq.model.spark_ops import SparkAttempt, SparkCheckTable
from onceq.spark import TableChange, add, insert, upsert
from onceq.spark.serve import encode
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name)
    yield made
    made.close()


def apply(
    repository: Repository, change: TableChange, rows: Sequence[Any], kind: pa.DataType
) -> None:
    """Send a request for each entry of `rows`, and commit them with these rows of one table."""
    life = Life(repository)
    first = repository.ask("select count(*) from {}.element")[0][0]
    repository.send(len(rows), first=first)
    requests = life.plan(life.claim())
    eids = pa.array([str(request.eid) for request in requests])
    replies = pa.array([b"\x00\xff,\"'\\"] * len(requests), pa.binary())
    columns = {"eid": eids, "reply": replies, "t": pa.array(rows, kind)}
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    who = {"server_id": life.who.server_id, "epoch": life.who.epoch}
    with life.driver.staging(SparkAttempt(**who, query_id=f"q{first}", batch_id=0)) as stage:
        stage.copy(REPLIES, *encode.replies(batch, stage.attempt))
        for lines in encode.table_rows(batch, stage.attempt, ["t"]):
            stage.copy(ROWS, *lines)
    struct = kind.value_type if pa.types.is_list(kind) else kind
    life.tables = [change.for_sql("t", 1, [field.name for field in struct])]
    life.commit(([stage.attempt], stage.rows), query=f"q{first}")
    life.end()


EXACT = pa.struct(
    [
        ("money", pa.decimal128(38, 18)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("ratio", pa.float64()),
        ("more", pa.list_(pa.int64())),
        ("big", pa.int64()),
    ]
)


def test_every_value_arrives_exactly(repository: Repository) -> None:
    repository.do(
        "create table {}.exact (money numeric(38, 18), at timestamptz, day date, raw bytea,"
        ' "text" text, flag boolean, ratio double precision, more jsonb, big bigint)'
    )
    moment = datetime(2026, 3, 29, 1, 59, 59, 999999, timezone(timedelta(hours=2)))
    full = {
        "money": Decimal("-12345678901234567890.123456789012345678"),
        "at": moment,
        "day": date(1, 2, 3),
        "raw": bytes(range(256)),
        "text": 'a "quoted", \\. back\\slash\nline é€😀 \\N',
        "flag": True,
        "ratio": 0.1 + 0.2,
        "more": [1, None, 3],
        "big": 2**63 - 1,
    }
    empty = {"text": "", "money": Decimal(0)}
    apply(repository, insert(into=f"{repository.name}.exact"), [full, empty], EXACT)
    found = repository.ask("select * from {}.exact order by day nulls last")
    assert found[0] == tuple(full.values())
    assert found[1][:6] == (Decimal(0), None, None, None, "", None)
    assert set(repository.replies().values()) == {("done", b"\x00\xff,\"'\\")}


NESTED = pa.struct(
    [
        ("map", pa.map_(pa.string(), pa.list_(pa.float64()))),
        ("numbers", pa.map_(pa.int64(), pa.decimal128(10, 2))),
        ("inner", pa.struct([("money", pa.decimal128(38, 18)), ("raw", pa.binary())])),
        ("days", pa.list_(pa.map_(pa.date32(), pa.bool_()))),
    ]
)


def test_what_is_nested_is_the_json_that_postgresql_makes_of_it(repository: Repository) -> None:
    names = ("map", "numbers", "inner", "days")
    repository.do("create table {}.nested (map jsonb, numbers jsonb, inner_ jsonb, days jsonb)")
    repository.do('alter table {}.nested rename inner_ to "inner"')
    full = {
        "map": [("a", [0.1, float("nan"), None]), ('b"', [float("inf"), float("-inf")])],
        "numbers": [(1, Decimal("1.10")), (-(2**63), Decimal("-0.05"))],
        "inner": {"money": Decimal("0.100000000000000001"), "raw": b"\x00\xff"},
        "days": [[(date(2026, 2, 3), True)], None, []],
    }
    apply(repository, insert(into=f"{repository.name}.nested"), [full, {}], NESTED)
    wanted = """select jsonb_build_object('a', jsonb_build_array(0.1, 'NaN'::float8, null),
            'b"', jsonb_build_array('Infinity'::float8, '-Infinity'::float8)),
        jsonb_build_object(1, 1.10, -9223372036854775808, -0.05),
        jsonb_build_object('money', 0.100000000000000001, 'raw', '\\x00ff'::bytea),
        jsonb_build_array(jsonb_build_object('2026-02-03'::date, true), null,
            jsonb_build_object())"""
    texts = ", ".join(f'"{name}"::text' for name in names)
    found = repository.ask(f"select {texts} from {{}}.nested order by map nulls last")
    row = repository.ask(
        f'with x ({", ".join(names[:2])}, "inner", days) as ({wanted}) select {texts} from x'
    )
    assert found == [row[0], (None, None, None, None)]


NAMED = pa.struct([("Odd Name", pa.string()), ('n"; drop', pa.int64())])


def test_names_are_quoted_and_may_have_a_schema(repository: Repository) -> None:
    repository.do('create table {}."Odd ""Table" ("Odd Name" text, "n""; drop" int)')
    into = f'{repository.name}."Odd ""Table"'
    rows = [[{"Odd Name": "x'", 'n"; drop': 1}, {"Odd Name": "y", 'n"; drop': 2}], None, []]
    apply(repository, insert(into=into), rows, pa.list_(NAMED))
    found = repository.ask('select * from {}."Odd ""Table" order by 1')
    assert found == [("x'", 1), ("y", 2)]


PRICE = pa.struct([("item", pa.string()), ("price", pa.decimal128(10, 2)), ("by", pa.string())])


def test_of_an_upsert_the_request_sent_last_wins(repository: Repository) -> None:
    repository.do("create table {}.price (item text primary key, price numeric, by varchar(3))")
    change = upsert("item", into=f"{repository.name}.price")
    rows = [
        {"item": "a", "price": Decimal("1.10"), "by": "x"},
        {"item": "b", "price": Decimal("2.20"), "by": "y"},
        {"item": "a", "price": Decimal("3.30"), "by": "z"},
    ]
    apply(repository, change, rows, PRICE)
    apply(repository, change, [{"item": "b", "price": None, "by": "w"}], PRICE)
    found = repository.ask("select * from {}.price order by item")
    assert found == [("a", Decimal("3.30"), "z"), ("b", None, "w")]
    with pytest.raises(errors.StatementRefused, match="too long"):
        apply(repository, change, [{"item": "c", "price": None, "by": "long"}], PRICE)
    assert repository.seqs_left() == 1


def test_sums_are_exact(repository: Repository) -> None:
    repository.do("create table {}.total (by text, item text, price numeric, unique (by, item))")
    change = add("by", "item", "price", keys=["by", "item"], into=f"{repository.name}.total")
    rows = [{"item": "a", "price": Decimal("0.10"), "by": "x"}] * 30
    apply(repository, change, rows, PRICE)
    apply(repository, change, rows[:1], PRICE)
    assert repository.ask("select * from {}.total") == [("x", "a", Decimal("3.10"))]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (insert(into="nowhere"), errors.SchemaMissing, "no table nowhere"),
        (insert(into="pg_class; drop"), errors.SchemaMissing, "no table pg_class; drop"),
        (insert(into="{}.booked"), errors.StatementRefused, 'no column "price"'),
    ],
)
def test_tables_are_checked(
    repository: Repository, change: TableChange, error: type[Exception], says: str
) -> None:
    spec = change.for_sql("t", 1, ["rid", "price"])
    spec["table"] = spec["table"].replace("{}", repository.name)
    with pytest.raises(error, match=says):
        repository.driver.perform(SparkCheckTable(table=spec))


def test_changes_are_checked_before_anything_runs() -> None:
    with pytest.raises(errors.InvalidValue, match="needs the key columns"):
        upsert()
    with pytest.raises(errors.InvalidValue, match="needs a key column and one to add"):
        add("customer")
    with pytest.raises(errors.InvalidValue, match="no column 'customer'"):
        upsert("customer").check("t", ["cents"])
    with pytest.raises(errors.InvalidValue, match="says nothing of column 'note'"):
        add("customer", "cents").check("t", ["customer", "cents", "note"])
    with pytest.raises(errors.InvalidValue, match="1 to 64 columns"):
        insert().check("t", [f"c{n}" for n in range(65)])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.duration("us"), timedelta(1)),
        (pa.list_(pa.duration("us")), [timedelta(1)]),
        (pa.map_(pa.string(), pa.struct([("x", pa.duration("us"))])), [("a", {"x": None})]),
    ],
)
def test_an_interval_is_refused(kind: pa.DataType, value: Any) -> None:
    rows = pa.array([{"wait": value}], pa.struct([("wait", kind)]))
    batch = pa.record_batch([pa.array(["e"]), rows], names=["eid", "t"])
    with pytest.raises(errors.InvalidValue, match=r"t\.wait: an interval"):
        list(encode.table_rows(batch, 1, ["t"]))


def test_how_long_a_retry_waits_is_staged() -> None:
    batch = pa.record_batch(
        [pa.array(["a", "b"]), pa.array([True, True]), pa.array([1.5, None])],
        names=["eid", "retry", "after_s"],
    )
    names, lines = encode.replies(batch, 1)
    assert names == ("attempt", "eid", "error", "retry", "after_s")
    ends = [line.rsplit(",", 1)[1] for line in bytes(lines).decode().splitlines()]
    assert ends == ['"1.5"', ""]


@pytest.mark.parametrize("flag", ["reject", "retry"])
def test_a_flag_without_an_error_aborts_too(flag: str) -> None:
    batch = pa.record_batch(
        [pa.array(["a", "b", "c"]), pa.array([b"x"] * 3), pa.array([True, False, None])],
        names=["eid", "reply", flag],
    )
    names, lines = encode.replies(batch, 1)
    assert names == ("attempt", "eid", "reply", "error", flag)
    said = f'"the batch function said {flag}, and no error"'
    assert [line.split(",", 3)[3] for line in bytes(lines).decode().splitlines()] == [
        f'{said},"true"',
        ',"false"',
        ",",
    ]
    own = batch.append_column("error", pa.array(["own", None, None], pa.string()))
    assert b'"own","true"' in bytes(encode.replies(own, 1)[1])


def test_a_reply_beyond_the_limit_is_an_error_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encode, "REPLY_BYTES_MAX", 3)
    batch = pa.record_batch(
        [pa.array(["a", "b", "c", "d"]), pa.array([b"xyz", b"wxyz", None, b"vwxyz"], pa.binary())],
        names=["eid", "reply"],
    )
    names, lines = encode.replies(batch, 1)
    assert names == ("attempt", "eid", "reply", "error", "code")
    (a, b, c, d) = bytes(lines).decode().splitlines()
    assert (a, c) == ('1,"a","\\x78797a",,', '1,"c",,,')
    for line, size in ((b, 4), (d, 5)):
        assert f"the reply has {size} bytes, and that of a Spark server at most 3: put" in line
        assert line.endswith(',"TooLarge"')
    own = batch.append_column("error", pa.array([None, "own", None, None], pa.string()))
    assert b'"b",,"own",\n' in bytes(encode.replies(own, 1)[1])


def test_a_batch_rings_the_client_that_waits_for_its_replies(repository: Repository) -> None:
    life = Life(repository)
    requests = repository.send(3)
    who, name = repository.client.registrant_id, repository.name
    asleep = f"pg_advisory_lock_shared('{name}.registrant_pkey'::regclass::oid::integer, {who})"
    with connect(repository.conninfo) as client:
        client.execute(f"listen {name}".encode())
        client.execute(f"select {asleep}".encode())
        client.execute(f"update {name}.registrant set bell = 'there 7 {name} 00'".encode())
        assert life.commit(life.stage(life.plan(life.claim()))).done == len(requests)
        heard = list(client.notifies(timeout=60.0, stop_after=1))
    assert [one.payload for one in heard] == ["7"]
    life.end()
