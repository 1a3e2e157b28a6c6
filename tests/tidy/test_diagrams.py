"""The page of states is what the state tables say."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from onceq.model import client_state, recovery
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


@pytest.mark.parametrize("of", [client_state, recovery])
def test_another_table_is_another_page(
    diagrams: Any, monkeypatch: pytest.MonkeyPatch, of: Any
) -> None:
    page = diagrams.page()
    monkeypatch.setattr(of, "TRANSITIONS", dict(list(of.TRANSITIONS.items())[1:]))
    assert diagrams.page() != page
