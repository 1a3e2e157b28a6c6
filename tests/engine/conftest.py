"""Directories for the tests that start and kill embedded servers of their own."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

import onceq
from onceq.engine.embedded import (
    EmbeddedServer,
    embedded_status,
    open_embedded,
    stop_embedded,
)
from tests.engine.crashes import NAME, RAW
from tests.parts import plain


@pytest.fixture(scope="session")
def made_directories() -> list[Path]:
    """Directories with a cluster that no test uses now: making one takes a second."""
    return []


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A path where nothing is yet; a server left running there is stopped."""
    directory = tmp_path / "data"
    yield directory
    stop_embedded(directory, force=True)


@pytest.fixture
def directory(
    made_directories: list[Path], fresh: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A directory with a cluster in it, stopped; lent to one test after the other.

    A test may kill its server, but damages or moves the directory only for good.
    """
    if not made_directories:
        made_directories.append(tmp_path_factory.mktemp("embedded") / "made")
        open_embedded(made_directories[-1]).close()
    made = made_directories.pop()
    made.rename(fresh)
    yield fresh
    stop_embedded(fresh, force=True)
    # A test that failed may have left a use of it open, or damage.
    if fresh.exists() and not embedded_status(fresh).users and (fresh / "cluster").exists():
        fresh.rename(made)
        made_directories.append(made)


@pytest.fixture
def cluster(directory: Path) -> Generator[EmbeddedServer]:
    """A PostgreSQL that the test may crash, with no repository in it."""
    with open_embedded(directory) as server:
        with plain(server.conninfo) as connection:
            connection.execute("drop schema if exists r cascade")
        yield server


@pytest.fixture
def own(cluster: EmbeddedServer) -> Generator[onceq.QueueManager]:
    """A queue manager on a fresh repository there."""
    with onceq.open(f"embedded:{cluster.directory}", repository=NAME) as manager:
        manager.declare(RAW)
        yield manager
