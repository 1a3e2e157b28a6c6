"""How a life of a Spark server ends, without Spark: what it held goes back, and nobody is charged.

A query is only acted: what it would have done to the database, and how it would have ended.
"""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.model.spark_ops import SparkClaim, SparkPlan
from onceq.spark.serve.verdicts import Verdict
from tests.spark.serving import make_server
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVES_MAX = 20


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


class Session:
    """What Server.run asks of a session in which no query begins. registered: names of sources."""

    sparkContext = SimpleNamespace(defaultParallelism=2, master="local[2]")  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.registered: list[str] = []
        register: Any = lambda source: self.registered.append(source.name())  # noqa: E731 - a method
        self.dataSource = SimpleNamespace(register=register)

    def createDataFrame(self, *_: Any) -> None:  # noqa: N802 - Spark's name
        """Makes this the active session."""


def run(server: Any, repository: Repository, place: Path | None, **how: Any) -> None:
    checkpoint = None if place is None else place / "checkpoint"
    where: dict[str, Any] = {"repository": repository.name, "spark": Session()}
    server.run(repository.conninfo, checkpoint=checkpoint, **(where | how))


def claim(home: Any, driver: Any, options: Any) -> int:
    """Claims as the source does."""
    who = {"server_id": options.server_id, "epoch": options.epoch}
    bound = home.bound if home.once else None
    return int(driver.perform(SparkClaim(**who, start=0, n=options.batch_rows, bound=bound)))


def begin_a_batch(home: Any, driver: Any, options: Any) -> None:
    group = claim(home, driver, options)
    assert group
    who = {"server_id": options.server_id, "epoch": options.epoch}
    driver.perform(SparkPlan(**who, group=group))


def aborts(repository: Repository) -> list[int]:
    return [n for (n,) in repository.ask("select aborts from {}.element where role = 'request'")]


@pytest.mark.parametrize("many", [1, 4])
def test_once_charges_nobody_for_a_query_that_something_else_stopped(
    repository: Repository, tmp_path: Path, many: int
) -> None:
    """Neither a request that was alone, nor the half of a batch."""
    repository.send(many)
    server: Any = make_server(repository.name, tmp_path, batch_rows=many)
    seen: list[Any] = []

    def watch(home: Any, driver: Any, options: Any) -> tuple[None, str]:
        if server.statistics().lives == 1:
            begin_a_batch(home, driver, options)
        else:
            seen.append((aborts(repository), repository.ask("select seqs from {}.spark_group")))
            server.stop()
        return None, ""

    server._watch = watch
    run(server, repository, tmp_path, once=True)
    assert seen == [([0] * many, [])]


def ends(verdict: Verdict, repository: Repository, place: Path) -> None:
    """Runs a server that begins a batch, ends like this, and is stopped before its next life."""
    server: Any = make_server(repository.name, place, batch_rows=1)

    def watch(home: Any, driver: Any, options: Any) -> tuple[Verdict, str]:
        begin_a_batch(home, driver, options)
        return verdict, "no space left on device"

    server._watch = watch
    server._stop.wait = lambda _: server._stop.set()
    run(server, repository, place)


def aborts_of_the_next(repository: Repository, place: Path) -> list[int]:
    server: Any = make_server(repository.name, place, batch_rows=1)
    seen: list[int] = []

    def look(*_: Any) -> tuple[None, str]:
        seen.extend(aborts(repository))
        server.stop()
        return None, ""

    server._watch = look
    run(server, repository, place)
    return seen


def test_a_stop_after_a_failure_of_the_environment_gives_back_what_was_held(
    repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)
    ends(Verdict.ENVIRONMENT, repository, tmp_path)
    claimed = "select claimed_by from {}.element where role = 'request'"
    assert repository.ask(claimed) == [(None,)]
    assert aborts_of_the_next(repository, tmp_path) == [0]


def test_a_stop_after_a_crash_leaves_the_evidence(repository: Repository, tmp_path: Path) -> None:
    repository.send(1)
    ends(Verdict.CRASH, repository, tmp_path)
    assert aborts_of_the_next(repository, tmp_path) == [1]


def test_once_does_not_wait_for_what_another_transaction_has_locked(
    repository: Repository, tmp_path: Path
) -> None:
    repository.send(1)
    other = connect(repository.conninfo)
    repository.opened.append(other)
    other.execute(b"begin")
    lock = f"select seq from {repository.name}.element where role = 'request' for update"
    other.execute(lock.encode())
    server: Any = make_server(repository.name, tmp_path)

    def watch(home: Any, driver: Any, options: Any) -> tuple[None, str]:
        assert claim(home, driver, options) == 0
        if server.statistics().lives == LIVES_MAX:
            server.stop()
        return None, ""

    server._watch = watch
    run(server, repository, tmp_path, once=True)
    assert server.statistics().lives == 1


def test_what_has_expired_does_not_hide_what_has_not(
    repository: Repository, tmp_path: Path
) -> None:
    repository.send(21)
    expired = "update {}.element set expires_at = now() - interval '1 s' where rid <> 'r20'"
    repository.do(expired)
    server: Any = make_server(repository.name, tmp_path, batch_rows=1)
    found: list[int] = []

    def watch(home: Any, driver: Any, options: Any) -> tuple[None, str]:
        found.append(claim(home, driver, options))
        server.stop()
        return None, ""

    server._watch = watch
    run(server, repository, tmp_path, once=True)
    assert found[0] > 0
    left = "select rid from {}.element where role = 'request'"
    assert repository.ask(left) == [("r20",)]


def open_files() -> set[str]:
    """What this process has open, each file and connection by a name of its own."""
    gc.collect()
    found: set[str] = set()
    for one in Path("/dev/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the look itself
            found.add(str(one.readlink()))
    return found


def test_runs_without_a_checkpoint_leave_nothing_behind(repository: Repository) -> None:
    """No file that the process has open, either: others may meanwhile be closed."""
    files: list[set[str]] = []
    places: list[Path] = []
    for _ in range(3):
        server: Any = make_server(repository.name, Path("unused"))

        def watch(home: Any, *_: Any) -> tuple[None, str]:
            places.append(home.checkpoint.parent)
            assert places[-1].exists()
            return None, ""

        server._watch = watch
        run(server, repository, None, once=True)
        files.append(open_files())
    assert files[2] <= files[1]
    assert len(set(places)) == 3
    assert not any(place.exists() for place in places)


def test_each_run_has_a_data_source_of_its_own(repository: Repository, tmp_path: Path) -> None:
    """Spark keeps an environment for each name, and two queries that begin at once break it."""
    session, used = Session(), []

    def watch(home: Any, *_: Any) -> tuple[None, str]:
        used.append(home.format)
        return None, ""

    for _ in range(2):
        server: Any = make_server(repository.name, tmp_path)
        server._watch = watch
        run(server, repository, tmp_path, spark=session, once=True)
    assert used == session.registered
    assert len(set(used)) == 2


def test_a_session_of_spark_connect_is_refused_by_run(
    repository: Repository, tmp_path: Path
) -> None:
    class Remote:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    Remote.__module__ = "pyspark.sql.connect.session"
    server = make_server(repository.name, tmp_path)
    remote: Any = Remote()
    with pytest.raises(errors.InvalidValue, match="Spark Connect"):
        server.run(repository.conninfo, repository=repository.name, spark=remote)
