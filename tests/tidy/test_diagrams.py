"""The page of states is what the state tables say."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from onceq.model import client_state, recovery
from onceq.streams.model import fragments, states
from onceq.streams.source import confirming
from tests.tidy.source_tree import ROOT


@pytest.fixture
def diagrams() -> Any:
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "docs" / "diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_would_be_written(diagrams: Any) -> None:
    assert diagrams.PAGE.read_text("utf-8") == diagrams.page(), "run python docs/diagrams.py"


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (client_state, "TRANSITIONS"),
        (recovery, "TRANSITIONS"),
        (recovery, "PLACES"),
        (states, "SOURCE"),
        (states, "FENCE"),
        (states, "ADMIT"),
        (states, "FRAME"),
        (fragments, "DEEDS"),
        (confirming, "LIVENESS"),
    ],
)
def test_another_table_is_another_page(
    diagrams: Any, monkeypatch: pytest.MonkeyPatch, of: Any, name: str
) -> None:
    page = diagrams.page()
    rows: dict[Any, Any] = getattr(of, name)
    key, value = list(rows.items())[-1]
    kind: Any = type(value)
    others = ["another"] if kind is str else list(kind)
    monkeypatch.setattr(of, name, {**rows, key: next(one for one in others if one != value)})
    assert diagrams.page() != page


def test_every_arrow_and_every_deed_of_a_store_is_on_the_page(diagrams: Any) -> None:
    page = diagrams.page()
    arrows = {line.strip() for line in page.splitlines() if "-->" in line}
    for (state, finding), following in states.SOURCE.items():
        begun = f"{state.value} --> {following.value}: "
        assert any(one.startswith(begun) and finding.value in one for one in arrows)
    deeds = [*states.FENCE.values(), *states.ADMIT.values(), *states.FRAME.values()]
    assert page.count(states.Deed.NOT_ADMITTED.value) == deeds.count(states.Deed.NOT_ADMITTED)
    assert all(deed.value in page for deed in deeds)
