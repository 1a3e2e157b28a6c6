"""`onceq doctor`, on a repository: rows of rights, locks, dead rows and claims, good and bad."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceq.cli import judging, security
from onceq.cli.exits import OK, VIOLATION
from onceq.engine.schema.horizon import HorizonHolder, TableRows
from tests.cli import scenes
from tests.cli.stage import RAW, Stage
from tests.parts import plain, scalar, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    import onceq
    from tests.cli.parts import Cli

CODES: Final = {"ok": OK, "warn": OK, "fail": VIOLATION}


def row(cli: Cli, check: str, verdict: str) -> str:
    """Returns what the doctor found of a check, which must have this verdict, and the advice."""
    (found,) = (
        one for one in cli.json("doctor", code=CODES[verdict]).lines if one["check"] == check
    )
    assert found["verdict"] == verdict, found
    assert (found["advice"] is None) == (verdict == "ok"), found
    return f"{found['found']} -> {found['advice']}"


@pytest.fixture
def stranger(conninfo: str, repository_name: str) -> Iterator[str]:
    """Where a login connects that has no right in the repository."""
    name = f"{repository_name}_stranger"
    with plain(conninfo) as connection:
        connection.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        yield make_conninfo(conninfo, user=name, application_name="probe")
        connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.fixture
def stage(qm: onceq.QueueManager, conninfo: str, cli: Cli, tmp_path: Path) -> Iterator[Stage]:
    """The repository goes on to other tests, without what PUBLIC was granted."""
    qm.declare(RAW)
    made = Stage(qm, conninfo, cli, tmp_path)
    yield made
    for revoked in security.REVOKED:
        made.execute(f"revoke all on {revoked}{{0}} from public")
    made.execute("revoke all (body) on {0}.element from public")


# --- rights and locks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grant", "said"),
    [
        ("usage on schema {0}", r"USAGE on the schema; EXECUTE on "),
        ("create on schema {0}", r"CREATE on the schema"),
        ("select on {0}.element", r"SELECT on element ->"),
        ("update (body) on {0}.element", r"UPDATE on element\.body"),
        ("usage on sequence {0}.element_seq_seq", r"USAGE on element_seq_seq"),
        ("insert, select on all tables in schema {0}", r"INSERT, SELECT on archive; .* rights on "),
    ],
)
def test_a_right_of_public_is_told(stage: Stage, grant: str, said: str) -> None:
    assert "PUBLIC may not use the schema" in row(stage.cli, "public rights", "ok")
    stage.execute(f"grant {grant} to public")
    found = row(stage.cli, "public rights", "fail")
    assert re.search(said, found), found
    for revoked in found.partition(" -> ")[2].split("; "):
        stage.execute(revoked)
    row(stage.cli, "public rights", "ok")


def test_a_functions_owner_is_told_where_public_reaches_it(stage: Stage) -> None:
    """Without USAGE on the schema nobody calls it, though PUBLIC may execute each function."""
    owners = scalar(
        stage.conninfo,
        "select count(*) from pg_proc where prosecdef and pronamespace = %s::regnamespace",
        stage.qm.repository,
    )
    stage.execute("grant create on schema {0} to public")
    assert "EXECUTE" not in row(stage.cli, "public rights", "fail")
    stage.execute("grant usage on schema {0} to public")
    said = f"function(s), {owners} with the owner's rights"
    assert said in row(stage.cli, "public rights", "fail")


def test_who_may_not_use_a_repository_and_has_its_locks_is_a_stranger(
    stage: Stage, stranger: str
) -> None:
    lock = f"select pg_advisory_lock('{stage.qm.repository}.server'::regclass::oid::integer, 1)"
    number = scalar(
        stage.conninfo, f"select '{stage.qm.repository}.server'::regclass::oid::integer"
    )
    with plain(stage.conninfo) as ours, plain(stranger) as theirs:
        ours.execute(lock.encode())
        theirs.execute("select pg_advisory_lock(4711), pg_advisory_lock(4711, 4711)")
        assert "none has locks" in row(stage.cli, "strangers", "ok")
        theirs.execute("select pg_advisory_lock(%s, 2), pg_advisory_lock(%s, 3)", (number, number))
        found = row(stage.cli, "strangers", "fail")
        assert f"pid {theirs.info.backend_pid} " in found
        assert f"({theirs.info.user}, probe): 2 of server" in found
        stage.execute(f"grant usage on schema {{0}} to {theirs.info.user}")
        row(stage.cli, "strangers", "ok")  # that is how one becomes its user


def test_a_prepared_transaction_of_a_stranger_has_locks_too(stage: Stage, stranger: str) -> None:
    name = stage.qm.repository
    number = scalar(stage.conninfo, f"select '{name}.queue'::regclass::oid::integer")
    with prepared(stranger, f"{name}-s", f"select pg_advisory_xact_lock({number}, 0)"):
        found = row(stage.cli, "strangers", "fail")
        assert re.search(r"a prepared transaction \(\w+_stranger\): 1 of queue", found), found


@contextlib.contextmanager
def prepared(conninfo: str, name: str, statement: str) -> Generator[None]:
    """A transaction that was prepared, and is forgotten."""
    with psycopg.connect(conninfo) as connection:
        connection.execute("select pg_current_xact_id()")
        connection.execute(statement.encode())
        connection.execute(sql.SQL("prepare transaction {}").format(sql.Literal(name)))
    try:
        yield
    finally:
        with plain(conninfo) as connection:
            connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(name)))


# --- what keeps dead rows -----------------------------------------------------------------------


def test_a_session_that_holds_xmin_back_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two it is the older one that comes first, and the one that does nothing that is told."""
    named = make_conninfo(stage.conninfo, application_name="forgotten")
    with psycopg.connect(named) as one, psycopg.connect(stage.conninfo) as other:
        one.execute("set transaction isolation level repeatable read")
        one.execute("select 1")
        stage.execute("create table {0}.later (n int)")
        other.execute("select pg_current_xact_id()")
        found = row(stage.cli, "transactions", "ok")  # they have just begun
        user = one.info.user
        who = f"pid {one.info.backend_pid} ({user}, forgotten, idle in transaction, for "
        assert re.match(re.escape(who) + r"\d+ s, ", found), found
        assert f"pid {other.info.backend_pid} ({user}, " in found
        monkeypatch.setattr(judging, "IDLE_TRANSACTION_S", 0.0)
        found = row(stage.cli, "transactions", "warn")
        assert "pg_terminate_backend" in found
    row(stage.cli, "transactions", "ok")


def test_a_session_without_a_snapshot_holds_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "IDLE_TRANSACTION_S", 0.0)
    with psycopg.connect(stage.conninfo) as connection:
        connection.execute("select 1")
        assert "nothing holds xmin back" in row(stage.cli, "transactions", "ok")


def test_a_prepared_transaction_is_named(stage: Stage) -> None:
    name = f"{stage.qm.repository}-p"
    with prepared(stage.conninfo, name, "select 1"):
        assert f"prepared transaction '{name}' (" in row(stage.cli, "transactions", "warn")


def test_a_replication_slot_that_nobody_uses_is_named() -> None:
    """As a standby leaves it that told what it reads, and went: here is none that could."""
    slot = HorizonHolder(
        kind="replication slot",
        pid=None,
        name="standby",
        login=None,
        application=None,
        state="inactive",
        age_s=None,
        behind=7,
    )
    found = judging.transactions([slot])
    assert found.verdict == "warn"
    assert found.found == "replication slot 'standby' (inactive, 7 transaction(s))"


def test_a_role_that_may_not_see_ages_is_told_so(stage: Stage, stranger: str) -> None:
    """It still sees whose transaction holds xmin, and by how many transactions."""
    as_role = type(stage.cli)(stranger, stage.qm.repository)
    with psycopg.connect(stage.conninfo) as connection:
        connection.execute("select pg_current_xact_id()")
        lines = as_role.json("doctor", code=VIOLATION).lines  # it may not read the repository
        found = next(one for one in lines if one["check"] == "transactions")
        assert f"pid {connection.info.backend_pid} (" in found["found"]
        assert re.search(r"age not shown to this role, \d+ transaction", found["found"])


def test_dead_rows_are_told_with_live_ones_and_the_last_autovacuum(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "dead, 0 live" not in row(stage.cli, "dead rows", "ok")
    monkeypatch.setattr(judging, "DEAD_ROWS", 10)
    with psycopg.connect(stage.conninfo) as holder:  # else a VACUUM might come between
        holder.execute("select pg_current_xact_id()")
        stage.execute(
            "insert into {0}.attempt (ended_at, eid, charge) "
            "select now(), gen_random_uuid(), 'charge' from generate_series(1, 30)"
        )
        stage.execute("delete from {0}.attempt")
        dead = "select n_dead_tup >= 30 from pg_stat_user_tables where relid = %s::regclass"
        table = f"{stage.qm.repository}.attempt"
        wait_until(lambda: scalar(stage.conninfo, dead, table) is True)
        found = row(stage.cli, "dead rows", "warn")
        assert "attempt: 30 dead, 0 live, last autovacuum never" in found
        assert "end what `transactions` names" in found
        stage.execute("vacuum {0}.attempt")  # it could remove none: the holder may see them
        row(stage.cli, "dead rows", "ok")  # but it came lately, and they are not a million
        monkeypatch.setattr(judging, "DEAD_ROWS_MOST", 10)
        wait_until(lambda: scalar(stage.conninfo, dead, table) is True)
        row(stage.cli, "dead rows", "warn")
    stage.execute("vacuum {0}.attempt")
    row(stage.cli, "dead rows", "ok")


def test_a_large_table_may_have_as_many_dead_rows_as_live_ones() -> None:
    def table(live: int, dead: int, vacuumed_s: float | None) -> TableRows:
        return TableRows(
            name="t",
            live=live,
            dead=dead,
            autovacuumed_at=None,
            vacuumed_s=vacuumed_s,
            is_off=False,
        )

    assert not judging.is_neglected(table(10**7, 10**6 + 1, None))
    assert not judging.is_neglected(table(0, 10**5, None))
    assert judging.is_neglected(table(0, 10**5 + 1, None))
    assert judging.is_neglected(table(0, 10**5 + 1, 601.0))
    assert not judging.is_neglected(table(0, 10**5 + 1, 600.0))
    assert judging.is_neglected(table(0, 10**6 + 1, 0.0))


def test_autovacuum_that_is_off_for_a_table_is_told(stage: Stage) -> None:
    stage.execute("alter table {0}.element set (autovacuum_enabled = off)")
    found = row(stage.cli, "dead rows", "fail")
    assert found.startswith("autovacuum is off for element: ")
    stage.execute("alter table {0}.element reset (autovacuum_enabled)")
    row(stage.cli, "dead rows", "ok")


def test_autovacuum_that_is_off_for_all_is_told(stage: Stage) -> None:
    off = make_conninfo(stage.conninfo, options="-c track_counts=off")
    found = row(type(stage.cli)(off, stage.qm.repository), "dead rows", "fail")
    assert found.startswith("autovacuum is off: ")


# --- stale claims -------------------------------------------------------------------------------


def test_a_claim_of_a_session_that_lives_is_not_stale(stage: Stage) -> None:
    with scenes.runs(stage):
        assert "none is stale" in row(stage.cli, "claims", "ok")


def test_a_claim_of_a_session_that_has_ended_is_stale(stage: Stage) -> None:
    with scenes.server_gone(stage):
        found = row(stage.cli, "claims", "warn")
        assert "1 of sessions that ended, and nobody has taken over" in found
        assert "start a server" in found


def test_a_claim_that_waits_for_a_verdict_is_stale(stage: Stage) -> None:
    with scenes.verdict(stage):
        found = row(stage.cli, "claims", "warn")
        assert re.search(r"^1 waiting for a verdict, for \d+ s ->", found), found


def test_a_claim_of_a_spark_server_is_stale_a_minute_after_it_has_ended(stage: Stage) -> None:
    with scenes.spark(stage):
        row(stage.cli, "claims", "ok")
    ago = "update {0}.spark_server set seen_at = now() - interval '{1} seconds'"
    stage.execute(ago.replace("{1}", "50"))
    row(stage.cli, "claims", "ok")  # it may be connecting again
    stage.execute(ago.replace("{1}", "70"))
    assert "1 of Spark servers that ended" in row(stage.cli, "claims", "warn")


def test_a_claim_of_a_spark_server_that_is_connected_is_not_stale(stage: Stage) -> None:
    with scenes.spark(stage):
        stage.execute("update {0}.spark_server set seen_at = now() - interval '1 hour'")
        row(stage.cli, "claims", "ok")


def test_what_a_relay_has_planned_is_not_stale(stage: Stage) -> None:
    with scenes.planned(stage):
        row(stage.cli, "claims", "ok")


def test_a_claim_of_nobody_known_is_stale(stage: Stage) -> None:
    with scenes.orphaned(stage):
        assert "1 claimed by nobody known" in row(stage.cli, "claims", "warn")
