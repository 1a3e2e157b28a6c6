"""Queues as values: what travels in them, and which settings they take."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceq import Queue
from onceq.errors import InvalidName, InvalidValue
from onceq.model.code_pages import BINARY, JSON
from onceq.model.queue import QueueSettings, content_type_of


class Order(msgspec.Struct):
    customer: str
    cents: int


@dataclasses.dataclass
class Receipt:
    number: int


ORDERS = Queue("orders", Order, Receipt, abort_limit=3)
RAW = Queue("raw", bytes, bytes)


@given(st.builds(Order, customer=st.text(), cents=st.integers(-(2**53), 2**53)))
def test_a_request_comes_back_as_it_went(order: Order) -> None:
    assert ORDERS.decode_request(ORDERS.encode_request(order)) == order


@given(st.binary())
def test_bytes_travel_as_they_are(body: bytes) -> None:
    assert RAW.encode_request(body) is body
    assert RAW.decode_reply(body) is body


def test_a_reply_comes_back_as_it_went() -> None:
    assert ORDERS.decode_reply(ORDERS.encode_reply(Receipt(7))) == Receipt(7)


@pytest.mark.parametrize("value", [None, "text", {"customer": "a"}, Receipt(1), Order("a", "b")])  # type: ignore[arg-type] # must be refused
def test_a_value_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="request for queue 'orders'"):
        ORDERS.encode_request(value)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"customer": "a"}', b"\xff\0"])
def test_a_body_of_another_type_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidValue, match="orders"):
        ORDERS.decode_request(body)


def test_text_is_not_bytes() -> None:
    with pytest.raises(InvalidValue):
        RAW.encode_request("text")  # type: ignore[arg-type] # what must be refused


def test_content_types() -> None:
    assert content_type_of(bytes) == BINARY
    assert content_type_of(Order) == JSON


@pytest.mark.parametrize(
    "settings",
    [
        {"abort_limit": 0},
        {"abort_limit": 1001},
        {"backoff_ms": -1},
        {"backoff_ms": 100, "backoff_max_ms": 99},
        {"execution_limit_s": 0},
        {"body_bytes_max": 0},
        {"tag_bytes_max": 0},
        {"abort_limit": 2.0},
        {"colour": "red"},
    ],
)
def test_settings_that_are_not_valid(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Queue("orders", bytes, bytes, **settings)


def test_an_error_queue_has_a_queue_name() -> None:
    assert QueueSettings(error_queue="bad.orders").error_queue == "bad.orders"
    with pytest.raises(InvalidName):
        QueueSettings(error_queue="bad orders")


def test_its_types_may_be_said_twice() -> None:
    assert Queue[Order, Receipt]("orders", Order, Receipt, abort_limit=3) == ORDERS


def test_a_misspelt_setting_is_named_with_the_one_that_was_meant() -> None:
    settings: dict[str, Any] = {"abort_limt": 3}
    with pytest.raises(InvalidValue, match="'orders' has no keyword 'abort_limt'; 'abort_limit'"):
        Queue("orders", bytes, bytes, **settings)


def test_a_queue_is_a_value() -> None:
    assert Queue("orders", Order, Receipt, abort_limit=3) == ORDERS
    assert hash(Queue("raw", bytes, bytes)) == hash(RAW)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ORDERS.name = "other"  # type: ignore[misc] # what must be refused


def test_an_isolation_level_is_checked() -> None:
    handler: Any = print  # it takes anything
    assert RAW.handled_by(handler, isolation="serializable").isolation == "serializable"
    with pytest.raises(InvalidValue):
        RAW.handled_by(handler, isolation="chaos")  # type: ignore[call-overload] # must be refused
