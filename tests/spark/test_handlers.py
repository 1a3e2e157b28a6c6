"""A function for a request, and one for an Arrow batch, as what a Spark server runs."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pytest

from onceq import errors, telemetry
from onceq.model.queue import Queue
from onceq.spark import each, vectorised
from onceq.spark.serve.answering import COLUMNS, Answers
from onceq.spark.serve.handlers import batch_function
from tests.events import emits
from tests.spark.handled import RETURNS, Booked, Total, book_arrow, book_one
from tests.spark.serving import ORDERS, check_all_done
from tests.spark.spark_parts import Repository, make_repository
from tests.spark.test_serving import serve_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.events import Events

pytestmark = pytest.mark.timeout(400)
ROWS: dict[str, type[Any]] = {"booked": Booked, "totals": Total}


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


@emits(telemetry.Aborted)
def test_a_function_for_a_request(
    spark: SparkSession, repository: Repository, tmp_path: Path, events: Events
) -> None:
    rids = repository.send(5)
    for number, cents in enumerate([-1, -3, -4, -5, -500]):
        repository.send(1, first=10 + number, cents=cents)
    batch = each(book_one, rows=ROWS)
    assert serve_once(spark, repository, tmp_path, batch=batch) == {}
    replies = repository.replies()
    assert {rid: replies.pop(rid) for rid in rids} == {
        f"r{n}": ("done", b'{"number":%d}' % n) for n in range(5)
    }
    assert replies.pop("r10") == ("done", b'{"number":-1}')
    assert {rid: outcome for rid, (outcome, _) in replies.items()} == dict.fromkeys(
        ["r11", "r12", "r13", "r14"], "failed"
    )
    held = repository.ask("select rid, aborts, code from {}.element where role = 'failed'")
    assert sorted(held) == [
        ("r11", 2, "InvalidReply"),
        ("r12", 2, "InvalidValue"),
        ("r13", 2, "InvalidValue"),
        ("r14", 1, "Reject"),
    ]
    check_told(events)
    where = "select code, traceback from {}.attempt where traceback is not null"
    kept = dict(repository.ask(where))
    assert set(kept) == {"ZeroDivisionError", "Reject"}
    assert 'raise ZeroDivisionError("only once")' in kept["ZeroDivisionError"]
    assert "/onceq/" not in kept["Reject"].replace("/tests/", "")
    assert [row[0] for row in repository.booked()] == ["r10", *rids]
    assert repository.totals() == {"a0": 0 + 3, "a1": 1 + 4 - 1, "a2": 2}


def check_told(events: Events) -> None:
    """Fails unless each abort was logged once, with its number and its fate."""
    told = [
        (one["rid"], one["attempt"], one["code"], one["charge"], one["fate"])
        for one in events.of(telemetry.Aborted)
    ]
    twice = [("r11", "InvalidReply"), ("r12", "InvalidValue"), ("r13", "InvalidValue")]
    assert sorted(told) == sorted(
        [
            ("r10", 1, "ZeroDivisionError", "charge", "returned"),
            *((rid, 1, code, "charge", "returned") for rid, code in twice),
            *((rid, 2, code, "charge", "failed") for rid, code in twice),
            ("r14", 1, "Reject", "reject", "failed"),
        ]
    )


def test_a_function_for_an_arrow_batch(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(5)
    batch = vectorised(book_arrow, returns=RETURNS)
    assert serve_once(spark, repository, tmp_path, batch=batch) == {}
    check_all_done(repository, rids)


def asked(body: bytes, **changed: Any) -> pa.RecordBatch:
    """Return a batch of two requests, the second with this body."""
    good: dict[str, Any] = dict.fromkeys(COLUMNS) | {
        "eid": str(uuid4()),
        "rid": "r0",
        "registrant": "till",
        "aborts": 0,
        "enqueued_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "properties": '{"tint":"red"}',
        "body": b'{"customer":"a","cents":7}',
    }
    return pa.RecordBatch.from_pylist([good, good | {"rid": "r1", "body": body} | changed])


def answered(function: Any, body: bytes = b"{}", **changed: Any) -> tuple[Any, Any]:
    """Return the answers to two requests, the first as it should be."""
    answers = Answers(ORDERS, function, ROWS).of(asked(body, **changed))
    first, second = answers.to_pylist()
    assert first["error"] is None
    return first, second


def test_what_is_not_of_the_type_fails_alone() -> None:
    _, second = answered(book_one, b'{"customer":1}')
    assert second["code"] == "InvalidValue"
    assert "the request in queue 'orders' is not" in second["error"]
    _, second = answered(book_one, b'{"customer":"a","cents":-4}')
    assert second["error"].startswith("a row for table 'booked': ")
    assert (second["reply"], second["booked"]) == (None, None)


def test_what_was_raised_says_what_becomes_of_the_request() -> None:
    for cents, code, reject, retry in (
        (-1, "ZeroDivisionError", None, None),
        (-2, "Retry", None, True),
        (-101, "Reject", True, None),
    ):
        _, second = answered(book_one, b'{"customer":"a","cents":%d}' % cents)
        assert (second["code"], second["reject"], second["retry"]) == (code, reject, retry)
        assert second["error"] in ("only once", "away", "negative")
        assert second["after_s"] == (2.5 if code == "Retry" else None)


def test_an_exception_may_say_anything() -> None:
    def complaining(order: Any, context: Any) -> Any:
        if context.rid == "r1":
            raise ValueError("nul \0, half a pair \ud800, " + "long " * 100_000)
        return {"number": order.cents}

    _, second = answered(complaining, b'{"customer":"a","cents":1}')
    assert second["error"].startswith("nul \\0, half a pair \\ud800, long")
    assert len(second["error"]) < 100_000


def test_a_datagram_needs_no_reply() -> None:
    def silent(order: Any, context: Any) -> Any:
        assert context.properties == {"tint": "red"}
        return None if context.registrant is None else {"number": order.cents}

    body = b'{"customer":"b","cents":1}'
    first, second = answered(silent, body, registrant=None)
    assert (first["reply"], second["reply"], second["error"]) == (b'{"number":7}', None, None)
    _, second = answered(lambda o, c: None if c.rid == "r1" else {"number": o.cents}, body)
    assert second["code"] == "InvalidReply"


class Sparse(msgspec.Struct, omit_defaults=True):
    cents: int = 0


class Strange(msgspec.Struct):
    cents: int


Strange.__module__ = "__main__"


@pytest.mark.parametrize(
    ("batch", "queue", "says"),
    [
        ("book", ORDERS, "not str"),
        (each(book_one, rows={"t": Sparse}), ORDERS, "type Sparse omits its defaults"),
        (each(book_one), Queue("q", list[Strange], bytes), "type Strange is defined in the prog"),
    ],
)
def test_what_cannot_serve_is_refused(batch: Any, queue: Any, says: str) -> None:
    with pytest.raises(errors.InvalidValue, match=says):
        batch_function(batch, queue)


async def sleepy(order: Any, context: Any) -> Any:
    return {"number": order.cents, "rid": context.rid}


@pytest.mark.parametrize("function", [sleepy, "book"])
def test_what_spark_cannot_call_is_refused(function: Any) -> None:
    with pytest.raises(errors.InvalidValue, match=r"each\(\): (sleepy is async|a handler is a)"):
        each(function)
    with pytest.raises(errors.InvalidValue, match="a function that is not async"):
        vectorised(function, returns=RETURNS)


def test_rows_that_spark_has_no_type_for_are_refused() -> None:
    with pytest.raises(errors.InvalidValue, match="rows of table 't'"):
        Answers(ORDERS, book_one, {"t": int})
