"""Names and values are checked before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceq.errors import InvalidName, InvalidValue
from onceq.model import names


@pytest.mark.parametrize("name", ["a", "orders", "A.b-c_9", "x" * 63])
def test_queue_names_that_are_valid(name: str) -> None:
    assert names.check_queue(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 64, "a b", "a/b", "ä", "a\n", "a'b", 'a"b', "a;drop", None, 7, b"a"]
)
def test_queue_names_that_are_not(name: object) -> None:
    with pytest.raises(InvalidName):
        names.check_queue(name)


@pytest.mark.parametrize("name", ["onceq", "a", "a_1", "t" * 41])
def test_repository_names_that_are_valid(name: str) -> None:
    assert names.check_repository(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "1a", "a-b", "t" * 42, "pg_catalog", "pg_x", "public", "information_schema", "a\n"],
)
def test_repository_names_that_are_not(name: str) -> None:
    with pytest.raises(InvalidName):
        names.check_repository(name)


@pytest.mark.parametrize("text", ["1", "x" * 200, "ü" * 100, "a b", "'; --", "\U0001f600"])
def test_ids_that_are_valid(text: str) -> None:
    assert names.check_id("rid", text) == text


@pytest.mark.parametrize(
    "text", ["", "x" * 201, "ü" * 101, "a\0b", "a\nb", "\x7f", "\x85", "\ud800", None, b"1", 1]
)
def test_ids_that_are_not(text: object) -> None:
    with pytest.raises(InvalidName):
        names.check_id("rid", text)


@given(st.text(max_size=210))
def test_an_id_is_taken_as_it_is_or_refused(text: str) -> None:
    try:
        assert names.check_id("rid", text) == text
    except InvalidName:
        return
    assert 1 <= len(text.encode()) <= names.ID_BYTES_MAX
    assert "\0" not in text


@given(st.text(max_size=70))
def test_a_queue_name_is_plain(text: str) -> None:
    try:
        names.check_queue(text)
    except InvalidName:
        return
    assert text.isascii()
    assert len(text) <= 63
    assert not set(text) & set(" '\"\\;\n\0")


@pytest.mark.parametrize("value", ["text", bytearray(b"x"), memoryview(b"x"), None, 1])
def test_bytes_are_bytes(value: object) -> None:
    with pytest.raises(InvalidValue):
        names.check_bytes("body", value)
    assert names.check_bytes("body", b"x") == b"x"


@pytest.mark.parametrize("value", [0, 10, -1, True, 5.0, "5", None])
def test_a_range_is_of_whole_numbers(value: object) -> None:
    with pytest.raises(InvalidValue):
        names.check_range("number", value, 1, 9)


@pytest.mark.parametrize("value", [1, 5, 9])
def test_a_range_includes_its_ends(value: int) -> None:
    assert names.check_range("number", value, 1, 9) == value


@pytest.mark.parametrize(
    "attributes",
    [
        {"priority": 10},
        {"priority": -1},
        {"priority": None},
        {"not_before": datetime(2026, 1, 1)},  # noqa: DTZ001 # what must be refused
        {"expires_at": "tomorrow"},
    ],
)
def test_attributes_that_are_not_valid(attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        names.check_attributes(attributes)


def test_attributes_that_are_valid() -> None:
    names.check_attributes({})
    names.check_attributes({"priority": 9, "not_before": datetime(2026, 1, 1, tzinfo=UTC)})
    with pytest.raises(InvalidName):
        names.check_attributes({"rid": "a\0"})
