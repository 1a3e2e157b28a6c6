"""Replies received in the client's own transaction: commit, rollback, deaths, limits (spec C15)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.engine.connect.unwrap import Callers
from onceq.engine.perform.driver import PostgresDriver
from onceq.errors import Fenced, IllegalState, InvalidValue, ReplyHeld, TooLarge
from onceq.model.client_state import ClientState
from tests.engine.own_connections import KINDS
from tests.lives import Life, living
from tests.parts import Background, plain, rows, scalar, wait_blocked

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.model import ops

RAW = onceq.Queue("raw", bytes, bytes)
WAIT_S = 60
LIMIT = 3


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    qm.declare(RAW)
    with plain(conninfo) as connection:
        connection.execute(f"create table {repository}.booked (rid text)".encode())


@pytest.fixture
def life(conninfo: str, repository: str) -> Generator[Life]:
    with living(conninfo, repository) as one:
        yield one


def replied(life: Life, clerk: onceq.Clerk[bytes, bytes], *rids: str) -> None:
    """Sends requests, and has them executed."""
    for rid in rids:
        clerk.send(rid, rid.encode())
        life.run(life.claim_one("raw"), rid.encode())


def booked(conninfo: str, repository: str) -> list[str]:
    return [rid for (rid,) in rows(conninfo, f"select rid from {repository}.booked order by 1")]


def book(connection: Any, repository: str, rid: str) -> None:
    connection.execute(f"insert into {repository}.booked values (%s)".encode(), (rid,))


def aborted(
    clerk: onceq.Clerk[bytes, bytes], connection: psycopg.Connection[Any]
) -> onceq.Reply[bytes]:
    """Receives a reply in a transaction that is rolled back."""
    reply = clerk.receive(timeout_s=WAIT_S, connection=connection)
    connection.rollback()
    return reply


def limited(qm: onceq.QueueManager) -> None:
    """Gives the first client's reply queue another abort limit."""
    qm.alter(onceq.AlterQueue(queue="reply-1", abort_limit=LIMIT))


def test_the_reply_goes_with_the_clients_own_writes(
    qm: onceq.QueueManager, life: Life, conninfo: str, repository: str
) -> None:
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        replied(life, clerk, "1")
        reply = clerk.receive(b"ckpt", timeout_s=WAIT_S, connection=connection)
        assert reply.value == b"1"
        book(connection, repository, reply.rid)
        assert scalar(conninfo, f"select count(*) from {repository}.element") == 1
        connection.commit()
        assert scalar(conninfo, f"select count(*) from {repository}.element") == 0
        clerk.send("2", b"2")
        assert (clerk.last_received, clerk.checkpoint) == ("1", b"ckpt")
    with qm.clerk("till", RAW) as clerk:
        shown = (clerk.last_sent, clerk.last_received, clerk.checkpoint, clerk.outstanding)
        assert shown == ("2", "1", b"ckpt", ["2"])
    assert booked(conninfo, repository) == ["1"]


def test_a_client_that_dies_before_its_commit_receives_it_again(
    qm: onceq.QueueManager, life: Life, conninfo: str, repository: str
) -> None:
    with qm.clerk("till", RAW) as clerk:
        replied(life, clerk, "1")
        connection = psycopg.connect(conninfo)
        clerk.receive(b"ckpt", timeout_s=WAIT_S, connection=connection)
        book(connection, repository, "1")
        connection.close()
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        assert (clerk.last_received, clerk.checkpoint, clerk.outstanding) == (None, None, ["1"])
        assert clerk.receive(timeout_s=WAIT_S, connection=connection).value == b"1"
        book(connection, repository, "1")
        connection.commit()
        assert isinstance(clerk.recover(), onceq.Done)
    assert booked(conninfo, repository) == ["1"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_poisonous_reply_is_held_and_blocks_nobody(
    qm: onceq.QueueManager, life: Life, conninfo: str, *, dies: bool
) -> None:
    """Whether its transactions are rolled back, or its client dies of it each time."""
    with contextlib.ExitStack() as lives:
        clerk = lives.enter_context(qm.clerk("till", RAW))
        limited(qm)
        replied(life, clerk, "1")
        for _ in range(LIMIT):
            with psycopg.connect(conninfo) as connection:
                clerk.receive(timeout_s=WAIT_S, connection=connection)
                connection.rollback()
            if dies:
                lives.close()
                clerk = lives.enter_context(qm.clerk("till", RAW))
                assert clerk.outstanding == ["1"]
        with psycopg.connect(conninfo) as connection:
            with pytest.raises(ReplyHeld) as told:
                clerk.receive(timeout_s=WAIT_S, connection=connection)
            assert told.value.rid == "1"
            assert clerk.state is ClientState.REPLY_RECVD
            replied(life, clerk, "2")
            assert clerk.receive(timeout_s=WAIT_S, connection=connection).rid == "2"
            connection.commit()
        clerk.disconnect()
    (held,) = qm.lookup("1", state="held")
    assert (held.queue, held.registrant, held.outcome) == ("reply-1.error", "till", "done")


def test_a_held_reply_is_given_back_as_itself(
    qm: onceq.QueueManager, life: Life, conninfo: str
) -> None:
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        limited(qm)
        replied(life, clerk, "1")
        (eid,) = {aborted(clerk, connection).eid for _ in range(LIMIT)}
        clerk.send("2", b"2")
        with pytest.raises(ReplyHeld, match="redrive") as held:  # whatever came in between, once
            clerk.receive(timeout_s=0)
        assert held.value.rid == "1"
        assert qm.redrive(eid) == (eid, "1")
        assert qm.redrive(eid) is None
        with pytest.raises(Fenced):
            clerk.receive(timeout_s=0)
        clerk.connect()
        assert clerk.outstanding == ["1", "2"]
        reply = clerk.receive(timeout_s=WAIT_S, connection=connection)
        assert (reply.rid, reply.eid, reply.value) == ("1", eid, b"1")
        connection.commit()
        life.run(life.claim_one("raw"), b"2")
        assert clerk.receive(timeout_s=WAIT_S).rid == "2"


def test_a_reply_given_back_after_a_disconnect_is_what_recover_speaks_of(
    qm: onceq.QueueManager, life: Life, conninfo: str
) -> None:
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        limited(qm)
        replied(life, clerk, "1")
        (eid,) = {aborted(clerk, connection).eid for _ in range(LIMIT)}
        with pytest.raises(ReplyHeld):
            clerk.receive(timeout_s=WAIT_S, connection=connection)
        clerk.disconnect()
    with qm.clerk("till", RAW) as clerk:
        assert isinstance(clerk.recover(), onceq.Done)
    assert qm.redrive(eid) == (eid, "1")
    with qm.clerk("till", RAW) as clerk:
        assert isinstance(clerk.recover(), onceq.ReplyWaiting)
        assert clerk.receive(timeout_s=WAIT_S).rid == "1"


def test_a_crash_of_the_database_charges_nobody(
    qm: onceq.QueueManager, life: Life, conninfo: str, repository: str
) -> None:
    """What was begun under another run of the database is not held against the reply."""
    with qm.clerk("till", RAW) as clerk:
        limited(qm)
        replied(life, clerk, "1")
        for _ in range(2 * LIMIT):
            with psycopg.connect(conninfo) as connection:
                clerk.receive(timeout_s=WAIT_S, connection=connection)
                connection.rollback()
            with plain(conninfo) as connection:
                connection.execute(f"update {repository}.element set claimed_by = 1".encode())
            clerk.connect()
        with psycopg.connect(conninfo) as connection:
            assert clerk.receive(timeout_s=WAIT_S, connection=connection).rid == "1"
            connection.commit()


def test_nothing_else_is_done_while_the_transaction_is_open(
    qm: onceq.QueueManager, life: Life, conninfo: str
) -> None:
    with (
        qm.clerk("till", RAW) as clerk,
        psycopg.connect(conninfo) as connection,
        psycopg.connect(conninfo) as another,
    ):
        replied(life, clerk, "1")
        clerk.receive(timeout_s=WAIT_S, connection=connection)
        for call in (
            lambda: clerk.send("2", b"2"),
            lambda: clerk.receive(timeout_s=0, connection=another),
            clerk.rereceive,
            clerk.recover,
            clerk.disconnect,
            clerk.connect,
            lambda: clerk.receive(timeout_s=0, connection=connection),
        ):
            with pytest.raises(IllegalState, match="open"):
                call()
        connection.rollback()
        with pytest.raises(IllegalState):  # it is outstanding again: nothing was acknowledged
            clerk.send("2", b"2")
        assert clerk.receive(timeout_s=WAIT_S).rid == "1"


def test_a_later_life_waits_for_the_transaction_of_the_former(
    qm: onceq.QueueManager, life: Life, conninfo: str, repository: str
) -> None:
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as ghost:
        replied(life, clerk, "1")
        clerk.receive(timeout_s=WAIT_S, connection=ghost)
        with onceq.open(conninfo, repository=repository) as other:
            later = other.clerk("till", RAW)
            connecting = Background(later.connect)
            wait_blocked(conninfo, f"{repository}.connect", connecting)
            ghost.commit()
            connecting.result()
            assert (later.outstanding, later.last_received) == ([], "1")
            later.close()


def test_a_savepoint_that_is_rolled_back_is_an_abort(
    qm: onceq.QueueManager, life: Life, conninfo: str, repository: str
) -> None:
    """Although the transaction around it commits."""
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        replied(life, clerk, "1")
        with connection.transaction(force_rollback=True), connection.transaction():
            clerk.receive(timeout_s=WAIT_S, connection=connection)
        with connection.transaction():
            book(connection, repository, "around")
            with connection.transaction(force_rollback=True):
                clerk.receive(timeout_s=WAIT_S, connection=connection)
        assert clerk.receive(timeout_s=WAIT_S).rid == "1"
        assert scalar(conninfo, f"select faults from {repository}.element") == 2
        assert booked(conninfo, repository) == ["around"]


def test_what_the_connection_refuses_is_given_back_uncharged(
    qm: onceq.QueueManager, life: Life, conninfo: str, repository: str
) -> None:
    wrong: Any = object()
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        replied(life, clerk, "1")
        with pytest.raises(TooLarge):
            clerk.receive(b"x" * 70_000, timeout_s=WAIT_S, connection=connection)
        connection.rollback()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(IllegalState):
            clerk.receive(timeout_s=WAIT_S, connection=connection)
        connection.rollback()
        with pytest.raises(IllegalState, match="autocommit"), plain(conninfo) as at_once:
            clerk.receive(timeout_s=WAIT_S, connection=at_once)
        with pytest.raises(InvalidValue):
            clerk.receive(timeout_s=WAIT_S, connection=wrong)
        assert clerk.outstanding == ["1"]
        found = f"select faults, claimed_by from {repository}.element"
        assert rows(conninfo, found) == [(0, None)]
        assert clerk.receive(timeout_s=WAIT_S).rid == "1"


def test_a_window_goes_on_beside_a_reply_that_is_held(
    qm: onceq.QueueManager, life: Life, conninfo: str
) -> None:
    with qm.clerk("till", RAW, window=3) as clerk, psycopg.connect(conninfo) as connection:
        limited(qm)
        replied(life, clerk, "1", "2", "3")
        received: list[str] = []
        for _ in range(LIMIT + 3):
            try:
                reply = clerk.receive(timeout_s=WAIT_S, connection=connection)
            except ReplyHeld:
                continue
            if reply.rid == "1":
                connection.rollback()
            else:
                received.append(reply.rid)
                connection.commit()
        assert received == ["2", "3"]
        clerk.disconnect()


class Interrupted:
    """A connection's driver that a signal cuts short, before the Op or after it."""

    def __init__(self, connection: psycopg.Connection[Any], real: PostgresDriver | None) -> None:
        self.connection = connection
        self._real = real

    def perform(self, op: ops.Op[Any]) -> int:
        if self._real is not None:
            self._real.perform(op)
        raise KeyboardInterrupt


def test_a_receive_that_is_cut_short_is_looked_at_by_the_next_connect(
    qm: onceq.QueueManager, life: Life, conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        replied(life, clerk, "1")
        with monkeypatch.context() as patched:
            cut_short = Interrupted(connection, None)
            patched.setattr(Callers, "driver", lambda *_: cut_short)
            with pytest.raises(KeyboardInterrupt):
                clerk.receive(timeout_s=WAIT_S, connection=connection)
        with pytest.raises(IllegalState, match="connect"):
            clerk.send("2", b"2")
        clerk.connect()
        assert clerk.receive(timeout_s=WAIT_S, connection=connection).rid == "1"
        connection.commit()
        assert clerk.recover().rid == "1"


def test_connect_refuses_to_wait_for_the_transaction_of_a_receive_that_was_cut_short(
    qm: onceq.QueueManager, life: Life, conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for ever: whoever is to end that transaction is the one that waits."""
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        replied(life, clerk, "1")
        with monkeypatch.context() as patched:
            cut_short = Interrupted(connection, PostgresDriver(connection, qm.repository))
            patched.setattr(Callers, "driver", lambda *_: cut_short)
            with pytest.raises(KeyboardInterrupt):
                clerk.receive(timeout_s=WAIT_S, connection=connection)
        with pytest.raises(IllegalState, match="still open: end it"):
            clerk.connect()
        connection.rollback()
        clerk.connect()
        assert clerk.receive(timeout_s=WAIT_S, connection=connection).rid == "1"
        connection.commit()
        assert clerk.recover().rid == "1"


@pytest.mark.parametrize("kind", KINDS)
def test_on_every_kind_of_connection(life: Life, conninfo: str, repository: str, kind: str) -> None:
    with KINDS[kind](conninfo, repository) as caller:
        clerk: Any = caller.qm.clerk("till", RAW)
        caller.wait(clerk.connect())
        caller.wait(clerk.send("1", b"1"))
        life.run(life.claim_one("raw"), b"signed for")
        for end in (caller.rollback, caller.commit):
            received = clerk.receive(b"ckpt", timeout_s=WAIT_S, connection=caller.connection)
            assert caller.wait(received).value == b"signed for"
            caller.execute(f"insert into {repository}.booked values ('1')")
            end()
        assert caller.wait(clerk.send("2", b"2")).state == "new"
        assert (clerk.last_received, clerk.checkpoint) == ("1", b"ckpt")
        caller.wait(clerk.close())
    assert booked(conninfo, repository) == ["1"]


def test_with_asyncio(life: Life, conninfo: str, repository: str) -> None:
    async def client() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as qm,
            qm.clerk("till", RAW) as clerk,
        ):
            await clerk.send("1", b"1")
            life.run(life.claim_one("raw"), b"1")
            async with await psycopg.AsyncConnection.connect(conninfo) as connection:
                await clerk.receive(timeout_s=WAIT_S, connection=connection)
                with pytest.raises(IllegalState):
                    await clerk.send("2", b"2")
                await connection.rollback()
                with pytest.raises(TooLarge):
                    await clerk.receive(b"x" * 70_000, timeout_s=60, connection=connection)
                await connection.rollback()
                reply = await clerk.receive(b"c", timeout_s=WAIT_S, connection=connection)
                assert reply.value == b"1"
                await connection.commit()
                assert (await clerk.send("2", b"2")).state == "new"
                assert clerk.checkpoint == b"c"

    asyncio.run(client())
