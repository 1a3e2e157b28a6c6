"""`onceq torture`: its exit codes, and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.parts import run_here

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(240)
def test_a_short_torture_on_a_scratch_database(conninfo: str, tmp_path: Path) -> None:
    place = tmp_path / "run"
    answer = run_here(
        *("--url", conninfo, "torture", "--minutes", "0.1", "--seed", "987654321"),
        *("--directory", str(place), "--json"),
    )
    assert answer.code == 0, answer
    report = answer.item
    assert report["violations"] == []
    assert report["seed"] == 987654321
    assert report["acknowledged"] > 0
    assert report["crashes"] == 0
    assert any("not one of its own" in text for text in report["not_made"])
    assert "No violation was found." in (place / "report.md").read_text()
    again = run_here("torture", "--directory", str(place))
    assert again.code == 2
    assert "is not empty" in again.err


def test_what_cannot_be_broken(tmp_path: Path) -> None:
    answer = run_here("torture", "--break", "everything", "--directory", str(tmp_path))
    assert answer.code == 2
    assert "fence or clerk" in answer.err
