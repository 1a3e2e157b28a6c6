"""A client with a ledger of its own (spec C3, C4): one behaviour, whatever it is kept in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import Fenced, IllegalState, InvalidValue, QueueStopped, RidReused
from onceq.model.ledger_ops import WriteLedger
from tests.clerk.ledgers import Ground, ground, ledger, other_postgresql
from tests.clerk.links import struck, struck_by
from tests.lives import living

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clerk.ledger import Ledger
    from onceq.model.ops import Op

RAW = onceq.Queue("raw", bytes, bytes)

__all__ = ["ground", "ledger", "other_postgresql"]


def test_the_states_one_after_the_other(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    qm = ground.qm
    with living(ground.conninfo, qm.repository) as life:
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            found = clerk.recover()
            assert isinstance(found, onceq.NotSubmitted)
            assert found.rid is None
            clerk.send("1", b"x")
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            found = clerk.recover()
            assert isinstance(found, onceq.Submitted)
            assert (found.rid, found.request) == ("1", b"x")
        life.run(life.claim_one("raw"), b"reply")
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            assert isinstance(clerk.recover(), onceq.ReplyWaiting)
            assert clerk.receive(timeout_s=60).value == b"reply"
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            assert isinstance(clerk.recover(), onceq.ReplyWaiting)
            clerk.done(clerk.receive(timeout_s=60))
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            assert isinstance(clerk.recover(), onceq.Done)
            clerk.send("2", b"y")
            assert isinstance(clerk.recover(), onceq.Submitted)


def test_work_commits_with_the_send_and_with_what_was_done(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    qm = ground.qm
    with living(ground.conninfo, qm.repository) as life:
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            clerk.recover()
            with clerk.transaction() as work:
                work.connection.execute("create table notes (text text)")
                work.connection.execute("insert into notes values ('sent 1')")
                work.send("1", b"x", priority=7)
            with pytest.raises(_Stopped):
                _write_and_stop(clerk)
            element = life.claim_one("raw")
            assert element.priority == 7
            life.run(element, b"reply")
            reply = clerk.receive(timeout_s=60)
            with clerk.transaction() as work:
                work.connection.execute("insert into notes values ('done 1')")
                work.done(reply)
                work.send("2", b"y")
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            found = clerk.recover()
            assert isinstance(found, onceq.Submitted)
            assert found.rid == "2"
            with clerk.transaction() as work:
                rows = work.connection.execute("select text from notes order by 1").fetchall()
            assert [text for (text,) in rows] == ["done 1", "sent 1"]


def _note_and_send(clerk: onceq.LedgerClerk[bytes, bytes, Any]) -> None:
    with clerk.transaction() as work:
        work.connection.execute("insert into notes values ('sent')")
        work.send("1", b"x")


@pytest.mark.parametrize("kind", ["same database", "queue"])
def test_a_refused_send_undoes_the_work_in_its_transaction(ground: Ground, kind: str) -> None:
    with ground.qm.clerk("ann", RAW, ledger=ground.ledger(kind)) as clerk:
        clerk.recover()
        with clerk.transaction() as work:
            work.connection.execute("create table notes (text text)")
        ground.qm.stop("raw", dequeue=False)
        with pytest.raises(QueueStopped):
            _note_and_send(clerk)
        with clerk.transaction() as work:
            assert work.connection.execute("select text from notes").fetchall() == []
        ground.qm.start("raw")
        _note_and_send(clerk)
        with clerk.transaction() as work:
            assert work.connection.execute("select text from notes").fetchall() == [("sent",)]
    assert [one.rid for one in ground.qm.lookup(queue="raw")] == ["1"]


class _Stopped(Exception):
    """What a client's own work raises."""


def _write_and_stop(clerk: onceq.LedgerClerk[bytes, bytes, Any]) -> None:
    with clerk.transaction() as work:
        work.connection.execute("insert into notes values ('never')")
        raise _Stopped


def test_before_recover_nothing_may_be_done(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        for call in (
            lambda: clerk.send("1", b"x"),
            lambda: clerk.receive(timeout_s=0),
            clerk.resubmit,
            clerk.discard,
            lambda: clerk.transaction().__enter__(),
        ):
            with pytest.raises(IllegalState, match="recover"):
                call()


def test_a_refused_send_leaves_no_request(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    qm = ground.qm
    with living(ground.conninfo, qm.repository) as life:
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            clerk.recover()
            clerk.send("1", b"x")
            life.run(life.claim_one("raw"))
            clerk.done(clerk.receive(timeout_s=60))
            with pytest.raises(RidReused):
                clerk.send("1", b"other")
            clerk.send("2", b"y")
        with qm.clerk("ann", RAW, ledger=ledger) as clerk:
            assert clerk.recover().rid == "2"


@pytest.mark.parametrize("policy", ["resubmit", "discard", "ask"])
def test_what_was_not_submitted(ground: Ground, ledger: Ledger[Any, Any], policy: Any) -> None:
    qm = ground.qm
    qm.stop("raw", dequeue=False)
    with qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        with pytest.raises(QueueStopped):
            clerk.send("1", b"x", priority=7)
        with pytest.raises(IllegalState, match="discard"):
            clerk.send("2", b"x")
    qm.start("raw")
    with qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover(policy=policy)
        if policy == "resubmit":
            assert isinstance(found, onceq.Submitted)
            assert found.rid == "1"
            (place,) = qm.lookup("1")
            assert place.state == "queued"
            return
        assert isinstance(found, onceq.NotSubmitted)
        assert (found.rid, found.request) == ("1", b"x")
        if policy == "ask":
            clerk.discard()
        clerk.send("2", b"y")
        assert qm.lookup("1") == []
        assert isinstance(clerk.recover(), onceq.Submitted)


def test_what_the_repository_lost_is_state_e_never_a(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    """Finding 10: a failover, or a restored backup, has lost what was acknowledged."""
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
    ground.forget("1")
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover(policy="resubmit")
        assert isinstance(found, onceq.WentBack)
        assert (found.rid, found.request) == ("1", b"x")
        assert "does not know it" in found.rests_on
        with pytest.raises(IllegalState, match="in state E"):
            clerk.send("2", b"y")
        clerk.resubmit()  # as a person has decided
        assert isinstance(clerk.recover(), onceq.Submitted)


def test_a_lost_request_that_was_done_is_state_e_too(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    with living(ground.conninfo, ground.qm.repository) as life:
        with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
            clerk.recover()
            clerk.send("1", b"x")
            life.run(life.claim_one("raw"))
            clerk.done(clerk.receive(timeout_s=60))
        ground.forget("1")
        with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
            assert isinstance(clerk.recover(), onceq.WentBack)
            clerk.discard()
            with pytest.raises(IllegalState, match="recover"):
                clerk.send("2", b"y")
            clerk.recover()
            clerk.send("2", b"y")
            life.run(life.claim_one("raw"))
            clerk.done(clerk.receive(timeout_s=60))
        assert life.claim("raw") == []


def test_a_new_ledger_takes_over_what_the_session_has(ground: Ground) -> None:
    with living(ground.conninfo, ground.qm.repository) as life:
        with ground.qm.clerk("ann", RAW) as clerk:
            clerk.send("1", b"x")
        life.run(life.claim_one("raw"))
        with ground.qm.clerk("ann", RAW, ledger=onceq.QueueLedger()) as kept:
            found = kept.recover()
            assert isinstance(found, onceq.ReplyWaiting)
            assert "brought up to it" in found.rests_on
            kept.done(kept.receive(timeout_s=60))
        with ground.qm.clerk("ann", RAW, ledger=onceq.QueueLedger()) as kept:
            found = kept.recover()
            assert isinstance(found, onceq.Done)
            assert found.rid == "1"


def test_an_older_life_writes_nothing(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    old = ground.qm.clerk("ann", RAW, ledger=ledger).connect()
    old.recover()
    old.send("1", b"x")
    with living(ground.conninfo, ground.qm.repository) as life:
        life.run(life.claim_one("raw"))
    reply = old.receive(timeout_s=60)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as new:
        assert isinstance(new.recover(), onceq.ReplyWaiting)
        with pytest.raises(Fenced, match=r'client "ann" (has connected again|has it)'):
            old.done(reply)
        new.done(new.receive(timeout_s=60))
        assert isinstance(new.recover(), onceq.Done)
    old.close()


def test_an_older_life_sends_nothing_and_notes_nothing(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    old = ground.qm.clerk("ann", RAW, ledger=ledger).connect()
    old.recover()
    with ground.qm.clerk("ann", RAW, ledger=ledger) as new:
        new.recover()
        new.send("1", b"x")
        with pytest.raises(Fenced, match=r'client "ann" .*connect\(\) again, which fences it'):
            old.send("2", b"y")
    old.close()
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover()
        assert isinstance(found, onceq.Submitted)
        assert found.rid == "1"


def _send_and_commit(clerk: onceq.LedgerClerk[bytes, bytes, Any]) -> None:
    with clerk.transaction() as work:
        work.send("1", b"x")
        work.connection.commit()


def test_a_block_that_ends_its_transaction_sends_nothing(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        with pytest.raises(IllegalState, match="by itself"):
            _send_and_commit(clerk)
        assert ground.qm.lookup("1") == []


def test_one_request_at_a_time(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    with pytest.raises(InvalidValue, match="window"):
        ground.qm.clerk("ann", RAW, window=2, ledger=ledger)  # type: ignore[call-overload] # refused by the types too
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
        with pytest.raises(IllegalState, match="constructed"):
            clerk.send("2", b"y")
        with pytest.raises(InvalidValue, match="policy"):
            clerk.recover(policy="guess")  # type: ignore[arg-type] # a mistake
        assert clerk.cancel_last_request() is onceq.KillAnswer.KILLED
        with pytest.raises(onceq.Cancelled):
            assert clerk.receive(timeout_s=60).value
        clerk.disconnect()
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        assert clerk.was_disconnected


def test_the_async_clerk_keeps_the_same_ledger(ground: Ground, ledger: Ledger[Any, Any]) -> None:
    async def live() -> onceq.Recovery:
        url, repository = ground.url, ground.qm.repository
        async with (
            onceq.open_async(url, repository=repository) as qm,
            qm.clerk("ann", RAW, ledger=ledger) as clerk,
        ):
            await clerk.recover()
            async with clerk.transaction() as work:
                work.send("1", b"x")
            await asyncio.to_thread(ground.serve_one)
            reply = await clerk.receive(timeout_s=60)
            assert (await clerk.rereceive()) == reply
            await clerk.done(reply)
            await asyncio.gather(clerk.send("2", b"y"), asyncio.to_thread(ground.serve_one))
            with pytest.raises(_Stopped):
                await _stop(clerk)
            await clerk.done(await clerk.receive(timeout_s=60))
            await clerk.send("3", b"z")
            return await clerk.recover()

    found = asyncio.run(live())
    assert isinstance(found, onceq.Submitted)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert clerk.recover().rid == "3"


async def _stop(clerk: onceq.AsyncLedgerClerk[bytes, bytes, Any]) -> None:
    async with clerk.transaction():
        raise _Stopped


def test_a_repository_that_lost_the_one_before_is_state_e(ground: Ground) -> None:
    """What is next was not submitted yet, but what it comes after is gone: not A either."""
    ledger = ground.ledger("sqlite")
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
        ground.serve_one()
        clerk.done(clerk.receive(timeout_s=60))
        ground.qm.stop("raw", dequeue=False)
        with pytest.raises(QueueStopped):
            clerk.send("2", b"y")
    ground.qm.start("raw")
    ground.forget("1")
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover(policy="resubmit")
        assert isinstance(found, onceq.WentBack)
        assert found.rid == "2"
        clerk.resubmit()
        assert isinstance(clerk.recover(), onceq.Submitted)


def test_what_was_cut_short_is_not_committed_by_the_next_connect(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    """By a cancellation, or Ctrl-C, after which the same clerk begins a new life."""
    clerk, link = struck(ground.qm, ledger)
    with clerk:
        clerk.recover()
        with struck_by(link, _stopping_before), pytest.raises(_Stopped):
            _work(clerk)
        clerk.connect()
        clerk.recover(policy="discard")
        _work(clerk)


def _stopping_before(perform: Callable[[Op[Any]], Any], op: Op[Any]) -> Any:
    if isinstance(op, WriteLedger):
        raise _Stopped
    return perform(op)


def _work(clerk: onceq.LedgerClerk[bytes, bytes, Any]) -> None:
    """Work that can be committed once."""
    with clerk.transaction() as work:
        work.connection.execute("create table work (n integer)")
        work.send("1", b"x")
