"""The guide to exactly-once output: its files, run by its script, print what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.examples.pages import blocks, reader, shell, text_of, write_files

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = text_of("docs/exactly-once-output.md")


@pytest.mark.timeout(400)
def test_the_guide_is_true(tmp_path: Path) -> None:
    """A client killed three times prints each ticket once."""
    write_files(GUIDE, tmp_path)
    found = blocks(GUIDE)
    printed, complaints = shell(found["bash"], tmp_path, reader(), 300)
    assert printed == found["text"], complaints
    assert complaints.count("FAULT POINTS ARE ARMED") == 3
    assert complaints.count("Killed") == 3, complaints
