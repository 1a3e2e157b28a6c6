"""The command line on a repository of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.parts import Cli
from tests.parts import plain

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cli(conninfo: str, repository: str) -> Cli:
    """Runs commands on this test's repository."""
    return Cli(conninfo, repository)


@pytest.fixture
def mine(conninfo: str, repository_name: str) -> Iterator[Cli]:
    """A repository that the test may destroy, with a queue."""
    cli = Cli(conninfo, repository_name)
    cli("init")
    cli("queue", "create", "raw", "--abort-limit", "1")
    yield cli
    with plain(conninfo) as connection:
        connection.execute(f"drop schema if exists {repository_name} cascade".encode())
