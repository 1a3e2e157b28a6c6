"""Bells by themselves: what is heard, what is not, who listens, and how a session begins."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import onceq
from onceq.engine.perform.driver import connect, open_session
from onceq.engine.sessions import session
from onceq.engine.wake import exchange
from onceq.engine.wake.bell import DRAIN_MAX, LISTEN_FROM_S, Bell, Ringer, parsed
from onceq.engine.wake.waiting import Wakes
from tests.parts import plain, scalar, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

RAW = onceq.Queue("raw", bytes, bytes)
LONG_S = 60.0
"""Far longer than anything here takes: whoever waits so long was not rung."""


@contextlib.contextmanager
def ringing() -> Generator[tuple[Ringer, Bell, Wakes]]:
    ringer, wakes = Ringer(), Wakes()
    bell = Bell("onceq_test", wakes, lambda: None)
    try:
        yield ringer, bell, wakes
    finally:
        bell.close()
        ringer.close()


def send_to(bell: Bell, payload: bytes, count: int = 1) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(count):
            sender.sendto(payload, ("127.0.0.1", bell.port))


# --- one bell -----------------------------------------------------------------------------------


def test_a_ring_ends_a_wait_also_when_it_came_before() -> None:
    with ringing() as (ringer, bell, wakes):
        ringer.ring([bell.text])
        assert bell.wait(LONG_S)
        assert (ringer.rung, wakes.rung, wakes.polled) == (1, 1, 0)


def test_a_doubled_ring_is_one() -> None:
    with ringing() as (ringer, bell, wakes):
        ringer.ring([bell.text, bell.text])
        assert bell.wait(LONG_S)
        assert not bell.wait(0.001)
        assert (wakes.rung, wakes.polled) == (1, 1)


@pytest.mark.parametrize("payload", [b"", b"x", bytes(16), bytes(17), bytes(9000)])
def test_what_has_not_the_token_is_not_heard(payload: bytes) -> None:
    with ringing() as (_, bell, wakes):
        send_to(bell, payload)
        assert not bell.wait(0.001)
        assert (wakes.rung, wakes.polled, wakes.rubbish) == (0, 1, 1)


def test_a_flood_costs_a_bounded_part_of_each_wait() -> None:
    with ringing() as (ringer, bell, wakes):
        send_to(bell, b"flood", 2 * DRAIN_MAX)
        assert not bell.wait(0.001)
        assert wakes.rubbish == DRAIN_MAX
        ringer.ring([bell.text])  # behind the rest of the flood
        assert not bell.wait(0.001)
        assert bell.wait(LONG_S)


@pytest.mark.parametrize(
    "text", ["", "here", "a b c d", "a 0 c " + "00" * 16, "a 99999 c " + "00" * 16, "a 1 c 00"]
)
def test_what_is_no_bell_is_not_rung(text: str) -> None:
    assert parsed(text) is None
    with ringing() as (ringer, _, _):
        ringer.ring([text])
        assert (ringer.rung, ringer.lost) == (0, 1)


def test_to_ring_the_dead_is_no_error() -> None:
    with ringing() as (ringer, bell, _):
        bell.close()
        ringer.ring([bell.text] * 3)
        ringer.close()
        ringer.ring([bell.text])
        assert ringer.lost == 1


# --- the exchange -------------------------------------------------------------------------------


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "onceq-listen"}


LISTENING = "select count(*) from pg_stat_activity where query like %s"


def test_a_process_listens_once_and_only_while_somebody_waits(conninfo: str) -> None:
    before, others = exchange.count(), threads()
    here = make_conninfo(conninfo, application_name="listens once")
    wakes = [Wakes(), Wakes()]
    lines = [exchange.join(here, one) for one in (*wakes, None)]
    assert exchange.count() == before + 1
    bells = [line.bell for line in lines if line.bell is not None]
    assert not bells[0].wait(0.001)
    assert threads() <= others, "nobody has waited for long"
    for bell in bells:
        assert not bell.wait(LISTEN_FROM_S)
    assert len(threads() - others) == 1
    channel = bells[0].text.split(" ")[2]
    wait_until(lambda: scalar(conninfo, LISTENING, f"%listen {channel}%") >= 1)
    place = exchange._exchanges[os.getpid(), here]
    wait_until(lambda: place.is_listening)
    for bell in reversed(bells):
        with plain(conninfo) as connection:
            connection.execute("select pg_notify(%s, %s)", (channel, str(bell.port)))
            connection.execute("select pg_notify(%s, 'rubbish'), pg_notify(%s, '1')", [channel] * 2)
        assert bell.wait(LONG_S)
    assert [one.rung for one in wakes] == [1, 1]
    for line in lines:
        line.close()
    assert exchange.count() == before
    assert threads() <= others


def test_a_lost_listen_connection_is_made_again(conninfo: str) -> None:
    line = exchange.join(conninfo, Wakes())
    assert line.bell is not None
    try:
        assert not line.bell.wait(LISTEN_FROM_S)
        place = exchange._exchanges[os.getpid(), conninfo]
        wait_until(lambda: place.is_listening)
        found = "select pid from pg_stat_activity where query = %s and state = 'idle'"
        listen = f"listen {place.channel}"
        first = scalar(conninfo, found, listen)
        assert scalar(conninfo, "select pg_terminate_backend(%s, 60000)", first)
        wait_until(lambda: scalar(conninfo, found, listen) not in {None, first})
        with plain(conninfo) as connection:
            notify = "select pg_notify(%s, %s)"
            connection.execute(notify, (place.channel, str(line.bell.port)))
        assert line.bell.wait(LONG_S)
    finally:
        line.close()


# --- how a session begins -----------------------------------------------------------------------

SHOWN = ("synchronous_commit", "default_transaction_isolation", "idle_session_timeout")
WANTED = ("on", "read committed", "7s")


def shown(connection: psycopg.Connection[Any], *names: str) -> tuple[str, ...]:
    found = [connection.execute("select current_setting(%s)", (one,)).fetchone() for one in names]
    return tuple(str(row[0]) for row in found if row is not None)


@pytest.fixture
def careless(conninfo: str, repository_name: str) -> Generator[str]:
    """A connection string whose role and database default to what loses work."""
    role, database = sql.Identifier(f"{repository_name}_r"), sql.Identifier(f"{repository_name}_d")
    with plain(conninfo) as connection:
        connection.execute(sql.SQL("create role {} login").format(role))
        connection.execute(sql.SQL("create database {} owner {}").format(database, role))
        for what in (f"role {repository_name}_r", f"database {repository_name}_d"):
            for setting in (
                "synchronous_commit = off",
                "default_transaction_isolation = serializable",
            ):
                connection.execute(f"alter {what} set {setting}".encode())
    yield make_conninfo(conninfo, user=f"{repository_name}_r", dbname=f"{repository_name}_d")
    with plain(conninfo) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(database))
        connection.execute(sql.SQL("drop role {}").format(role))


def test_defaults_of_roles_and_databases_are_overridden_for_good(careless: str) -> None:
    with psycopg.connect(careless) as plainly:
        assert shown(plainly, "synchronous_commit") == ("off",)
    connection, again = open_session(careless, session.settings(limit_s=7, bell="a 1 c d"))
    with connection:
        assert again == ""
        assert shown(connection, *SHOWN) == WANTED
        connection.execute("set synchronous_commit = off")
        connection.execute("set onceq_setting.bell = 'another'")
        connection.execute("begin")
        connection.execute(b"commit; " + session.clean_text(again))
        assert shown(connection, *SHOWN) == WANTED
        assert shown(connection, session.BELL) == ("a 1 c d",)


@pytest.mark.parametrize("way", ["string", "environment", "service"])
def test_options_of_ones_own_are_kept(
    conninfo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    own = "-c work_mem=7MB -c synchronous_commit=off"
    if way == "string":
        conninfo = make_conninfo(conninfo, options=own)
    elif way == "environment":
        monkeypatch.setenv("PGOPTIONS", own)
    else:
        services = tmp_path / "services"
        services.write_text(f"[here]\noptions={own}\n", encoding="utf-8")
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        conninfo = make_conninfo(conninfo, service="here")
    with connect(conninfo) as connection:
        assert shown(connection, "work_mem", "synchronous_commit") == ("7MB", "on")


def test_what_refuses_an_option_is_given_fewer(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older PostgreSQL, which has no transaction_timeout."""
    monkeypatch.setattr(session, "TIMEOUT_OF_17", "transaction_timeout_of_99")
    connection, again = open_session(conninfo, session.settings(limit_s=7))
    with connection:
        assert again == ""
        assert shown(connection, *SHOWN) == WANTED


def test_what_refuses_all_options_is_told_afterwards(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a pooler, which refuses or drops them."""
    offers = [make_conninfo(conninfo, options="-c no_such_startup parameter=1"), conninfo]
    monkeypatch.setattr(session, "offers", lambda *_: offers)
    monkeypatch.setattr(session, "is_refused", lambda _: True)
    connection, again = open_session(conninfo, session.settings(limit_s=7))
    with connection:
        assert shown(connection, *SHOWN) == WANTED
        connection.execute("begin")
        connection.execute(b"commit; " + session.clean_text(again))
        assert shown(connection, *SHOWN) == WANTED
