"""The pytest plugin of onceq: a real PostgreSQL, a repository for each test, time, crashes.

Installed with onceq; pytest loads it by itself. Its fixtures have names that begin with
`onceq_`; a run that asks for none of them starts nothing. docs/testing.md shows their use.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import onceq
from onceq.engine.embedded.locate import EMBEDDED, Located, locate
from onceq.errors import OnceqError
from onceq.testing.clock import Clock
from onceq.testing.crash import Crash, crash_at
from onceq.testing.device import Device
from onceq.testing.drain import Drain
from onceq.testing.repositories import Repositories, new_name

VARIABLE = "ONCEQ_TEST_URL"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that names the database."""
    parser.getgroup("onceq").addoption(
        "--onceq-url",
        metavar="URL",
        help=f"the database for the tests, as {VARIABLE} too names it: onceq makes and drops "
        "schemas t_... in it; without either, a PostgreSQL of this run's own",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuses two databases."""
    named = {config.getoption("--onceq-url"), os.environ.get(VARIABLE)} - {None, ""}
    if len(named) > 1:
        raise pytest.UsageError(
            f"two databases are named for the tests, by --onceq-url and by {VARIABLE}: "
            "give one of them, or the same in both"
        )


def _locate(config: pytest.Config, undo: ExitStack) -> Located:
    url = config.getoption("--onceq-url") or os.environ.get(VARIABLE)
    if not url:
        directory = undo.enter_context(tempfile.TemporaryDirectory(prefix="onceq-tests-"))
        url = f"{EMBEDDED}{Path(directory) / 'postgresql'}"
    located = locate(url)
    undo.callback(located.close)
    return located


@pytest.fixture(scope="session")
def onceq_repositories(pytestconfig: pytest.Config) -> Iterator[Repositories]:
    """The repositories of this run, and the PostgreSQL that holds them.

    Without a database no test that needs one can run: the run ends with one message.
    """
    with ExitStack() as undo:
        try:
            located = _locate(pytestconfig, undo)
            found = located.url if located.embedded is None else located.embedded.conninfo
            repositories = Repositories(found)
        except OnceqError as error:
            text = f"onceq: no PostgreSQL for the tests: {type(error).__name__}: {error}"
            pytest.exit(text, pytest.ExitCode.USAGE_ERROR)
        undo.callback(repositories.close)
        yield repositories


@pytest.fixture(scope="session")
def onceq_url(onceq_repositories: Repositories) -> str:
    """The database of this run, for onceq.open and for psycopg.connect."""
    return onceq_repositories.conninfo


@pytest.fixture
def onceq_new_name(onceq_repositories: Repositories) -> Iterator[str]:
    """A name for a repository that does not exist yet; what the test makes of it is dropped."""
    name = new_name()
    yield name
    onceq_repositories.drop(name)


@pytest.fixture
def onceq_repository(onceq_repositories: Repositories) -> Iterator[str]:
    """The name of an empty repository, this test's own."""
    name = onceq_repositories.lend()
    yield name
    onceq_repositories.take_back(name)


@pytest.fixture
def onceq_qm(onceq_url: str, onceq_repository: str) -> Iterator[onceq.QueueManager]:
    """An open queue manager on this test's repository."""
    with onceq.open(onceq_url, repository=onceq_repository) as opened:
        yield opened


@pytest.fixture
def onceq_clock(onceq_url: str, onceq_repository: str) -> Iterator[Clock]:
    """The clock of this test's repository: `advance` moves it for every session there."""
    with Clock(onceq_url, onceq_repository) as clock:
        yield clock


@pytest.fixture
def onceq_drain(onceq_url: str, onceq_repository: str) -> Drain:
    """Call it with `QUEUE.handled_by(handler)`: serves until nothing is due, returns what ran."""
    return Drain(onceq_url, onceq_repository)


@pytest.fixture
def onceq_crash_at() -> Callable[..., Crash]:
    """Call it with a place and a callable, which runs in a child process and dies there."""
    return crash_at


@pytest.fixture
def onceq_device(tmp_path: Path) -> Iterator[Device]:
    """A testable device: its `lines()` are what it has printed."""
    device = Device(tmp_path / "onceq-device")
    yield device
    device.close()
