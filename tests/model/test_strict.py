"""One decoder decides what is of a request's type, strictly; the text of a CSV file it coerces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from onceq.errors import InvalidValue
from onceq.model.code_pages import JSON_OF_TEXTS
from onceq.model.queue import Queue


class Line(msgspec.Struct):
    item: str
    price: Decimal
    next: Line | None = None


class Order(msgspec.Struct):
    customer: str
    cents: int
    at: datetime | None = None
    lines: list[Line] = msgspec.field(name="LINES", default_factory=list[Line])
    stock: dict[str, int] | None = None
    either: int | str | Line = 0


@dataclass
class Plain:
    pair: tuple[int, str]
    late: int = None  # type: ignore[assignment] # as people write it


ORDERS = Queue("orders", Order, Order)
PLAIN = Queue("plain", Plain, Plain)
BIG = str(2**63).encode()


@pytest.mark.parametrize("cents", [b'"1999"', b'"oops"', b"1.5", b"1.0", b"null", b"true", b"[1]"])
def test_what_is_not_of_the_type_is_refused_with_its_field(cents: bytes) -> None:
    with pytest.raises(InvalidValue, match=r"orders.*at `\$\.cents`"):
        ORDERS.decode_request(b'{"customer": "ann", "cents": %b}' % cents)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidValue, match="required field `cents`"):
        ORDERS.decode_request(b'{"customer": "ann"}')


@pytest.mark.parametrize(
    ("rest", "where"),
    [
        (b'"cents": ' + BIG, r"\$\.cents"),
        (b'"cents": 1, "either": -' + BIG + b"1", r"\$\.either"),
        (b'"cents": 1, "stock": {"a": ' + BIG + b"}", r"\$\.stock\[\.\.\.\]"),
        (b'"cents": 1, "at": "0001-01-01T00:00:00+01:00"', r"\$\.at"),
        (b'"cents": 1, "LINES": [{"item": "", "price": "NaN"}]', r"\$\.LINES\[\.\.\.\]\.price"),
        (b'"cents": 1, "LINES": [{"item": "", "price": "1e-19"}]', "18 digits behind"),
        (b'"cents": 1, "LINES": [{"item": "", "price": "1e20"}]', "20 digits before"),
        (
            b'"cents": 1, "either": {"item": "", "price": 1, "next": {"item": "", "price": 1e30}}',
            r"\$\.either\.next\.price",
        ),
    ],
)
def test_what_is_beyond_the_limits_is_refused_with_its_field(rest: bytes, where: str) -> None:
    with pytest.raises(InvalidValue, match=where):
        ORDERS.decode_request(b'{"customer": "ann", %b}' % rest)


def test_what_is_at_the_limits_is_taken() -> None:
    price = Decimal("99999999999999999999.999999999999999999")
    line = b'{"item": "", "price": "%b"}' % str(price).encode()
    body = b'{"customer": "", "cents": -9223372036854775808, "LINES": [%b]}'
    found = ORDERS.decode_request(body % line)
    assert found == Order("", -(2**63), lines=[Line("", price)])
    assert PLAIN.decode_request(b'{"pair": [1, "a"]}') == Plain((1, "a"))
    with pytest.raises(InvalidValue, match=r"\$\.pair\[0\]"):
        PLAIN.decode_request(b'{"pair": [%b, "a"]}' % BIG)


@pytest.mark.parametrize("kind", [dict[str, Any], msgspec.Raw, str, float])
def test_what_is_declared_as_nothing_in_particular_is_not_looked_at(kind: Any) -> None:
    body = {str: b'"a"', float: b"1.5"}.get(kind, b'{"a": %b}' % BIG)
    Queue("q", kind, bytes).decode_request(body)


def test_a_request_beyond_the_limits_is_not_sent() -> None:
    with pytest.raises(InvalidValue, match=r"\$\.cents"):
        ORDERS.encode_request(Order("ann", 2**63))


def test_text_of_a_csv_file_is_coerced_by_the_declared_type() -> None:
    body = b'{"customer": "17", "cents": "1999", "at": "2026-01-01T00:00:00Z"}'
    found = ORDERS.decode_request(body, JSON_OF_TEXTS)
    assert (found.customer, found.cents) == ("17", 1999)
    with pytest.raises(InvalidValue, match=r"\$\.cents"):
        ORDERS.decode_request(b'{"customer": "ann", "cents": "many"}', JSON_OF_TEXTS)
    with pytest.raises(InvalidValue, match=r"\$\.cents"):
        ORDERS.decode_request(b'{"customer": "ann", "cents": "%b"}' % BIG, JSON_OF_TEXTS)


def test_a_reply_is_strict() -> None:
    with pytest.raises(InvalidValue, match="orders"):
        ORDERS.decode_reply(b'{"customer": "ann", "cents": "1999"}')
