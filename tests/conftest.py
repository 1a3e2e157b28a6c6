"""What every test may use: the fixtures of our own pytest plugin, under the names of these tests.

A test that kills or stops PostgreSQL starts one of its own. `make test` runs the files in two
processes, each with a PostgreSQL and a Spark session of its own.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import onceq
from tests.events import Events
from tests.spark.java_classes import sharing

if TYPE_CHECKING:
    from collections.abc import Iterator

CLASSES = Path(__file__).resolve().parents[1] / ".venv/spark-classes.jsa"
os.environ.setdefault("JDK_JAVA_OPTIONS", sharing(CLASSES))

pytest_plugins = ["pytester", "onceq.testing.plugin"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that may take longest by their own limits begin first: two processes end together."""
    limits: Counter[Path] = Counter()
    for item in items:
        limit = item.get_closest_marker("timeout")
        limits[item.path] += limit.args[0] if limit is not None else 0
    items.sort(key=lambda item: -limits[item.path])


@pytest.fixture
def events(request: pytest.FixtureRequest) -> Iterator[Events]:
    """What is logged in this test. Marked with `emits`, it fails where one of these is not."""
    found = Events()
    log = logging.getLogger("onceq")
    level = log.level
    log.addHandler(found)
    log.setLevel(logging.INFO)
    try:
        yield found
    finally:
        log.removeHandler(found)
        log.setLevel(level)
    marker = request.node.get_closest_marker("emits")
    missing = [kind for kind in marker.args if not found.of(kind)] if marker is not None else []
    assert not missing, f"not logged: {missing}, but {found.all}"


@pytest.fixture(scope="session")
def conninfo(onceq_url: str) -> str:
    """How psycopg reaches the server of this run."""
    return onceq_url


@pytest.fixture
def repository_name(onceq_new_name: str) -> str:
    """A schema name that no other test has; what is in it is dropped afterwards."""
    return onceq_new_name


@pytest.fixture
def repository(onceq_repository: str) -> str:
    """The name of a repository of this test's own, with the schema in it."""
    return onceq_repository


@pytest.fixture
def qm(onceq_url: str, repository: str) -> Iterator[onceq.QueueManager]:
    """An open queue manager on this test's repository, whatever a module makes of that."""
    with onceq.open(onceq_url, repository=repository) as opened:
        yield opened
