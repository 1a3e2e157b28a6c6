"""A server goes on: without one of its queues, with statements refused, with a role's time-outs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import onceq
from onceq import telemetry
from onceq.server.lives import RECONNECT_FIRST_S
from tests.events import emits
from tests.parts import LIMIT_S, plain, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import LiteralString

    from tests.events import Events

RAW = onceq.Queue("raw", str, str, backoff_ms=1)
OTHER = onceq.Queue("other", str, str)


def echo(request: str, _: onceq.Context) -> str:
    return request


async def echo_async(request: str, _: onceq.AsyncContext) -> str:
    return request


@pytest.fixture
def role(conninfo: str, repository: str) -> Generator[str]:
    """A role of its own that may do everything."""
    name = f"{repository}_role"
    with plain(conninfo) as connection:
        connection.execute(sql.SQL("create role {} superuser login").format(sql.Identifier(name)))
        yield name
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def _set(conninfo: str, role: str, setting: LiteralString) -> None:
    with plain(conninfo) as connection:
        text = sql.SQL("alter role {} {}").format(sql.Identifier(role), sql.SQL(setting))
        connection.execute(text)


def _cut(conninfo: str, role: str) -> None:
    with plain(conninfo) as connection:
        cut = "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s"
        connection.execute(cut.encode(), [role])


@emits(telemetry.QueueMissing, telemetry.QueueServed, telemetry.SessionLost, telemetry.Reconnected)
@pytest.mark.parametrize("handler", [echo, echo_async])
def test_a_served_queue_that_is_destroyed_does_not_end_the_service(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    role: str,
    events: Events,
    handler: Any,
) -> None:
    theirs = make_conninfo(conninfo, user=role)
    with serving(theirs, repository, RAW.handled_by(handler), OTHER.handled_by(handler)):
        with qm.clerk("till", RAW) as clerk:
            clerk.transceive("1", "x", timeout_s=LIMIT_S)
            clerk.send("2", "x")  # acknowledges the reply
            clerk.receive(timeout_s=LIMIT_S)
            clerk.acknowledge(["2"])
            clerk.disconnect()
        qm.destroy("raw")
        events.wait_for(telemetry.QueueMissing, queue="raw")
        with qm.clerk("bank", OTHER) as other:
            assert other.transceive("1", "y", timeout_s=LIMIT_S).value == "y"
        _cut(conninfo, role)  # a life begins without the queue
        with qm.clerk("shop", OTHER) as other:
            assert other.transceive("2", "y", timeout_s=LIMIT_S).value == "y"
        qm.declare(RAW)
        with qm.clerk("new", RAW) as clerk:
            assert clerk.transceive("1", "z", timeout_s=LIMIT_S).value == "z"
        events.wait_for(telemetry.QueueServed, queue="raw")
    assert len(events.of(telemetry.SessionLost)) == 1  # the one that this test has cut
    assert len(events.of(telemetry.QueueMissing)) == 1


@pytest.mark.parametrize("handler", [echo, echo_async])
def test_a_server_whose_statements_are_all_refused_tries_more_and_more_seldom(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    role: str,
    events: Events,
    handler: Any,
) -> None:

    def delays() -> list[float]:
        return [one["delay_s"] for one in events.of(telemetry.SessionLost)]

    theirs = make_conninfo(conninfo, user=role)
    with serving(theirs, repository, RAW.handled_by(handler)), qm.clerk("till", RAW) as clerk:
        _set(conninfo, role, "set default_transaction_read_only = on")
        began = time.monotonic()
        _cut(conninfo, role)
        wait_until(lambda: delays()[-1:] >= [8 * RECONNECT_FIRST_S])
        waited, took_s = delays(), time.monotonic() - began
        assert sum(waited[:-1]) <= took_s, "after each try it waits so long"
        _set(conninfo, role, "reset default_transaction_read_only")
        assert clerk.transceive("1", "x", timeout_s=LIMIT_S).value == "x"


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
def test_a_handler_that_is_slower_than_its_roles_time_out_replies(
    qm: onceq.QueueManager, conninfo: str, repository: str, role: str, setting: LiteralString
) -> None:
    def slow(request: str, context: onceq.Context) -> str:
        context.connection.execute("select pg_sleep(0.5)")
        found = context.connection.execute("select current_setting(%s)", [setting]).fetchone()
        return f"{request} {found}"

    _set(conninfo, role, f"set {setting} = '200ms'")
    theirs = make_conninfo(conninfo, user=role)
    with serving(theirs, repository, RAW.handled_by(slow)), qm.clerk("till", RAW) as clerk:
        assert clerk.transceive("1", "x", timeout_s=LIMIT_S).value == "x ('0',)"


def test_a_time_out_of_the_url_holds_and_the_log_names_the_request(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    def slow(request: str, context: onceq.Context) -> str:
        context.connection.execute("select pg_sleep(60)")
        return request

    theirs = make_conninfo(conninfo, options="-c statement_timeout=1s")  # its own are shorter
    with serving(theirs, repository, RAW.handled_by(slow)), qm.clerk("till", RAW) as clerk:
        clerk.send("slow-one", "x")
        aborted = events.wait_for(telemetry.Aborted, rid="slow-one")
    assert (aborted["code"], aborted["charge"]) == ("EnvironmentFault", "environment")
    assert "statement timeout" in aborted["traceback"]
