"""The proxy cuts where it says: before a commit nothing happened, after it everything did."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import onceq
from onceq import errors
from proof.harness.proxy import Cut, Proxy, Side, Turn
from tests.parts import LIMIT_S, plain, scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

SEND = re.compile(r"\.send_one\(")


@pytest.fixture
def proxy(conninfo: str) -> Iterator[Proxy]:
    with (
        tempfile.TemporaryDirectory(prefix="oq-") as directory,
        Proxy(conninfo, Path(directory)) as made,
    ):
        yield made


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("prepared", [False, True])
def test_a_commit_is_lost_on_the_side_that_was_asked_for(
    proxy: Proxy, conninfo: str, repository: str, side: Side, *, prepared: bool
) -> None:
    with plain(conninfo) as connection:
        connection.execute(f"create table {repository}.thing (n int)".encode())
    with psycopg.connect(proxy.conninfo, autocommit=True) as lost:
        lost.execute("begin", prepare=prepared)
        lost.execute(f"insert into {repository}.thing values (1)".encode(), prepare=prepared)
        proxy.plan(Cut(side=side))
        with pytest.raises(psycopg.OperationalError):
            lost.execute("commit", prepare=prepared)
        assert proxy.wait_made(1, LIMIT_S)
    count = scalar(conninfo, f"select count(*) from {repository}.thing")
    assert count == (1 if side is Side.AFTER else 0)


@pytest.mark.parametrize("side", Side)
def test_a_single_statement_is_lost_too_and_the_clerk_learns_the_truth(
    proxy: Proxy, qm: onceq.QueueManager, side: Side
) -> None:
    queue = onceq.Queue("orders", str, str)
    qm.declare(queue)
    with onceq.open(proxy.conninfo, repository=qm.repository) as through:
        clerk = through.clerk("till", queue).connect()
        proxy.plan(Cut(side=side, pattern=SEND))
        with pytest.raises(errors.InDoubt):
            clerk.send("1", "an order")
        assert proxy.wait_made(1, LIMIT_S)
        assert [made.cut.side for made in proxy.made] == [side]
        clerk.connect()
        assert clerk.last_sent == ("1" if side is Side.AFTER else None)
        clerk.close()


@pytest.mark.parametrize("side", Side)
def test_a_connection_that_falls_silent_closes_nothing_until_its_time_is_over(
    proxy: Proxy, qm: onceq.QueueManager, conninfo: str, side: Side
) -> None:
    queue = onceq.Queue("orders", str, str)
    qm.declare(queue)
    with onceq.open(proxy.conninfo, repository=qm.repository) as through:
        clerk = through.clerk("till", queue).connect()
        proxy.plan(Cut(side=side, pattern=SEND, silent_s=LIMIT_S))
        with pytest.raises(errors.InDoubt):
            clerk.send("1", "an order", timeout_s=0.2)
        assert proxy.wait_made(1, LIMIT_S)
        (made,) = proxy.made
        is_there = "select count(*) from pg_stat_activity where pid = %s"
        with plain(conninfo) as connection:
            assert connection.execute(is_there.encode(), [made.backend]).fetchone() == (1,)
        clerk.connect()
        assert clerk.last_sent == ("1" if side is Side.AFTER else None)
        clerk.close()


def test_one_connection_falls_silent_wherever_it_stands_and_ends(proxy: Proxy) -> None:
    assert not proxy.silence_one(0, 1)
    with (
        psycopg.connect(proxy.conninfo, autocommit=True) as silent,
        psycopg.connect(proxy.conninfo, autocommit=True) as other,
    ):
        began = time.monotonic()
        assert proxy.silence_one(0, 0.3)
        assert [made.backend for made in proxy.made] == [silent.info.backend_pid]
        assert other.execute("select 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError):
            silent.execute("select 1")
        assert time.monotonic() - began >= 0.3


def test_what_was_planned_can_be_forgotten_and_all_can_be_cut(proxy: Proxy) -> None:
    with psycopg.connect(proxy.conninfo, autocommit=True) as connection:
        proxy.plan(Cut(side=Side.BEFORE, pattern=re.compile("select")))
        proxy.forget()
        assert connection.execute("select 1").fetchone() == (1,)
        assert proxy.cut_all() == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    assert not proxy.wait_made(1, 0)


@pytest.mark.parametrize(
    ("texts", "inside", "commits"),
    [
        (("commit",), True, True),
        (("COMMIT; reset all",), True, True),
        (("select f(1)", "commit"), True, True),
        (("select 'commit'",), True, False),
        (("select 1",), True, False),
        (("select 1",), False, True),
        (("begin isolation level read committed; select 1",), False, False),
        ((), False, False),
    ],
)
def test_turns_that_commit_are_told_apart(
    texts: tuple[str, ...], *, inside: bool, commits: bool
) -> None:
    assert Turn(texts=texts, in_transaction=inside).commits is commits
