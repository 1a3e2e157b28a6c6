"""`onceq init`, `url`, `psql`, `stop`, `version`, `doctor`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceq.cli import judging
from onceq.cli.main import make_app
from onceq.engine.connect import address
from onceq.engine.connect.connection import Link
from onceq.engine.embedded import find_binaries, stop_embedded
from onceq.engine.embedded.locate import Located, locate
from onceq.engine.schema.health import database_facts
from onceq.model import admin_ops, ops
from onceq.version import __version__
from tests.cli.parts import Cli, run_here
from tests.parts import plain, scalar, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import typer


@pytest.fixture
def embedded_url(tmp_path: Path) -> Iterator[str]:
    """An embedded directory that is not there yet; its server is stopped afterwards."""
    yield f"embedded:{tmp_path / 'data'}"
    stop_embedded(tmp_path / "data", force=True)


def test_init_is_idempotent(conninfo: str, repository_name: str) -> None:
    words = ("init", "--url", conninfo, "--repository", repository_name, "--json")
    assert '"changed":true' in run_here(*words).out
    assert '"changed":false' in run_here(*words).out


def test_the_printed_sql_makes_the_same(conninfo: str, repository_name: str) -> None:
    printed = run_here("init", "--print-sql", "--repository", repository_name)
    assert printed.code == 0
    psql = find_binaries().program("psql")
    command = [str(psql), conninfo, "-q", "-v", "ON_ERROR_STOP=1"]
    subprocess.run(command, input=printed.out, text=True, check=True, stdout=subprocess.DEVNULL)
    words = ("--url", conninfo, "--repository", repository_name, "--json")
    assert '"changed":false' in run_here("init", *words).out
    assert run_here("queue", "create", "orders", *words).code == 0


def test_version(cli: Cli) -> None:
    assert cli.json("version").item["version"] == __version__
    assert cli("version").out.strip() == f"onceq {__version__}"


def test_url_opens_the_same_database(cli: Cli) -> None:
    url = cli("url").out.strip()
    assert url.startswith("postgresql://")
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("select to_regclass(%s)", [f"{cli.repository}.queue"]).fetchone()
    assert found is not None
    assert found[0] is not None


@pytest.mark.parametrize(
    ("conninfo", "url"),
    [
        ("host=h user=u password='p@:/' dbname=d", "postgresql://u:***@h/d"),
        ("host=a,b port=1,2 dbname=d", "postgresql://a:1,b:2/d"),
        ("host=a,b port=9", "postgresql://a:9,b:9/"),
        ("host=::1 sslmode=require", "postgresql://[::1]/?sslmode=require"),
        ("service=shop", "postgresql:///?service=shop"),
    ],
)
def test_urls_are_masked(conninfo: str, url: str) -> None:
    assert address.as_url(conninfo, show_password=False) == url


def test_a_password_is_shown_when_asked_for() -> None:
    url = address.as_url("host=h user=u password='p@:/'", show_password=True)
    assert url == "postgresql://u:p%40%3A%2F@h/"
    assert address.without_password("user=u password=x") == ("user=u", "x")


def test_a_search_path_keeps_other_options() -> None:
    given = address.with_search_path("host=h options='-c a=b'", '"$user", public,r', "-c c=d")
    assert conninfo_to_dict(given)["options"] == '-c a=b -c search_path="$user",\\ public,r'
    inherited = address.with_search_path("host=h", "r", "-c c=d")
    assert conninfo_to_dict(inherited)["options"] == "-c c=d -c search_path=r"


def test_psql_sees_the_repository(cli: Cli) -> None:
    process = cli.start("psql", "--", "-At", "-c", "select count(*) from queues")
    assert process.communicate(timeout=150)[0].strip() == "0"
    assert process.returncode == 0


def test_psql_makes_tables_where_handlers_look_for_them(embedded_url: str) -> None:
    embedded = Cli(embedded_url, "onceq")
    assert run_here("init", "--url", embedded_url).code == 0
    made = embedded.start("psql", "--", "-q", "-c", "create table history (x text)")
    made.communicate(timeout=150)
    with contextlib.closing(locate(embedded_url)) as located:
        found = scalar(located.conninfo, "select 'history'::regclass = 'public.history'::regclass")
    assert (made.returncode, found) == (0, True)


def test_stop_is_for_embedded_only(cli: Cli, embedded_url: str) -> None:
    assert "embedded" in cli("stop", code=2).err
    assert run_here("init", "--url", embedded_url).code == 0
    assert '"stopped":false' in run_here("stop", "--url", embedded_url, "--json").out
    using = (
        "import sys; from onceq.engine.embedded import open_embedded\n"
        "server = open_embedded(sys.argv[1]); print(flush=True); sys.stdin.read()"
    )
    user = subprocess.Popen(
        [sys.executable, "-c", using, embedded_url.removeprefix("embedded:")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(cli.environment()),
    )
    assert user.stdout is not None
    user.stdout.readline()
    in_use = run_here("stop", "--url", embedded_url)
    assert (in_use.code, "in use" in in_use.err) == (4, True)
    assert '"stopped":true' in run_here("stop", "--url", embedded_url, "--json", "--force").out
    user.communicate(timeout=150)


def test_a_command_that_made_a_postgresql_says_so(embedded_url: str) -> None:
    first, second = (run_here("error", "list", "--url", embedded_url) for _ in range(2))
    assert (first.code, second.code) == (0, 0)
    assert f"made a new PostgreSQL in {embedded_url.removeprefix('embedded:')}" in first.err
    assert second.err == ""


def test_doctor_finds_nothing_wrong(cli: Cli) -> None:
    found = cli.json("doctor").lines
    assert {one["verdict"] for one in found} <= {"ok", "warn"}
    checks = {one["check"] for one in found}
    assert {"connection", "postgresql", "durability", "schema", "servers", "queues"} <= checks
    assert "schema" in cli("doctor").out


def test_doctor_fails(cli: Cli, conninfo: str, repository: str, tmp_path: Path) -> None:
    with plain(conninfo) as connection:
        connection.execute(f"drop schema {repository} cascade".encode())
    answer = cli.json("doctor", code=1)
    schema = next(one for one in answer.lines if one["check"] == "schema")
    assert schema["verdict"] == "fail"
    assert "onceq init" in schema["found"]
    nothing = run_here("doctor", "--url", f"embedded:{tmp_path / 'none'}", "--json")
    assert (nothing.code, "onceq init" in nothing.out) == (4, True)
    assert not (tmp_path / "none").exists()
    nowhere = run_here("doctor", "--url", "postgresql://127.0.0.1:1/x")
    assert "check the URL and that the server is running" in nowhere.out
    assert "onceq doctor" not in answer.out + nothing.out + nowhere.out
    (unknown,) = run_here("doctor", "--url", "postgresql://nosuch.invalid/x", "--json").lines
    assert unknown["advice"] == "check the host in the URL"
    assert nowhere.code == 4


def test_doctor_judges_settings(conninfo: str) -> None:
    facts = database_facts(conninfo)
    assert (facts.isolation, facts.synchronous_commit) == ("read committed", "on")
    settings = "-c default_transaction_isolation=serializable -c synchronous_commit=off"
    facts = database_facts(make_conninfo(conninfo, options=settings))
    assert judging.isolation(facts).verdict == "warn"
    assert judging.durability(facts).verdict == "warn"
    assert judging.writable(facts).verdict == "ok"
    assert judging.disk(10_000_000).verdict == "fail"
    assert judging.disk(500_000_000).verdict == "warn"


def test_doctor_sees_what_a_dead_server_holds(cli: Cli) -> None:
    cli("queue", "create", "orders")
    located: Located = locate(cli.url)
    dead = Link(located, cli.repository)
    dead.reconnect()
    life = dead.perform(ops.OpenIncarnation(process=uuid.uuid4(), host="gone", pid=1))
    dead.perform(ops.Enqueue(queue="orders", body=b"x"))
    (queue,) = [one for one in dead.perform(ops.ListQueues()) if one.name == "orders"]
    claim = ops.Claim(
        incarnation=life.incarnation, queue_id=queue.queue_id, n=1, turn=1, alone=True
    )
    assert len(dead.perform(claim)) == 1
    (alive,) = dead.perform(admin_ops.ListServers())
    assert (alive.alive, alive.claims, alive.host) == (True, 1, "gone")
    dead.close()
    gone = f"select count(*) = 0 from {cli.repository}.servers where alive"
    wait_until(lambda: scalar(cli.url, gone) is True)
    servers = next(one for one in cli.json("doctor").lines if one["check"] == "servers")
    assert (servers["verdict"], "hold 1" in servers["found"]) == ("warn", True)


def test_the_command_line_does_not_grow_with_each_use() -> None:
    """It is made anew for each command of a test, or of a program: thousands of times."""

    def commands(app: typer.Typer) -> int:
        below = [one.typer_instance for one in app.registered_groups]
        return len(app.registered_commands) + sum(commands(one) for one in below if one)

    assert commands(make_app()) == commands(make_app()) > 20
