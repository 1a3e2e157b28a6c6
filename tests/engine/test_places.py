"""Where a repository is, and what is wrong there: URL, schema, version, role, pooler, settings."""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import onceq
from onceq.cli.exits import VIOLATION
from onceq.engine.embedded import find_binaries, open_embedded, stop_embedded
from onceq.engine.embedded.locate import resolve_url
from onceq.engine.schema import migrate
from onceq.engine.sessions import session
from onceq.errors import (
    CannotConnect,
    InvalidValue,
    PoolerDetected,
    PostgresTooOld,
    SchemaMismatch,
    SchemaMissing,
    SchemaTooNew,
    StatementRefused,
)
from tests.cli.parts import Cli
from tests.engine.pooler import pooling
from tests.parts import install_variant, plain, rows, scalar, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

RAW = onceq.Queue("raw", bytes, bytes)
WAIT_S = 60


def echo(request: bytes, _: onceq.Context) -> bytes:
    return request


def use(url: str, repository: str) -> None:
    """The basic flow: declare, send, serve, receive, enqueue in a transaction, dequeue, kill."""
    with (
        onceq.open(url, repository=repository) as qm,
        serving(url, repository, RAW.handled_by(echo)),
        qm.clerk("till", RAW) as clerk,
    ):
        assert clerk.transceive("1", b"x", checkpoint=b"c", timeout_s=WAIT_S).value == b"x"
        qm.stop("raw", enqueue=False)
        with psycopg.connect(url) as connection:
            onceq.enqueue(connection, RAW, b"y", repository=repository)
        eid = qm.enqueue(RAW, b"z")
        assert qm.kill(eid) is onceq.KillAnswer.KILLED
        qm.start("raw")
        clerk.disconnect()
    with onceq.open(url, repository=repository) as qm:
        assert qm.lookup("1")[0].outcome == "done"


# --- URLs ---------------------------------------------------------------------------------------

NOT_URLS = [
    "nonsense",
    "mysql://localhost/db",
    "postgresql://localhost:notaport/db",
    "postgresql://localhost/db?no_such_parameter=1",
    "host=localhost no_such_parameter=1",
    "embedded:",
    "\0",
]


@pytest.mark.parametrize("url", NOT_URLS)
def test_what_is_no_url_is_said_to_be_none(url: str) -> None:
    with pytest.raises((InvalidValue, CannotConnect)) as refused:
        onceq.open(url)
    assert refused.value.outcome is onceq.Outcome.NOTHING_HAPPENED


UNREACHABLE = {
    "no server": "postgresql://127.0.0.1:1/db",
    "no socket": "host=/nonexistent dbname=db",
    "no such host": "host=host.invalid dbname=db connect_timeout=2",
}


@pytest.mark.parametrize("url", UNREACHABLE.values(), ids=UNREACHABLE)
def test_a_server_that_cannot_be_reached(url: str) -> None:
    with pytest.raises(CannotConnect, match="cannot connect to PostgreSQL"):
        onceq.open(url)


@pytest.mark.parametrize("wrong", [{"dbname": "no_such_database"}, {"user": "no_such_role"}])
def test_a_database_or_role_that_is_not_there(conninfo: str, wrong: dict[str, str]) -> None:
    with pytest.raises(CannotConnect, match="does not exist"):
        onceq.open(make_conninfo(conninfo, **wrong))


def test_a_secret_is_not_in_the_error() -> None:
    with pytest.raises(CannotConnect) as refused:
        onceq.open("postgresql://user:hunter2@127.0.0.1:1/db")
    assert "hunter2" not in str(refused.value)


def test_the_environment_names_the_repository_when_the_program_does_not() -> None:
    both = {"ONCEQ_URL": "a", "DATABASE_URL": "b", "PGHOST": "c"}
    assert resolve_url("given", both) == "given"
    assert resolve_url(None, both) == "a"
    assert resolve_url(None, {"DATABASE_URL": "b", "PGHOST": "c"}) == "b"
    assert resolve_url(None, {"PGSERVICE": "s"}) == ""
    with pytest.raises(InvalidValue, match="no repository is named"):
        resolve_url(None, {})


def test_a_connection_is_no_url(conninfo: str) -> None:
    """The message names what it is, and where one may be given."""
    with plain(conninfo) as given, pytest.raises(InvalidValue) as refused:
        onceq.open(cast("Any", given))
    assert "not psycopg.Connection: give embedded:PATH" in str(refused.value)
    assert "`connection`" in str(refused.value)


def test_a_url_in_either_form(conninfo: str, repository: str) -> None:
    parts = {key: str(value) for key, value in conninfo_to_dict(conninfo).items() if value}
    host = urllib.parse.quote(parts["host"], safe="")
    use(f"postgresql://{parts['user']}@/{parts['dbname']}?host={host}", repository)


# --- the schema ---------------------------------------------------------------------------------


def test_a_schema_that_is_missing(conninfo: str, repository_name: str) -> None:
    with pytest.raises(SchemaMissing, match=f"onceq init --repository {repository_name}"):
        onceq.open(conninfo, repository=repository_name)
    with psycopg.connect(conninfo) as connection, pytest.raises(SchemaMissing):
        onceq.enqueue(connection, RAW, b"x", repository=repository_name)
    with plain(conninfo) as connection:
        connection.execute(f"create schema {repository_name}".encode())
    with pytest.raises(SchemaMissing):
        onceq.open(conninfo, repository=repository_name)


@pytest.mark.parametrize("newer", ["schema_version = 99", "level = 99, serves = 98"])
def test_a_schema_newer_than_this_program(conninfo: str, repository: str, newer: str) -> None:
    with plain(conninfo) as connection:
        connection.execute(f"update {repository}.repository set {newer}".encode())
    with pytest.raises(SchemaTooNew, match="upgrade onceq"):
        onceq.open(conninfo, repository=repository)
    with pytest.raises(SchemaTooNew):
        migrate.apply_with(conninfo, repository)


def test_functions_of_another_version_are_brought_up_to_date(
    conninfo: str, repository: str
) -> None:
    with plain(conninfo) as connection:
        other = f"update {repository}.repository set functions_sha256 = 'of another'"
        connection.execute(other.encode())
    with pytest.raises(SchemaMismatch, match="onceq init"):
        onceq.open(conninfo, repository=repository)
    assert migrate.apply_with(conninfo, repository)
    assert not migrate.apply_with(conninfo, repository)
    use(conninfo, repository)


def test_what_had_other_parameters_before_is_gone_and_what_is_the_users_stays(
    conninfo: str, repository: str
) -> None:
    with plain(conninfo) as connection:
        for name in ("claim", "mine"):
            former = f"create function {repository}.{name}(a integer) returns int return 1"
            connection.execute(former.encode())
        other = f"update {repository}.repository set functions_sha256 = 'of another'"
        connection.execute(other.encode())
    assert migrate.apply_with(conninfo, repository)
    found = (
        "select proname::text, count(*) from pg_proc where proname in ('claim', 'mine')"
        " and pronamespace = %s::regnamespace group by 1 order by 1"
    )
    assert rows(conninfo, found, repository) == [("claim", 1), ("mine", 1)]


def test_a_server_that_is_too_old(
    conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "OLDEST_POSTGRES", 99)
    for call in (
        lambda: onceq.open(conninfo, repository=repository),
        lambda: migrate.apply_with(conninfo, repository),
        lambda: onceq.Server([RAW.handled_by(echo)]).run(conninfo, repository=repository),
    ):
        with pytest.raises(PostgresTooOld, match="onceq needs 99 or newer"):
            call()


def test_the_older_postgresql_of_the_wheel_serves_as_well(tmp_path: Path) -> None:
    directory = tmp_path / "older"
    with open_embedded(directory, binaries=find_binaries(16)) as server:
        version = scalar(server.conninfo, "select current_setting('server_version_num')")
        assert version.startswith("16")
        migrate.apply_with(server.conninfo, "older")
        use(server.conninfo, "older")
        eid = scalar(server.conninfo, "select eid from older.history limit 1")
        assert eid.version == 7  # ours, where PostgreSQL has none
    stop_embedded(directory, force=True)
    wanted = session.settings(limit_s=5)
    assert "transaction_timeout" not in session.set_text(wanted, 160000)
    assert "transaction_timeout = '5s'" in session.set_text(wanted, 170000)


# --- roles and settings -------------------------------------------------------------------------


@pytest.fixture
def role(conninfo: str, repository_name: str) -> Generator[str]:
    """A plain role, with CREATE on the database and nothing else."""
    name = sql.Identifier(f"{repository_name}_role")
    with plain(conninfo) as connection:
        connection.execute(sql.SQL("create role {} login").format(name))
        grant = sql.SQL("grant create on database {} to {}")
        connection.execute(grant.format(sql.Identifier(connection.info.dbname), name))
        yield f"{repository_name}_role"
        connection.execute(sql.SQL("drop owned by {} cascade").format(name))
        connection.execute(sql.SQL("drop role {}").format(name))


def test_a_plain_role_needs_create_on_the_database_and_no_more(
    conninfo: str, repository_name: str, role: str
) -> None:
    as_role = make_conninfo(conninfo, user=role)
    assert rows(as_role, "select rolsuper from pg_roles where rolname = current_user") == [(False,)]
    assert migrate.apply_with(as_role, repository_name)
    use(as_role, repository_name)


@pytest.mark.parametrize("made_before", [False, True], ids=["now", "by an older version"])
def test_what_a_member_of_the_owners_role_makes_is_the_owners(
    conninfo: str,
    repository_name: str,
    role: str,
    *,
    made_before: bool,
) -> None:
    """A server makes sequences; the owner, and pg_dump as the owner, must be able to read them."""
    owner, member = sql.Identifier(role), sql.Identifier(f"{role}_member")
    as_owner, as_member = (make_conninfo(conninfo, user=x) for x in (role, f"{role}_member"))
    migrate.apply_with(as_owner, repository_name)
    foreign = f"select sequence::text from {repository_name}.foreign_sequences()"
    with plain(conninfo) as connection:
        connection.execute(sql.SQL("create role {} login in role {}").format(member, owner))
        try:
            if made_before:
                install_variant(
                    conninfo, repository_name, "make_sequence", ("security definer", "")
                )
            use(as_member, repository_name)
            assert bool(rows(conninfo, foreign)) == made_before
            if made_before:
                repair(as_member, conninfo, repository_name)
            assert rows(conninfo, foreign) == []
            assert rows(as_owner, f"select is_called from {repository_name}.started_1")
        finally:
            connection.execute(sql.SQL("drop owned by {} cascade").format(member))
            connection.execute(sql.SQL("drop role {}").format(member))


def repair(as_member: str, conninfo: str, repository: str) -> None:
    """The doctor sees sequences of another role, and `init` gives them to the owner."""
    install_variant(conninfo, repository, "make_sequence")
    cli = Cli(as_member, repository)
    assert "sequence(s) of another role" in cli("doctor", code=VIOLATION).out
    assert migrate.apply_with(as_member, repository)
    assert "sequence(s) of another role" not in cli("doctor").out
    assert not migrate.apply_with(as_member, repository)


def test_a_role_that_may_not_is_told_so(conninfo: str, repository_name: str, role: str) -> None:
    as_role = make_conninfo(conninfo, user=role)
    with plain(conninfo) as connection:
        revoke = sql.SQL("revoke create on database {} from {}")
        database = sql.Identifier(connection.info.dbname)
        connection.execute(revoke.format(database, sql.Identifier(role)))
    advice = (
        rf"permission denied .*; grant role '{role}' what docs/deploy\.md#roles lists, or run as"
    )
    with pytest.raises(StatementRefused, match=advice):
        migrate.apply_with(as_role, repository_name)
    with pytest.raises(SchemaMissing, match="or ask the owner of the database to run it"):
        onceq.open(as_role, repository=repository_name)
    migrate.apply_with(conninfo, repository_name)
    with pytest.raises(StatementRefused, match=advice):
        onceq.open(as_role, repository=repository_name)
    found = Cli(as_role, repository_name).json("doctor", code=VIOLATION).lines[-1]
    assert found["check"] == "schema"
    assert found["found"].endswith("(SQLSTATE 42501)")
    assert found["advice"].startswith(f"grant role '{role}' what")


@pytest.mark.parametrize("level", ["off", "local", "remote_apply"])
def test_a_role_without_synchronous_commit_is_overcome(
    conninfo: str, repository_name: str, role: str, level: str
) -> None:
    """Every durable operation checks the setting where it counts: in its transaction."""
    with plain(conninfo) as connection:
        alter = sql.SQL("alter role {} set synchronous_commit = {}")
        connection.execute(alter.format(sql.Identifier(role), sql.Literal(level)))
    as_role = make_conninfo(conninfo, user=role)
    migrate.apply_with(as_role, repository_name)
    with onceq.open(as_role, repository=repository_name) as qm:
        qm.declare(RAW)
        with qm._link.borrowed() as link:
            setting = link.connection.execute("show synchronous_commit").fetchone()
        assert setting == ("on",)
        wanted = "on" if level == "off" else level
        with psycopg.connect(as_role) as connection:  # the caller's, which is as the role says
            assert connection.execute("show synchronous_commit").fetchone() == (level,)
            onceq.enqueue(connection, RAW, b"x", repository=repository_name)
            assert connection.execute("show synchronous_commit").fetchone() == (wanted,)
            connection.commit()
            assert connection.execute("show synchronous_commit").fetchone() == (level,)
            assert qm.dequeue("raw", connection=connection) is not None
            assert connection.execute("show synchronous_commit").fetchone() == (wanted,)
            connection.commit()
    seen: list[str] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        row = context.connection.execute("show synchronous_commit").fetchone()
        assert row is not None
        seen.append(row[0])
        return request

    with (
        serving(as_role, repository_name, RAW.handled_by(handle)),
        onceq.open(as_role, repository=repository_name) as qm,
        qm.clerk("till", RAW) as clerk,
    ):
        clerk.transceive("1", b"x", timeout_s=WAIT_S)
    assert seen == ["on"]


# --- a pooler -----------------------------------------------------------------------------------

OPENERS: dict[str, Callable[[str, str], object]] = {
    "open": lambda url, repository: onceq.open(url, repository=repository),
    "init": migrate.apply_with,
    "server": lambda url, repository: onceq.Server([RAW.handled_by(echo)]).run(
        url, repository=repository
    ),
}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
def test_a_transaction_pooler_is_refused(
    conninfo: str, repository: str, opener: Callable[[str, str], object]
) -> None:
    with pooling(conninfo, "transaction") as pooler:
        assert rows(pooler.url, "select 1") == [(1,)]  # it pools
        with pytest.raises(PoolerDetected, match="session mode"):
            opener(pooler.url, repository)


def test_a_transaction_pooler_is_refused_by_asyncio(conninfo: str, repository: str) -> None:
    async def opening(url: str) -> None:
        async with onceq.open_async(url, repository=repository):
            pass

    with pooling(conninfo, "transaction") as pooler, pytest.raises(PoolerDetected):
        asyncio.run(opening(pooler.url))


def test_a_session_pooler_is_as_good_as_none(conninfo: str, repository: str) -> None:
    with pooling(conninfo, "session") as pooler:
        use(pooler.url, repository)
