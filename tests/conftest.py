"""What every test may use: the fixtures of our own pytest plugin, under the names of these tests.

A test that kills or stops PostgreSQL starts one of its own. `make test` runs the files in
several processes, each with a PostgreSQL of its own, and few with a Spark session (tests/order.py).
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine.embedded.locate import EMBEDDED
from onceq.testing.plugin import VARIABLE
from tests import ground, order
from tests.events import Events
from tests.spark.java_classes import CLASSES, sharing

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from xdist.remote import Producer

    from tests.scheduler import InGroups

os.environ.setdefault("JDK_JAVA_OPTIONS", sharing(CLASSES))

pytest_plugins = ["pytester", "onceq.testing.plugin"]


def pytest_configure(config: pytest.Config) -> None:
    """Without a database the run has one of its own in memory: nobody cuts its power.

    What a shell starts in the background ignores Ctrl-C, and so would all that tests interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--onceq-url") or os.environ.get(VARIABLE):
        return
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:  # the one that starts the workers, or the only one
        ground.sweep()
    if worker is not None or not config.getoption("numprocesses", None):
        place = ground.made((worker or {}).get("workercount", 1))
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
        config.option.onceq_url = f"{EMBEDDED}{place / ground.CLUSTER}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector from what stays to the end: modules, and thousands of tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest begin first: the processes end together."""
    order.longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> InGroups | None:
    """With `--dist loadfile`, files that share a Spark session run in one process."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.scheduler import InGroups  # noqa: PLC0415 - where there is no xdist, nobody asks

    return InGroups(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the files that took longest, where the tests run side by side."""
    if terminalreporter.config.getoption("numprocesses", None):
        terminalreporter.section(f"slowest {order.SLOWEST} files")
        reports = [one for some in terminalreporter.stats.values() for one in some]
        tested = [one for one in reports if isinstance(one, pytest.TestReport)]
        for line in order.slowest_files(tested):
            terminalreporter.line(line)


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
