"""The table of docs/types.md: each row is so."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import importlib
import importlib.util
import re
import types
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

import onceq
from onceq.errors import InvalidValue

PAGE: Final = Path(__file__).resolve().parents[2] / "docs/types.md"
ROW: Final = re.compile(r"^\| (?P<kind>[^|]+?) \| (?P<taken>yes|no) \|", re.MULTILINE)


class Order(msgspec.Struct):
    cents: int


@dataclasses.dataclass
class Sale:
    cents: int


class Row(TypedDict):
    cents: int


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"


class Plain:
    cents: int


def base_model(module: str) -> type[Any]:
    """What pydantic's own is, to whoever does not import it."""
    return types.new_class("BaseModel", exec_body=lambda body: body.update(__module__=module))


Model1: Any = type("Model1", (base_model("pydantic.main"),), {})
Model2: Any = type("Model2", (base_model("pydantic.v1.main"),), {})


Holder: Any = dataclasses.make_dataclass("Holder", [("models", list[Model1])])


def model_of_pydantic() -> list[Any]:
    """A model of the pydantic that is installed, if one is."""
    if importlib.util.find_spec("pydantic") is None:
        return []
    return [importlib.import_module("pydantic").create_model("Installed", cents=(int, ...))]


def value_of_attrs() -> list[tuple[Any, Any]]:
    """A class of the attrs that is installed, if it is, and a value."""
    if importlib.util.find_spec("attrs") is None:
        return []
    attrs = importlib.import_module("attrs")
    sold = attrs.make_class("Sold", {"cents": attrs.field(type=int)})
    return [(sold, sold(1))]


MODELS: Final = model_of_pydantic()
MOMENT: Final = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
TAKEN: Final[dict[str, list[tuple[Any, Any]]]] = {
    "`bytes`": [(bytes, b"\x00\xff")],
    "`msgspec.Struct`": [(Order, Order(1)), (list[Order], [Order(1)])],
    "dataclass": [(Sale, Sale(1))],
    "`TypedDict`": [(Row, {"cents": 1})],
    "attrs class": value_of_attrs(),
    "`NamedTuple`": [(Point, Point(1, 2))],
    "`enum.Enum`": [(Colour, Colour.RED)],
    "`Optional`": [(Order | None, None), (Order | None, Order(1))],
    "`Union`": [(int | str, "x"), (Order | int | list[int], [1])],
    "`Decimal`": [(Decimal, Decimal("1.50"))],
    "`datetime`": [(dt.datetime, MOMENT)],
    "`date`": [(dt.date, MOMENT.date())],
    "`UUID`": [(UUID, UUID(int=7))],
    "`int`, `float`, `str`, `bool`": [(int, 2**63 - 1), (float, 1.5), (str, "ä"), (bool, True)],
    "`list`, `tuple`": [(list[int], [1]), (tuple[int, str], (1, "x")), (tuple[int, ...], (1, 2))],
    "`set`, `frozenset`": [(set[int], {2, 1}), (frozenset[str], frozenset("ab"))],
    "`dict`": [(dict[str, int], {"a": 1}), (dict[int, Order], {1: Order(2)})],
    "`Any`": [(Any, {"a": [1, None]})],
}
REFUSED: Final[dict[str, list[Any]]] = {
    "pydantic model": [
        Model1,
        Model2,
        list[Model1],
        dict[str, Model2],
        Model1 | None,
        Holder,
        *MODELS,
    ],
    "plain class": [Plain, list[Plain], complex],
}


def test_each_row_of_the_page_is_tried() -> None:
    rows = {found["kind"]: found["taken"] for found in ROW.finditer(PAGE.read_text())}
    tried = {**dict.fromkeys(TAKEN, "yes"), **dict.fromkeys(REFUSED, "no")}
    assert rows == tried


@pytest.mark.parametrize("row", TAKEN)
def test_what_the_page_says_is_taken_comes_back_as_it_went(row: str) -> None:
    for kind, value in TAKEN[row]:
        queue = onceq.Queue[Any, Any]("any", kind, kind)
        assert queue.decode_request(queue.encode_request(value)) == value
        assert queue.decode_reply(queue.encode_reply(value)) == value


@pytest.mark.parametrize("row", REFUSED)
def test_what_the_page_says_is_refused_is_refused_when_the_queue_is_made(row: str) -> None:
    for kind in REFUSED[row]:
        for types_of in ((kind, bytes), (bytes, kind)):
            with pytest.raises(
                InvalidValue, match=r"queue 'any': .*use a msgspec.Struct, a dataclass"
            ):
                onceq.Queue[Any, Any]("any", *types_of)


def test_a_model_of_pydantic_is_named_as_one() -> None:
    with pytest.raises(InvalidValue, match=r"Model1 is a pydantic model.*make the model of it"):
        onceq.Queue[Any, Any]("any", list[Model1], bytes)


def test_a_type_that_names_one_which_is_not_there_yet_is_passed_over() -> None:
    early = msgspec.defstruct("Early", [("later", "list[Nowhere]")])
    assert onceq.Queue("any", early, bytes).request_type is early


def test_a_type_that_holds_itself_is_taken() -> None:
    assert onceq.Queue("any", Tree, Tree).request_type is Tree


def test_what_asks_for_nothing_in_particular_is_taken() -> None:
    assert onceq.Queue("any", object, object).decode_request(b"[1]") == [1]


class Tree(msgspec.Struct):
    leaves: list[Tree]
