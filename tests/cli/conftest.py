"""The command line on a repository of the test's own."""

from __future__ import annotations

import pytest

from tests.cli.parts import Cli


@pytest.fixture
def cli(conninfo: str, repository: str) -> Cli:
    """Runs commands on this test's repository."""
    return Cli(conninfo, repository)
