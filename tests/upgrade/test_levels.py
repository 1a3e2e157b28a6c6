"""Levels: which code may work with which repository, also at once (ADR 32)."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import pytest
from psycopg.conninfo import make_conninfo

import onceq
from onceq import version
from onceq.cli.exits import VIOLATION
from onceq.engine.connect.brief import brief_link
from onceq.engine.connect.opening import async_open_verified, open_verified
from onceq.engine.embedded.locate import locate
from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.engine.schema import migrate
from onceq.engine.sessions import levels, session
from onceq.engine.sessions.faults import OVERTAKEN
from onceq.engine.sessions.silence import AsyncOwnConnection, OwnConnection
from onceq.errors import (
    EnvironmentFault,
    OnceqError,
    OperatingError,
    SchemaMismatch,
    SchemaMissing,
    SchemaTooNew,
)
from onceq.spark.given.route import reach
from tests.cli.parts import Cli
from tests.parts import LIMIT_S, plain, scalar, serving, wait_until
from tests.upgrade.looks import stamp
from tests.upgrade.next_onceq import COLUMN, NextChild, make_next

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path


T = TypeVar("T")

RAW = onceq.Queue("raw", bytes, bytes)
NEXT = onceq.Queue("next", bytes, bytes)
OLD = RAW.handled_by(lambda body, _: b"old: " + body)


# --- which code works with which repository -------------------------------------------------------

MADE = levels.Stamp(version=14, tables_sha256="t", functions_sha256="f", level=3, serves=2)
REFUSED: list[tuple[int, int, int, type[OnceqError] | None]] = [
    *[(1, 3, 2, SchemaTooNew), (2, 3, 2, None), (3, 3, 2, None), (4, 3, 2, SchemaMismatch)],
    *[(1, 0, 0, SchemaMismatch), (1, 1, 1, None), (1, 2, 1, None), (1, 2, 2, SchemaTooNew)],
]
"""The level of the code, that of the repository, the oldest one that it serves, and the error."""


@pytest.mark.parametrize(("code", "level", "serves", "error"), REFUSED)
def test_code_works_with_what_is_of_its_level_or_serves_it(
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    level: int,
    serves: int,
    error: type[OnceqError] | None,
) -> None:
    monkeypatch.setattr(version, "LEVEL", code)
    made = dataclasses.replace(MADE, level=level, serves=serves)
    if error is None:
        assert levels.check_level(made, "onceq", "shop") == made
        return
    advice = "upgrade onceq" if error is SchemaTooNew else "onceq init"
    with pytest.raises(error, match=rf"level {code}.*{advice}"):
        levels.check_level(made, "onceq", "shop")


def test_what_is_not_there_or_has_no_level_is_said() -> None:
    with pytest.raises(SchemaMissing, match="'shop' has no repository 'onceq'"):
        levels.check_level(None, "onceq", "shop")
    old = levels.stamp_of({"schema_version": 2, "tables_sha256": "t", "functions_sha256": "f"})
    with pytest.raises(SchemaMismatch, match=r"has no level \(onceq 0\.1\.0"):
        levels.check_level(old, "onceq", "shop")


async def _connect(url: str, repository: str) -> None:
    async with onceq.open_async(url, repository=repository):
        pass


def _stream(url: str, repository: str) -> None:
    with spark_driver(Route(url="", conninfo=url, repository=repository)):
        pass


def _reach(url: str, repository: str) -> None:
    with reach(url, repository):
        pass


def _look(url: str, repository: str) -> None:
    with brief_link(locate(url), repository):
        pass


USES: dict[str, Callable[[str, str], object]] = {
    "a queue manager": lambda url, name: onceq.open(url, repository=name),
    "an async one": lambda url, name: asyncio.run(_connect(url, name)),
    "a server": lambda url, name: onceq.Server([OLD]).run(url, repository=name),
    "a link, as of a clerk": _look,
    "Spark": _reach,
    "a session of Spark": _stream,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_use_is_refused(
    conninfo: str, repository: str, use: Callable[[str, str], object]
) -> None:
    with plain(conninfo) as connection:
        newer = f"update {repository}.repository set level = 3, serves = 2"
        connection.execute(newer.encode())
    with pytest.raises(SchemaTooNew, match="level 3 and serves code from level 2 on"):
        use(conninfo, repository)
    with plain(conninfo) as connection:
        older = f"update {repository}.repository set level = null, serves = null"
        connection.execute(older.encode())
    with pytest.raises(SchemaMismatch, match="needs level 1: run `onceq init"):
        use(conninfo, repository)


def test_who_was_connected_is_refused_when_it_connects_again(
    conninfo: str, repository: str
) -> None:
    mine = make_conninfo(conninfo, application_name=repository)
    with (
        onceq.open(mine, repository=repository) as queues,
        queues.clerk("till", RAW) as clerk,
        queues.clerks(connections=1) as clerks,
    ):
        queues.declare(RAW)
        shared = clerks.clerk("other", RAW)
        with plain(conninfo) as connection:
            newer = f"update {repository}.repository set level = 3, serves = 2"
            connection.execute(newer.encode())
            end = (
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"
            )
            connection.execute(end, (repository,))
        for connect in (clerk.connect, shared.connect, lambda: queues.show("raw")):
            wait_until(lambda connect=connect: is_refused(connect))  # type: ignore[misc] # bound now


def is_refused(connect: Callable[[], object]) -> bool:
    """Connects, perhaps by a connection that is lost; returns whether the level was refused."""
    try:
        connect()
    except SchemaTooNew:
        return True
    except OperatingError:
        return False
    return False


def test_the_command_line_is_refused_and_the_doctor_says_why(
    conninfo: str, repository: str
) -> None:
    cli = Cli(conninfo, repository)
    newer = f"update {cli.repository}.repository set level = 3, serves = 2"
    with plain(conninfo) as connection:
        connection.execute(newer.encode())
    assert "upgrade onceq" in cli("queue", "list", code=VIOLATION).err
    assert "upgrade onceq" in cli("init", code=VIOLATION).err
    found = cli.json("doctor", code=VIOLATION).lines[-1]
    assert (found["check"], found["verdict"]) == ("schema", "fail")
    with plain(conninfo) as connection:
        connection.execute(newer.replace("serves = 2", "serves = 1").encode())
    assert cli.json("init").item["changed"] is False
    with onceq.open(conninfo, repository=repository):
        found = {one["check"]: one for one in cli.json("doctor").lines}
    assert found["schema"]["verdict"] == "warn"
    assert "level 3, schema" in found["schema"]["found"]
    assert found["sessions"]["verdict"] == "warn"
    assert "of level 1" in found["sessions"]["found"]
    assert "nothing to do" in cli("init", "--print-sql").out


def test_a_session_asks_once_and_an_async_one_needs_no_other(
    conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    for kind in (OwnConnection, AsyncOwnConnection):
        execute = kind.execute

        def noted(self: object, query: object, *rest: object, _execute: object = execute) -> object:
            asked.append(query)
            return _execute(self, query, *rest)  # type: ignore[operator] # either one's

        monkeypatch.setattr(kind, "execute", noted)
    url = locate(conninfo).conninfo
    connection, _ = open_verified(url, repository, session.settings(), None)
    connection.close()
    assert len(asked) == 1

    async def twice() -> None:
        opened, _ = await async_open_verified(url, repository, session.settings(), None)
        await opened.close()

    asyncio.run(twice())
    assert len(asked) == 2


# --- old and new code at once ---------------------------------------------------------------------


def again(call: Callable[[], T]) -> T:
    """Returns what a call does, at the second time if the first one meets the upgrade."""
    try:
        return call()
    except EnvironmentFault as error:
        if str(error) != OVERTAKEN:
            raise
        return call()


def test_a_call_that_meets_an_upgrade_says_so_and_has_done_nothing(
    conninfo: str, repository: str
) -> None:
    """Its rows get a column after it was called, and before it reads them."""
    with (
        onceq.open(conninfo, repository=repository) as queues,
        plain(conninfo) as upgrade,
        ThreadPoolExecutor() as pool,
    ):
        queues.declare(RAW)
        assert queues.dequeue("raw") is None  # a session that has called it knows its rows
        eid = queues.enqueue(RAW, b"x")
        upgrade.execute(f"begin; {COLUMN.replace('onceq', repository)}".encode())
        call = pool.submit(queues.dequeue, "raw")
        waiting = (
            "select exists (select from pg_locks where not granted and relation = %s::regclass)"
        )
        wait_until(lambda: bool(scalar(conninfo, waiting, f"{repository}.element")))
        upgrade.execute("commit")
        with pytest.raises(EnvironmentFault, match="was upgraded while") as found:
            call.result(LIMIT_S)
        assert found.value.outcome is onceq.Outcome.NOTHING_HAPPENED
        element = queues.dequeue("raw")
        assert element is not None
        assert element.eid == eid


def test_old_and_new_code_work_side_by_side(conninfo: str, repository: str, tmp_path: Path) -> None:
    """The next onceq refuses this schema, and upgrades it while a server and a client are busy."""
    make_next(tmp_path)
    child = NextChild(tmp_path, conninfo, repository)
    try:
        with (
            serving(conninfo, repository, OLD),
            onceq.open(conninfo, repository=repository) as queues,
            queues.clerk("till", RAW) as clerk,
        ):
            clerk.connect()
            before = stamp(conninfo, repository)
            assert child.says().startswith("level 2 is refused: repository")
            assert stamp(conninfo, repository) == before
            child.go_on()
            sent = 0
            while (stamp(conninfo, repository) or MADE).level == 1:
                sent += 1
                again(lambda rid=str(sent): clerk.send(rid, b"x"))  # type: ignore[misc] # bound now
                reply = again(lambda: clerk.receive(timeout_s=LIMIT_S))
                assert reply.value == b"old: x"
            assert sent > 0
            assert child.says() == "upgraded: True"
            child.go_on()
            assert child.says() == "was answered: old: of the new client"
            assert clerk.transceive("after", b"x", timeout_s=LIMIT_S).value == b"old: x"
            assert not migrate.apply_with(conninfo, repository)
            with queues.clerk("later", NEXT) as later:
                later.connect()
                reply = later.transceive("1", b"of the old client", timeout_s=LIMIT_S)
            assert reply.value == b"next: of the old client"
            done = f"select count(*) from {repository}.history where outcome = 'done'"
            assert scalar(conninfo, done) == sent + 3
            child.go_on()
            assert not child.says()
        assert (stamp(conninfo, repository) or MADE).level == 2
    finally:
        child.close()


@pytest.fixture
def level_3(monkeypatch: pytest.MonkeyPatch) -> Generator[pytest.MonkeyPatch]:
    """Makes this process, but for the names of its sessions, one of level 3, which serves 2."""
    with monkeypatch.context() as changed:
        changed.setattr(version, "LEVEL", 3)
        changed.setattr(version, "SERVES", 2)
        yield changed


def test_a_repository_in_use_is_not_upgraded_away_from_its_users(
    conninfo: str, repository: str, level_3: pytest.MonkeyPatch
) -> None:
    level_3.setattr(version, "LEVEL", 1)
    with serving(conninfo, repository, OLD):
        level_3.setattr(version, "LEVEL", 3)
        before = stamp(conninfo, repository)
        with pytest.raises(SchemaMismatch, match=r"does not serve who is at work: pid \d+ \(\w+, "):
            migrate.apply_with(conninfo, repository)
        assert stamp(conninfo, repository) == before
        level_3.setattr(version, "LEVEL", 1)
    level_3.setattr(version, "LEVEL", 3)
    assert migrate.apply_with(conninfo, repository)
    level_3.setattr(version, "LEVEL", 1)
    with pytest.raises(SchemaTooNew):
        onceq.open(conninfo, repository=repository)


@pytest.mark.usefixtures("level_3")
def test_users_of_a_former_level_are_known_by_their_names(conninfo: str, repository: str) -> None:
    """Of a repository whose own level is served: who says nothing is taken for one of that."""
    with plain(conninfo) as connection:
        at_2 = f"update {repository}.repository set level = 2, serves = 1"
        connection.execute(at_2.encode())
    names = {"onceq level 1": True, "onceq level 2": False, "till": False}
    for name, is_refused in {**names, f"onceq level {10**10}": False}.items():
        with plain(make_conninfo(conninfo, application_name=name)) as user:
            slot = f"select pg_advisory_lock('{repository}.server'::regclass::oid::integer, 9)"
            user.execute(slot.encode())
            if is_refused:
                with pytest.raises(SchemaMismatch, match=name):
                    migrate.apply_with(conninfo, repository)
            else:
                migrate.apply_with(conninfo, repository)
                assert (stamp(conninfo, repository) or MADE).level == 3
                with plain(conninfo) as connection:
                    connection.execute(at_2.encode())
