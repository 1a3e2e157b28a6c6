"""Requests out of a CSV file: a field is text, and the request's type makes a number of it."""

from __future__ import annotations

import msgspec
import pytest

from onceq.errors import InvalidValue
from onceq.model.queue import Queue


class Order(msgspec.Struct):
    customer: str
    cents: int


ORDERS = Queue("orders", Order, Order)


def test_a_request_takes_text_for_a_number() -> None:
    assert ORDERS.decode_request(b'{"customer": "ann", "cents": "1999"}') == Order("ann", 1999)


def test_a_request_does_not_take_any_text() -> None:
    with pytest.raises(InvalidValue, match="orders"):
        ORDERS.decode_request(b'{"customer": "ann", "cents": "many"}')


def test_a_reply_is_strict() -> None:
    with pytest.raises(InvalidValue, match="orders"):
        ORDERS.decode_reply(b'{"customer": "ann", "cents": "1999"}')
