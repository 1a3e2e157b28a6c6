"""`onceq repository list` and `show`; what is being destroyed is in test_destroy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import onceq
from onceq.version import LEVEL
from tests.cli.parts import run_here
from tests.parts import plain, serving, wait_until
from tests.upgrade.former import make_former

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.cli.parts import Cli

RAW = onceq.Queue("raw", bytes, bytes)


def echo(body: bytes, _context: onceq.Context) -> bytes:
    return body


def row_of(cli: Cli) -> dict[str, Any]:
    (row,) = (one for one in cli.json("repository", "list").lines if one["name"] == cli.repository)
    return row


def test_the_repositories_of_a_database_are_listed(cli: Cli, qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    row = row_of(cli)
    found = {name: row[name] for name in ("state", "level", "queues", "depth", "sessions")}
    assert found == {"state": "ok", "level": LEVEL, "queues": 2, "depth": 1, "sessions": 0}
    assert row["bytes"] > 100_000
    header, *lines = cli("repository", "list").out.splitlines()
    assert header.split()[:4] == ["name", "state", "level", "schema"]
    assert any(line.split()[:3] == [cli.repository, "ok", str(LEVEL)] for line in lines)


def test_a_repository_is_known_by_what_is_in_it(cli: Cli, repository_name: str) -> None:
    with plain(cli.url) as connection:
        made = "create schema {0}; create table {0}.repository (name text)"
        connection.execute(made.format(repository_name).encode())
    names = [one["name"] for one in cli.json("repository", "list").lines]
    assert cli.repository in names
    assert repository_name not in names
    for verb in ("show", "destroy"):
        answer = cli("repository", verb, repository_name, code=3)
        assert f"schema '{repository_name}' is there, and is not one" in answer.err


def test_one_of_a_former_onceq_is_listed_without_figures(cli: Cli, repository_name: str) -> None:
    make_former(cli.url, repository_name, "0.1.0")
    former = next(
        one for one in cli.json("repository", "list").lines if one["name"] == repository_name
    )
    assert (former["state"], former["level"], former["depth"]) == ("to be upgraded", 0, None)
    assert former["bytes"] > 0
    assert cli.json("repository", "show", repository_name).item["queues"] is None


@pytest.mark.parametrize(("serves", "state"), [(99, "newer than this onceq"), (1, "ok")])
def test_one_of_a_later_onceq_is_listed(cli: Cli, serves: int, state: str) -> None:
    with plain(cli.url) as connection:
        newer = f"update {cli.repository}.repository set level = 99, serves = {serves}"
        connection.execute(newer.encode())
    row = row_of(cli)
    assert (row["state"], row["level"], row["serves"]) == (state, 99, serves)
    assert (row["depth"] is None) == (state != "ok")


def test_one_that_is_locked_or_not_to_be_read_is_listed(cli: Cli) -> None:
    with plain(cli.url) as connection:
        connection.execute(f"begin; lock table {cli.repository}.element".encode())
        row = row_of(cli)
        shown = cli.json("repository", "show").item
        connection.execute(b"rollback")
        assert (row["state"], row["level"], row["sessions"]) == ("locked", LEVEL, 1)
        assert f"pid {connection.info.backend_pid} " in shown["holders"]
        role = f"{cli.repository}_reader"
        connection.execute(f"create role {role} login".encode())
        try:
            reader = make_conninfo(cli.url, user=role)
            answer = run_here("repository", "list", "--url", reader, "--json")
        finally:
            connection.execute(f"drop role {role}".encode())
    assert answer.code == 0
    row = next(one for one in answer.lines if one["name"] == cli.repository)
    assert (row["state"], row["level"], row["depth"]) == ("no right", None, None)


def test_one_repository_is_shown(cli: Cli, qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        with serving(cli.url, cli.repository, RAW.handled_by(echo)):
            wait_until(lambda: bool(qm.lookup("1", state="replied")))
            at_work = cli.json("repository", "show").item
        clerk.receive()
        clerk.acknowledge(["1"])
        clerk.disconnect()
    assert (at_work["servers"], at_work["replies"], at_work["connected"]) == (1, 1, 1)
    assert at_work["sessions"] > 0
    qm.enqueue(RAW, b"y")
    item = cli.json("repository", "show", cli.repository).item
    counts = ("request_queues", "reply_queues", "error_queues", "datagrams", "requests", "depth")
    assert [item[name] for name in counts] == [1, 1, 1, 1, 0, 1]
    assert (item["clients"], item["connected"], item["archive"]) == (1, 0, None)
    lines = dict(line.split(None, 1) for line in cli("repository", "show").out.splitlines())
    assert (lines["state"], lines["datagrams"], lines["archive"]) == ("ok", "1", "-")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("show", "never_made"), 3, "it has no schema 'never_made'"),
        (("destroy", "never_made", "--yes"), 3, "`onceq repository list`"),
        (("show", "n" * 64), 2, "at most 40"),
        (("destroy", "n" * 64, "--yes"), 2, "at most 40"),
        (("destroy", "public", "--yes"), 2, "belongs to PostgreSQL"),
        (("destroy", 'a"; drop schema b', "--yes"), 2, "is not valid"),
        (("destroy",), 2, "NAME"),
    ],
)
def test_what_is_no_repository_is_refused(
    cli: Cli, words: tuple[str, ...], code: int, said: str
) -> None:
    assert said in cli("repository", *words, code=code).err
    assert row_of(cli)["state"] == "ok"


@pytest.mark.parametrize("words", [("list",), ("show", "shop"), ("destroy", "shop", "--yes")])
def test_a_database_that_cannot_be_reached(tmp_path: Path, words: tuple[str, ...]) -> None:
    nowhere = f"postgresql:///x?host={tmp_path}"
    assert run_here("repository", *words, "--url", nowhere).code == 4
    embedded = run_here("repository", *words, "--url", f"embedded:{tmp_path / 'data'}")
    assert (embedded.code, "`onceq init` makes it" in embedded.err) == (4, True)
    assert not (tmp_path / "data").exists()


def test_names_of_schemas_are_quoted(cli: Cli, repository_name: str) -> None:
    """A schema may have been renamed: it is listed, whatever its name is by now."""
    odd = f'{repository_name} "x" %s'
    assert run_here("init", "--url", cli.url, "--repository", repository_name).code == 0
    with plain(cli.url) as connection:
        rename = sql.SQL("alter schema {} rename to {}")
        to_odd = map(sql.Identifier, (repository_name, odd))
        back = map(sql.Identifier, (odd, repository_name))
        connection.execute(rename.format(*to_odd))
        try:
            names = [one["name"] for one in cli.json("repository", "list").lines]
        finally:
            connection.execute(rename.format(*back))
    assert odd in names
