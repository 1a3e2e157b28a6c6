"""What is not of the request's type fails alone, whatever form of handler Spark serves it by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from onceq import errors
from onceq.model import ops
from onceq.model.code_pages import JSON, JSON_OF_TEXTS
from onceq.model.queue import Queue
from onceq.spark import Server, each, vectorised
from tests.spark.faulty_source import book
from tests.spark.handled import RETURNS, Booked, Total, book_arrow, book_one
from tests.spark.spark_parts import QUEUE, Repository, make_repository
from tests.spark.test_serving import serve_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)
FORMS: dict[str, Any] = {
    "each": each(book_one, rows={"booked": Booked, "totals": Total}),
    "vectorised": vectorised(book_arrow, returns=RETURNS),
    "frames": book,
}
MISTYPED: dict[str, tuple[bytes, str]] = {
    "text": (b'{"customer":"ann","cents":"5"}', "at `$.cents`"),
    "word": (b'{"customer":"ann","cents":"oops"}', "at `$.cents`"),
    "fraction": (b'{"customer":"ann","cents":1.5}', "at `$.cents`"),
    "missing": (b'{"customer":"ann"}', "field `cents`"),
    "null": (b'{"customer":null,"cents":5}', "at `$.customer`"),
    "range": (b'{"customer":"ann","cents":9223372036854775808}', "at `$.cents`"),
    "no JSON": (b"hello", "malformed"),
    "empty": (b"", "truncated"),
    "array": (b'[{"customer":"ann","cents":5}]', "Expected `object`"),
}


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def send(repository: Repository, bodies: dict[str, bytes], first: int, content_type: str) -> None:
    op = ops.SendMany(
        who=repository.client.who,
        queue=QUEUE,
        rids=list(bodies),
        bodies=list(bodies.values()),
        send_no=first,
        ack=[],
        content_type=content_type,
    )
    repository.driver.perform(op)


@pytest.mark.parametrize("form", FORMS)
def test_a_mistyped_request_fails_alone_with_its_field_named(
    spark: SparkSession, repository: Repository, tmp_path: Path, form: str
) -> None:
    rids = repository.send(3)
    send(repository, {rid: body for rid, (body, _) in MISTYPED.items()}, 10, JSON)
    send(repository, {"csv": b'{"customer":"a9","cents":"9"}'}, 50, JSON_OF_TEXTS)
    send(repository, {"bad csv": b'{"customer":"a9","cents":"many"}'}, 60, JSON_OF_TEXTS)
    assert serve_once(spark, repository, tmp_path, batch=FORMS[form]) == {}
    replies = repository.replies()
    assert {rid for rid, (outcome, _) in replies.items() if outcome == "done"} == {*rids, "csv"}
    assert repository.booked() == [
        ("r0", "a0", 0),
        ("r1", "a1", 1),
        ("r2", "a2", 2),
        ("csv", "a9", 9),
    ]
    held = repository.ask("select rid, aborts, code, error from {}.element where role = 'failed'")
    found = {rid: (aborts, code, error) for rid, aborts, code, error in held}
    assert found.keys() == {*MISTYPED, "bad csv"}
    for rid, (aborts, code, error) in found.items():
        assert (aborts, code) == (2, "InvalidValue"), rid
        assert MISTYPED.get(rid, (b"", "at `$.cents`"))[1] in error


class Local(msgspec.Struct):
    cents: int


Local.__module__ = "__main__"


def test_a_type_that_workers_cannot_import_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inner(msgspec.Struct):
        cents: int

    monkeypatch.setattr("__main__.Local", Local, raising=False)
    for kind, says in ((Local, "of the program that was started"), (Inner, "top of a module")):
        with pytest.raises(errors.InvalidValue, match=says):
            Server(Queue("q", kind, bytes), batch=book)
