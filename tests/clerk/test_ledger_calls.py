"""Every call of a clerk exists with a ledger, or is refused in words; so is what needs one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.errors import IllegalState, InvalidValue, QueueStopped, ReceiveTimeout
from tests.clerk.ledgers import Ground, ground, ledger, other_postgresql

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clerk.ledger import Ledger

RAW = onceq.Queue("raw", bytes, bytes)
ALERTS = onceq.Queue("alerts", bytes, bytes)
WAIT_S = 60

__all__ = ["ground", "ledger", "other_postgresql"]


def test_a_clerk_with_a_ledger_is_a_clerk(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    clerk = ground.qm.clerk("ann", RAW, ledger=ledger)
    assert isinstance(clerk, onceq.Clerk)
    with clerk:
        clerk.recover()
        sent = clerk.send("1", b"x")
        (place,) = ground.qm.lookup("1")
        assert (sent.state, sent.eid) == ("new", place.eid)


def test_a_request_is_watched(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    """Where it is, alerts when it is late, the tags of threads (C7, C9)."""
    ground.qm.declare(ALERTS)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert clerk.where() is None
        clerk.recover()
        clerk.send("1", b"x")
        found = clerk.where()
        assert found is not None
        assert (found.rid, found.state) == ("1", "queued")
        assert clerk.alert_late("alerts", late_s=0.0) == ["1"]
        assert clerk.alert_late("alerts", late_s=0.0, rid="1") == []
        (tags,) = clerk.threads()
        assert (tags.s_rid, tags.state) == ("1", onceq.ClientState.REQ_SENT)
        assert isinstance(clerk.recover(), onceq.Submitted)
    assert ground.qm.show("alerts").depth == 1


def test_nothing_is_watched_within_a_transaction(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    """The call might be on its connection, and its error undo the client's own work."""
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        with clerk.transaction() as work:
            work.send("1", b"x")
            for call in (clerk.where, clerk.threads, lambda: clerk.alert_late("none", late_s=0)):
                with pytest.raises(IllegalState, match="end its block"):
                    call()
        assert isinstance(clerk.recover(), onceq.Submitted)


def test_the_end_user_is_in_the_ledger_too(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    """What was not submitted is resubmitted with them, and they come back with the reply (C19)."""
    user = onceq.EndUser("mine-7", "page 3")
    ground.qm.stop("raw", dequeue=False)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        with pytest.raises(QueueStopped):
            clerk.send("1", b"x", end_user=user, properties={"till": 7})
    ground.qm.start("raw")
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert isinstance(clerk.recover(policy="resubmit"), onceq.Submitted)
        assert clerk.last_user == user
        ground.serve_one()
        assert clerk.receive(timeout_s=WAIT_S).end_user == user


def test_a_checkpoint_is_there_when_the_reply_comes_again(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    """A client that died before it noted the reply can look how far it had come (C8)."""
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
        ground.serve_one()
        reply = clerk.receive(b"before", timeout_s=WAIT_S)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover()
        assert (type(found), found.rid, found.ckpt) == (onceq.ReplyWaiting, "1", b"before")
        assert clerk.receive(timeout_s=WAIT_S) == reply
        clerk.done(reply)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert isinstance(clerk.recover(), onceq.Done)
        clerk.send("2", b"y")
        assert (clerk.last_received, clerk.checkpoint) == ("1", b"before")
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover()
        assert (type(found), found.rid) == (onceq.Submitted, "2")


def test_a_checkpoint_decides_nothing_about_what_is_prepared(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    """The reply was received with one and is not done: a transaction that notes it stands alone."""
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
        ground.serve_one()
        with clerk.transaction() as work:
            work.connection.execute("create table notes (text text)")
        reply = clerk.receive(b"before", timeout_s=WAIT_S)
        with clerk.transaction() as work:
            work.connection.execute("insert into notes values ('done')")
            work.done(reply)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert isinstance(clerk.recover(), onceq.Done)
        with clerk.transaction() as work:
            assert work.connection.execute("select text from notes").fetchall() == [("done",)]


def test_who_waits_is_asked_whether_to_go_on(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    """The hook may use the clerk (C9)."""
    states: list[str] = []
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:

        def waits(late: ReceiveTimeout) -> bool:
            found = clerk.where()
            states.append("" if found is None else found.state)
            if len(states) == 1:
                ground.serve_one()
            return "no reply" in str(late)

        clerk.recover()
        clerk.send("1", b"x")
        assert clerk.receive(timeout_s=0.05, rid="1", on_timeout=waits).value == b"reply"
        assert states[0] == "queued"
        with pytest.raises(InvalidValue, match="on_timeout is a function"):
            clerk.receive(on_timeout=5)  # type: ignore[arg-type] # a mistake


def test_a_reply_is_received_in_other_ways(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
        ground.serve_one()
        (reply,) = clerk.receive_many(9, checkpoint=b"c", timeout_s=WAIT_S)
        assert clerk.rereceive("1") == reply
        assert (clerk.checkpoint, clerk.unacknowledged, clerk.room) == (b"c", ["1"], 1)
        clerk.done(reply)
        with pytest.raises(ReceiveTimeout):
            clerk.transceive("2", b"y", checkpoint=b"d", timeout_s=0.05)
        ground.serve_one()
        assert clerk.receive(b"d", timeout_s=WAIT_S).rid == "2"
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert (clerk.recover().ckpt, clerk.last_received) == (b"d", "2")


WITH_A_LEDGER: dict[str, tuple[Callable[[Any], object], str]] = {
    "send_one_way": (lambda clerk: clerk.send_one_way("2", b"y"), "send() waits for it"),
    "send_many": (lambda clerk: clerk.send_many([("2", b"y")]), "one request at a time"),
    "stream": (lambda clerk: clerk.stream([("2", b"y")]), "one request at a time"),
    "acknowledge": (lambda clerk: clerk.acknowledge(["1"]), "done(reply) frees a reply"),
    "receive in a transaction": (
        lambda clerk: clerk.receive(timeout_s=0, connection=object()),
        "in a block of transaction()",
    ),
    "recover a rid": (lambda clerk: clerk.recover("1"), "without rid"),
    "recover what was acknowledged": (lambda clerk: clerk.recover(acknowledged=True), "without"),
    "recover by history": (lambda clerk: clerk.recover(by="history"), "without"),
}
"""What is refused, and what the error says to do instead."""


@pytest.mark.parametrize("name", WITH_A_LEDGER)
def test_what_is_not_for_a_ledger_is_refused_in_words(ground: Ground, name: str) -> None:
    call, instead = WITH_A_LEDGER[name]
    with ground.qm.clerk("ann", RAW, ledger=ground.ledger("queue")) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
        with pytest.raises(IllegalState, match="not for a client with a ledger") as told:
            call(clerk)
        assert instead in str(told.value)
        assert isinstance(clerk.recover(), onceq.Submitted)
    assert [one.rid for one in ground.qm.lookup(queue="raw")] == ["1"]


WITHOUT: dict[str, Callable[[Any], object]] = {
    "done": lambda clerk: clerk.done(None),
    "transaction": lambda clerk: clerk.transaction(),
    "resubmit": lambda clerk: clerk.resubmit(),
    "discard": lambda clerk: clerk.discard(),
    "recover(policy='resubmit')": lambda clerk: clerk.recover(policy="resubmit"),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_what_needs_a_ledger_says_so(ground: Ground, name: str) -> None:
    with ground.qm.clerk("ann", RAW) as clerk:
        with pytest.raises(IllegalState, match="needs a ledger, and this client has none") as told:
            WITHOUT[name](clerk)
        assert name in str(told.value)
        assert "ledger=onceq.SqliteLedger(path)" in str(told.value)
        with pytest.raises(InvalidValue, match="policy"):
            clerk.recover(policy="guess")  # type: ignore[arg-type] # a mistake
        assert isinstance(clerk.recover(policy="ask"), onceq.NotSubmitted)


def test_with_asyncio(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    async def live() -> None:
        url, repository = ground.url, ground.qm.repository
        async with (
            onceq.open_async(url, repository=repository) as qm,
            qm.clerk("ann", RAW, ledger=ledger) as clerk,
        ):
            await clerk.recover()
            await clerk.send("1", b"x", end_user=onceq.EndUser("mine"))
            found = await clerk.where()
            assert found is not None
            assert found.state == "queued"
            await asyncio.to_thread(ground.serve_one)
            printed: list[str] = []

            async def output(reply: onceq.Reply[bytes]) -> None:
                printed.append(reply.rid)

            await clerk.process(output, onceq.ReplyPolicy.skip(), timeout_s=WAIT_S)
            assert printed == ["1"]
            assert isinstance(await clerk.recover(), onceq.Done)
            async with await psycopg.AsyncConnection.connect(url) as connection:
                with pytest.raises(IllegalState, match="transaction"):
                    await clerk.receive(connection=connection)
            with pytest.raises(IllegalState, match="one request at a time"):
                await clerk.send_many([])
        async with onceq.open_async(url, repository=repository) as qm, qm.clerk("bob", RAW) as bob:
            with pytest.raises(IllegalState, match="needs a ledger"):
                bob.transaction()

    asyncio.run(live())
