"""Replies as lines: what each format makes of them."""

from __future__ import annotations

import csv
import datetime as dt
import io
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceq.files.replies import Csv, JsonLines, Rows, as_json, row
from onceq.model.element import Element, RequestOutcome


def reply(body: bytes, **changes: Any) -> Element:
    values: dict[str, Any] = {
        "seq": 1,
        "eid": uuid.UUID(int=1),
        "rid": "r",
        "body": body,
        "role": "reply",
        "queue_id": 1,
        "lane": 5,
        "priority": 4,
        "aborts": 1,
        "enqueued_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "owes_reply": False,
        "outcome": RequestOutcome.DONE,
    }
    return Element(**{**values, **changes})


FAILED = reply(b"", outcome=RequestOutcome.FAILED, aborts=3, code="E", error='a,\n"b"')


def test_json_lines_hold_the_reply_as_it_is() -> None:
    lines = JsonLines().lines([reply(b'{"a":\n 1.10}'), reply(b"\xff"), FAILED]).splitlines()
    assert lines[0].endswith(b'"reply":{"a":  1.10}}')
    assert msgspec.json.decode(lines[0])["attempts"] == 2
    assert msgspec.json.decode(lines[1])["reply_base64"] == "/w=="
    failed = msgspec.json.decode(lines[2])
    assert (failed["outcome"], failed["attempts"], failed["reply"]) == ("failed", 3, None)


def test_csv_with_and_without_fields() -> None:
    fields = Csv(("b", "a", "none"))
    text = fields.header() + fields.lines([reply(b'{"a":1.10,"b":"x,y"}'), FAILED, reply(b"[1]")])
    read = list(csv.reader(io.StringIO(text.decode(), newline="")))
    assert read[0] == ["rid", "outcome", "attempts", "code", "error", "b", "a", "none"]
    assert read[1] == ["r", "done", "2", "", "", "x,y", "1.10", ""]
    assert read[2] == ["r", "failed", "3", "E", 'a,\n"b"', "", "", ""]
    assert read[3][5:] == ["", "", ""]
    whole = Csv(())
    assert whole.header() == b"rid,outcome,attempts,code,error,reply\n"
    assert whole.lines([reply(b"plain")]) == b"r,done,2,,,plain\n"
    assert whole.lines([reply(b"\xff")]) == b"r,done,2,,,base64:/w==\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b" 1 ", b"1"), (b'{"a":\r\n1}', b'{"a":  1}'), (b"", None), (b"{", None), (b'"\xff"', None)],
)
def test_json_on_one_line(body: bytes, expected: bytes | None) -> None:
    assert as_json(body) == expected


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(st.dictionaries(st.sampled_from(["a", "b"]), JSON_VALUES), st.binary(max_size=20))
def test_every_reply_is_one_line_and_comes_back(values: dict[str, Any], noise: bytes) -> None:
    body = msgspec.json.encode(values)
    for line in (JsonLines().lines([reply(body)]), Rows(("a",)).lines([reply(noise)])):
        assert line.count(b"\n") == 1
    assert msgspec.json.decode(JsonLines().lines([reply(body)]))["reply"] == values
    text = Csv(("a",)).lines([reply(body)]).decode()
    (fields,) = csv.reader(io.StringIO(text, newline=""))
    assert fields[5] == (row(reply(body), ("a",))["a"] or "")
