"""Sessions whose settings, or whose database's, are not those that onceq would choose."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import onceq
from onceq.engine.sessions import faults, session
from onceq.errors import EnvironmentFault
from onceq.model.queue import IsolationLevel
from tests.parts import LIMIT_S, plain, rows, scalar, serving, wait_until

RAW = onceq.Queue("raw", bytes, bytes)


def same(request: bytes, _context: onceq.Context) -> bytes:
    return request


def test_a_callers_row_factory_is_the_callers_affair(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with psycopg.connect(conninfo) as connection:
        connection.row_factory = dict_row  # type: ignore[assignment] # as a caller may
        eid = onceq.enqueue(connection, RAW, b"x", repository=repository)
    assert qm.read(eid) is not None


def test_a_database_whose_default_is_serializable_is_served(conninfo: str, repository: str) -> None:
    strict = f"{conninfo} options='-c default_transaction_isolation=serializable'"
    with onceq.open(strict, repository=repository) as qm:
        qm.declare(RAW)
        with (
            serving(strict, repository, RAW.handled_by(same)),
            qm.clerk("c", RAW) as clerk,
        ):
            assert clerk.transceive("1", b"x", timeout_s=LIMIT_S).value == b"x"


def test_a_database_that_is_read_only_for_now_is_the_environments_fault(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """As after a failover, when a session reaches a standby: the server goes on when it is over."""
    qm.declare(RAW)
    with plain(conninfo) as connection:
        connection.execute("set default_transaction_read_only = on")
        with pytest.raises(EnvironmentFault), faults.translated():
            connection.execute(f"select {repository}.settle()".encode())


@pytest.mark.parametrize("weaker", ["off", "local"])
def test_a_handler_cannot_make_its_commit_less_durable(
    qm: onceq.QueueManager, conninfo: str, repository: str, weaker: str
) -> None:
    qm.declare(RAW)
    with plain(conninfo) as connection:
        connection.execute(
            f"create table {repository}.noted (setting text);"
            f" create function {repository}.note() returns trigger language plpgsql as"
            f" $$ begin insert into {repository}.noted values"
            " (current_setting('synchronous_commit')); return null; end $$;"
            f" create constraint trigger note after insert on {repository}.history_default"
            " deferrable initially deferred"  # as the last act of the transaction
            f" for each row execute function {repository}.note()".encode()
        )

    def handler(request: bytes, context: onceq.Context) -> bytes:
        context.connection.execute(f"set local synchronous_commit = {weaker}".encode())
        return request

    with serving(conninfo, repository, RAW.handled_by(handler)), qm.clerk("c", RAW) as clerk:
        clerk.transceive("1", b"x", timeout_s=LIMIT_S)
    assert rows(conninfo, f"select setting from {repository}.noted") == [("on",)]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_what_a_handler_does_to_its_session_ends_with_its_commit(
    qm: onceq.QueueManager, conninfo: str, repository: str, isolation: IsolationLevel
) -> None:
    qm.declare(RAW)
    names = ("lock_timeout", "synchronous_commit", "default_transaction_isolation", "search_path")
    limits = ("default_transaction_read_only", "idle_in_transaction_session_timeout", "role")
    seen: list[list[str]] = []

    def handler(request: bytes, context: onceq.Context) -> bytes:
        shown = [context.connection.execute(f"show {name}".encode()) for name in names + limits]
        seen.append([cursor.fetchone()[0] for cursor in shown])  # type: ignore[index] # one row
        context.connection.execute(
            "set lock_timeout = 7; set synchronous_commit = off; set search_path = pg_catalog;"
            " set default_transaction_isolation = serializable; set role pg_monitor; reset role;"
            " set default_transaction_read_only = on; set idle_in_transaction_session_timeout = 0;"
            " create temp table scratch (a integer); listen scratch;"
            " declare kept cursor with hold for select 1"
        )
        return request

    with (
        serving(conninfo, repository, RAW.handled_by(handler, isolation=isolation)),
        qm.clerk("c", RAW) as clerk,
    ):
        for rid in ("1", "2", "3"):
            assert clerk.transceive(rid, b"x", timeout_s=LIMIT_S).value == b"x"
    assert seen == [seen[0]] * 3


def test_what_a_handler_prepares_and_locks_does_not_stay_for_others(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """A name is free again for the next, uncharged; locks go while the session lives on."""
    qm.declare(RAW)

    def handler(request: bytes, context: onceq.Context) -> bytes:
        context.connection.execute(
            "prepare mine as select 1; execute mine; select pg_advisory_lock(-7);"
            " select pg_advisory_lock_shared(7, -7)"
        )
        return request

    held = "select count(*) from pg_locks where locktype = 'advisory' and objid = (-7)::oid"
    with serving(conninfo, repository, RAW.handled_by(handler)) as server:
        for number in range(5):
            qm.enqueue(RAW, b"x", rid=str(number))
        wait_until(lambda: not qm.show("raw").depth)
        wait_until(lambda: scalar(conninfo, held) == 0)
        assert server.statistics().lives == 1
    assert {one.outcome for rid in range(5) for one in qm.lookup(str(rid))} == {"done"}
    charges = rows(conninfo, f"select distinct charge::text from {repository}.attempt")
    assert charges in ([], [("environment",)])


async def same_later(request: bytes, _context: onceq.AsyncContext) -> bytes:
    return request


@pytest.mark.parametrize("handler", [same, same_later])
def test_what_was_claimed_with_a_commit_is_not_forgotten_when_its_session_cannot_be_cleaned(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    monkeypatch: pytest.MonkeyPatch,
    handler: Any,
) -> None:
    """As by a cancel that comes while COMMIT waits for the disk; the second time only."""
    with plain(conninfo) as connection:
        connection.execute(f"create sequence {repository}.cleaned".encode())
    failing = f"select 1 / (nextval('{repository}.cleaned') - 2); {session.CLEAN}"
    monkeypatch.setattr(session, "CLEAN", failing)
    qm.declare(RAW)
    rids = ["1", "2", "3", "4"]
    with qm.clerk("c", RAW, window=4) as clerk:
        clerk.send_many([(rid, rid.encode()) for rid in rids])
        with serving(conninfo, repository, RAW.handled_by(handler)) as server:
            replies = [clerk.receive(timeout_s=LIMIT_S) for _ in rids]
            assert server.statistics().lives == 2
        clerk.acknowledge(rids)
    assert {reply.value for reply in replies} == {b"1", b"2", b"3", b"4"}
    assert scalar(conninfo, f"select sum(aborts) from {repository}.history") == 0


def test_a_batch_of_slow_requests_is_not_cut_short(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Together they would take longer than a transaction may: it is finished after each (G12)."""
    slow = onceq.Queue("slow", bytes, bytes, execution_limit_s=1)
    qm.declare(slow)

    def sleeping(request: bytes, context: onceq.Context) -> bytes:
        context.connection.execute("select pg_sleep(0.7)")
        return request

    rids = ["1", "2", "3", "4"]
    with qm.clerk("c", slow, window=4) as clerk:
        clerk.send_many([(rid, rid.encode()) for rid in rids])
        with serving(conninfo, repository, slow.handled_by(sleeping, batch=4)) as server:
            replies = [clerk.receive(timeout_s=LIMIT_S) for _ in rids]
            assert server.statistics().lives == 1
        clerk.acknowledge(rids)
    assert len(replies) == len(rids)
