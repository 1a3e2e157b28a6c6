"""A repository of 0.1.0, for the tests of what brings it up to date."""

from __future__ import annotations

import pytest

from tests.upgrade.former import make_former


@pytest.fixture
def released(conninfo: str, repository_name: str) -> str:
    """An empty repository of 0.1.0; returns its name."""
    make_former(conninfo, repository_name, "0.1.0")
    return repository_name
