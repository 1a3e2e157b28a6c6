"""`onceq repository destroy`: never while anything waits, never more, and to the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

import onceq
from onceq.cli.main import make_app
from onceq.engine.embedded import stop_embedded
from onceq.engine.schema import destroying
from onceq.errors import IllegalState
from tests.cli.destroys import RAW, destroy, is_there, opened, state
from tests.cli.parts import Cli, run_here
from tests.parts import Background, plain, scalar, serving, wait_until
from tests.upgrade.former import FORMER, make_former
from tests.upgrade.looks import shape

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg


def echo(body: bytes, _context: onceq.Context) -> bytes:
    return body


def refuse(_body: bytes, _context: onceq.Context) -> bytes:
    raise ValueError("no")


def request(cli: Cli) -> None:
    with opened(cli) as qm, qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")


def reply(cli: Cli) -> None:
    request(cli)
    _serve(cli, echo, lambda qm: bool(qm.lookup("1", state="replied")))
    with plain(cli.url) as connection:
        connection.execute(
            f"update {cli.repository}.registrant set state = 'disconnected'".encode()
        )


def datagram(cli: Cli) -> None:
    with opened(cli) as qm:
        qm.enqueue(RAW, b"x")


def failed(cli: Cli) -> None:
    datagram(cli)

    _serve(cli, refuse, lambda qm: qm.show("raw.error").held == 1)


def connected(cli: Cli) -> None:
    with opened(cli) as qm, qm.clerk("till", RAW):
        pass


def relay(cli: Cli) -> None:
    with plain(cli.url) as connection:
        planned = (
            "insert into {0}.stream_relay (name, queue_id, topic, session, claim) "
            "select 'prices', queue_id, 't', 's', 7 from {0}.queue where name = 'raw'; "
            "insert into {0}.stream_plan values ('prices', 1, 1)"
        )
        connection.execute(planned.format(cli.repository).encode())


def _serve(
    cli: Cli,
    handler: Callable[[bytes, onceq.Context], bytes],
    until: Callable[[onceq.QueueManager], bool],
) -> None:
    served = RAW.handled_by(handler)
    with serving(cli.url, cli.repository, served), opened(cli) as qm:
        wait_until(lambda: until(qm))


WAITS: dict[Callable[[Cli], None], str] = {
    request: "1 request(s) in queue raw",
    reply: "1 reply(s) in queue reply-1",
    datagram: "1 datagram(s) in queue raw",
    failed: "1 failed element(s) in queue raw.error",
    connected: "connected client till",
    relay: "1 relay(s) in prices",
}


@pytest.mark.parametrize("made", WAITS, ids=lambda made: made.__name__)
def test_nothing_is_destroyed_while_anything_waits(mine: Cli, made: Callable[[Cli], None]) -> None:
    made(mine)
    before = shape(mine.url, mine.repository)
    said = destroy(mine, code=1)
    assert WAITS[made] in said
    assert any(advice in said for advice in destroying.ADVICE.values())
    assert (shape(mine.url, mine.repository), state(mine)) == (before, "ok")


def test_nothing_is_destroyed_while_somebody_serves(mine: Cli) -> None:
    with serving(mine.url, mine.repository, RAW.handled_by(echo)):
        assert "session pid " in destroy(mine, code=1)
    wait_until(lambda: mine.json("repository", "show").item["sessions"] == 0)
    destroy(mine)


def test_what_is_sent_while_it_looks_is_not_lost(
    mine: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks when nobody can write any more, and not only before it asks for the name."""
    begin = destroying._begin
    with plain(mine.url) as sender, plain(mine.url) as connection:

        def commit() -> None:
            here = "select count(*) from pg_locks where not granted and relation = %s::regclass"
            wait_until(lambda: scalar(mine.url, here, f"{mine.repository}.element") > 0)
            sender.execute(b"commit")

        def begin_late(connection: psycopg.Connection[object], name: str) -> int:
            monkeypatch.undo()
            sender.execute(b"begin")
            onceq.enqueue(sender, RAW, b"x", repository=mine.repository)
            commits = Background(commit)
            try:
                return begin(connection, name)
            finally:
                commits.result()

        monkeypatch.setattr(destroying, "_begin", begin_late)
        with pytest.raises(IllegalState, match=r"1 datagram\(s\) in queue raw"):
            destroying.destroy(connection, mine.repository, wait_s=60)
    assert state(mine) == "ok"


def test_an_open_transaction_is_waited_for(mine: Cli) -> None:
    with plain(mine.url) as sender, plain(mine.url) as reader:
        sender.execute(b"begin")
        onceq.enqueue(sender, RAW, b"x", repository=mine.repository)
        assert f"session pid {sender.info.backend_pid} " in destroy(mine, code=1)
        sender.execute(b"rollback")
        reader.execute(f"begin; lock table {mine.repository}.element in share mode".encode())
        said = destroy(mine, "--timeout", "0.1", code=1)
        assert f"held by pid {reader.info.backend_pid} " in said
    assert state(mine) == "ok"
    destroy(mine)


def test_a_repository_goes_and_nothing_else(mine: Cli, cli: Cli) -> None:
    with opened(mine) as qm, qm.clerk("till", RAW, keep=1) as clerk:
        clerk.send("1", b"x")
        served = RAW.handled_by(echo)
        with serving(mine.url, mine.repository, served):
            clerk.receive()
        clerk.acknowledge(["1"])
        clerk.disconnect()
    with plain(mine.url) as connection:
        others = f"{mine.repository}_others"
        connection.execute(
            f"create schema {others}; create table {others}.element (x int)".encode()
        )
        before = shape(mine.url, cli.repository), shape(mine.url, others)
        try:
            wait_until(lambda: mine.json("repository", "show").item["sessions"] == 0)
            item = mine.json("repository", "destroy", mine.repository, "--yes").item
            assert (shape(mine.url, cli.repository), shape(mine.url, others)) == before
        finally:
            connection.execute(f"drop schema {others} cascade".encode())
    assert (item["repository"], item["destroyed"]) == (mine.repository, True)
    assert not is_there(mine)
    mine("repository", "destroy", mine.repository, "--yes", code=3)
    mine("init")
    assert state(mine) == "ok"


@pytest.mark.parametrize(
    ("made", "undone", "said"),
    [
        ("table {r}.books (x int)", "table {r}.books", "table {r}.books; move that"),
        (
            "function {r}.audit() returns int language sql as 'select 1'",
            "function {r}.audit()",
            "function {r}.audit(); move that",
        ),
        ("view {r}_v as select name from {r}.queues", "view {r}_v", "view {r}_v; drop"),
        ("table {r}_t (x {r}.outcome)", "table {r}_t", "column x of table {r}_t; drop"),
        (
            "table {r}_k (q integer references {r}.queue)",
            "table {r}_k",
            "on table {r}_k; drop",
        ),
    ],
)
def test_what_is_not_the_repositorys_is_never_dropped(
    mine: Cli, made: str, undone: str, said: str
) -> None:
    with plain(mine.url) as connection:
        connection.execute(f"create {made.format(r=mine.repository)}".encode())
        try:
            before = shape(mine.url, mine.repository)
            assert said.format(r=mine.repository) in destroy(mine, code=1)
            assert (shape(mine.url, mine.repository), state(mine)) == (before, "ok")
        finally:
            connection.execute(f"drop {undone.format(r=mine.repository)}".encode())
    destroy(mine)
    assert not is_there(mine)


@pytest.mark.parametrize("change", ["level = 99", "level = null, serves = null"])
def test_one_of_another_onceq_is_not_destroyed(mine: Cli, change: str) -> None:
    with plain(mine.url) as connection:
        connection.execute(f"update {mine.repository}.repository set {change}".encode())
    assert "another onceq made it" in destroy(mine, code=1)
    assert is_there(mine)


@pytest.mark.parametrize("release", FORMER)
def test_one_of_a_former_release_is_upgraded_first(
    conninfo: str, repository_name: str, release: str
) -> None:
    make_former(conninfo, repository_name, release)
    former = Cli(conninfo, repository_name)
    assert f"run `onceq init --repository {repository_name}`" in destroy(former, code=1)
    former("init")
    destroy(former)
    assert not is_there(former)


def test_only_its_owner_destroys_it(mine: Cli) -> None:
    role = f"{mine.repository}_other"
    with plain(mine.url) as connection:
        grants = (
            f"create role {role} login; grant usage on schema {mine.repository} to {role}; "
            f"grant all on all tables in schema {mine.repository} to {role}"
        )
        connection.execute(grants.encode())
        try:
            before = shape(mine.url, mine.repository)
            other = make_conninfo(mine.url, user=role)
            words = ("repository", "destroy", mine.repository, "--yes", "--url", other)
            answer = run_here(*words)
        finally:
            connection.execute(f"drop owned by {role}; drop role {role}".encode())
    assert (answer.code, f"role '{role}' may not destroy" in answer.err) == (1, True)
    assert (shape(mine.url, mine.repository), state(mine)) == (before, "ok")


@pytest.mark.parametrize(
    ("typed", "code"), [("{r}\n", 0), ("{r}", 0), ("yes\n", 2), ("", 2), ("{r}x\n", 2)]
)
def test_the_name_is_typed_again(mine: Cli, typed: str, code: int) -> None:
    words = ["--url", mine.url, "repository", "destroy", mine.repository, "--json"]
    runner = CliRunner()
    result = runner.invoke(make_app(), words, input=typed.format(r=mine.repository))
    assert result.exit_code == code, result.stderr
    assert f"this destroys repository '{mine.repository}'" in result.stderr
    assert is_there(mine) == (code != 0)
    assert result.stdout.startswith('{"v":1') or code


def test_what_is_refused_is_not_asked_for(mine: Cli) -> None:
    datagram(mine)
    answer = mine("repository", "destroy", mine.repository, code=1)
    assert "this destroys" not in answer.err


def test_an_embedded_one_is_destroyed(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'data'}"
    with contextlib.ExitStack() as undone:
        undone.callback(lambda: stop_embedded(tmp_path / "data", force=True))
        for name in ("shop", "till"):
            assert run_here("init", "--url", url, "--repository", name).code == 0
        words = ("repository", "destroy", "shop", "--yes", "--url", url, "--json")
        assert run_here(*words).item["destroyed"] is True
        assert run_here(*words).code == 3
        (left,) = run_here("repository", "list", "--url", url, "--json").lines
        assert (left["name"], left["state"]) == ("till", "ok")
