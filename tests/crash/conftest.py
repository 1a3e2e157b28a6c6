"""A repository with a ledger of effects, and how the crash tests' servers are told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proof.harness.fleet import Settings
from proof.harness.ledger import make_ledger

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def settings(conninfo: str, repository: str, tmp_path: Path) -> Settings:
    """How a server process is to serve this test's repository; a test replaces what it needs."""
    make_ledger(conninfo, repository)
    return Settings(url=conninfo, repository=repository, files=str(tmp_path))
