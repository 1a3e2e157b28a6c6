"""The page of UM's names is what its tables say, and has each option and each event once."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import pytest
from msgspec.structs import replace

from onceq import streams
from onceq.streams.api import given
from onceq.streams.model.events import Event
from onceq.streams.model.options import OPTIONS, Option
from tests.examples.pages import section
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture
def names() -> Any:
    spec = importlib.util.spec_from_file_location("names_page", ROOT / "docs" / "names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(part: str, column: int) -> list[str]:
    """Return what a column of the table of a part of the page has, word by word."""
    rows = [line.split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return [word.strip("` |") for row in rows[2:] for word in row[column].split(", ")]


def twice(found: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(found).items() if count > 1]


def test_the_page_is_what_would_be_written(names: Any) -> None:
    assert names.PAGE.read_text("utf-8") == names.page(), "run: python docs/names.py"


def test_every_option_is_on_the_page_once(names: Any) -> None:
    part = section("Options", names.page())
    assert cells(part, 1) == [option.name for option in OPTIONS]
    assert cells(part, 0) == [option.um or names.NONE for option in OPTIONS]
    assert names.DIFFERS.keys() <= {option.name for option in OPTIONS}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda one: one.name)
def test_who_has_another_name_than_in_um_says_why(names: Any, option: Option) -> None:
    is_same = option.name.removesuffix("_ms") == option.um.removeprefix("ume_")
    assert is_same or option.name in names.DIFFERS


def test_every_event_class_is_on_the_page_once(names: Any) -> None:
    events = [event.__name__ for event in get_args(Event)]
    listed = [one for one in cells(section("Events", names.page()), 1) if one != names.NONE]
    assert sorted(listed) == sorted(events)
    assert names.EVENTS.keys() == set(events)


def test_what_is_given_beside_the_options_is_on_the_page(names: Any) -> None:
    here = {one.here for one in names.NAMES}
    assert {f"{name}=" for name in given.BESIDE | given.BESIDE_SOURCE} <= here


def test_no_name_of_um_is_on_the_page_twice(names: Any) -> None:
    page = names.page()
    parts = [section(title, page) for title in ("Options", "Other names", "Events")]
    found = [name for part in parts for name in cells(part, 0)]
    assert twice(found) == [names.NONE]


def test_what_is_named_is_there(names: Any) -> None:
    for one in names.NAMES:
        if one.here.startswith("streams."):
            assert hasattr(streams, one.here.removeprefix("streams."))
        elif re.fullmatch(r"[A-Z]\w+\.\w+", one.here):
            owner, _, name = one.here.partition(".")
            assert hasattr(getattr(streams, owner), name)


def test_another_table_is_another_page(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = names.page()
    monkeypatch.setattr(names, "OPTIONS", (replace(OPTIONS[0], um="ume_other"), *OPTIONS[1:]))
    assert "ume_other" in names.page()
    assert names.page() != page
