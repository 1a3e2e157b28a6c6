"""A ledger in another database: what a dead life left prepared ends as the repository decided."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.errors import LedgerRefused, OperatingError, Outcome, QueueStopped
from onceq.model import ledger_ops, ops
from onceq.model.ledger import Owner
from tests.clerk.ledgers import Ground, ground, other_postgresql
from tests.clerk.links import struck, struck_by
from tests.lives import living

if TYPE_CHECKING:
    from collections.abc import Callable

RAW = onceq.Queue("raw", bytes, bytes)

__all__ = ["ground", "other_postgresql"]


class _Died(BaseException):
    """The client's process has ended."""


def _dying(at: type[Any], when: str) -> Callable[[Callable[[ops.Op[Any]], Any], ops.Op[Any]], Any]:
    """Lets a client die before or after an Op, leaving its connections to be closed."""

    def performing(perform: Callable[[ops.Op[Any]], Any], op: ops.Op[Any]) -> Any:
        if isinstance(op, at) and when == "before":
            raise _Died
        answer = perform(op)
        if isinstance(op, at):
            raise _Died
        return answer

    return performing


def _notes(ground: Ground) -> list[str]:
    with psycopg.connect(ground.other) as connection:
        return [text for (text,) in connection.execute("select text from notes order by 1")]


def _begin(ground: Ground, ledger: onceq.PostgresLedger) -> None:
    with psycopg.connect(ground.other) as connection:
        connection.execute("create table notes (text text)")
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()


def _sending(clerk: onceq.LedgerClerk[bytes, bytes, Any]) -> None:
    with clerk.transaction() as work:
        work.connection.execute("insert into notes values ('sent')")
        work.send("1", b"x")


def _processing(clerk: onceq.LedgerClerk[bytes, bytes, Any]) -> None:
    reply = clerk.receive(timeout_s=60)
    with clerk.transaction() as work:
        work.connection.execute("insert into notes values ('done')")
        work.done(reply)


DEATHS = [
    (ledger_ops.PrepareLedger, "after", []),
    (ops.Send, "before", []),
    (ops.Send, "after", ["sent"]),
    (ledger_ops.EndPrepared, "before", ["sent"]),
    (ledger_ops.EndPrepared, "after", ["sent"]),
]


@pytest.mark.parametrize(("at", "when", "kept"), DEATHS)
def test_a_send_is_in_both_or_in_neither(
    ground: Ground, at: type[Any], when: str, kept: list[str]
) -> None:
    ledger = onceq.PostgresLedger(ground.other)
    _begin(ground, ledger)
    _die(ground, ledger, _sending, (at, when))
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert ledger.in_doubt() == []
        found = clerk.recover()
        assert isinstance(found, onceq.Submitted) is (kept != [])
    assert _notes(ground) == kept
    assert len(ground.qm.lookup("1")) == len(kept)


@pytest.mark.parametrize(("at", "when", "kept"), DEATHS)
def test_what_was_done_is_in_both_or_in_neither(
    ground: Ground, at: type[Any], when: str, kept: list[str]
) -> None:
    at = ops.Acknowledge if at is ops.Send else at
    ledger = onceq.PostgresLedger(ground.other)
    _begin(ground, ledger)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        clerk.send("1", b"x")
    ground.serve_one()
    _die(ground, ledger, _processing, (at, when))
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        found = clerk.recover()
        assert isinstance(found, onceq.Done if kept else onceq.ReplyWaiting)
    assert _notes(ground) == ["done"] * len(kept)


def _die(
    ground: Ground,
    ledger: onceq.PostgresLedger,
    act: Callable[[onceq.LedgerClerk[bytes, bytes, Any]], None],
    death: tuple[type[Any], str],
) -> None:
    clerk, link = struck(ground.qm, ledger)
    clerk.connect().recover()
    with struck_by(link, _dying(*death)), pytest.raises(_Died):
        act(clerk)
    (waiting,) = ledger.in_doubt() or (None,)
    ended = death == (ledger_ops.EndPrepared, "after")
    assert (waiting is None) is ended
    assert waiting is None or '"ann"' in (waiting.owner or "")
    clerk.close()


def test_a_refused_send_undoes_what_was_prepared(ground: Ground) -> None:
    ledger = onceq.PostgresLedger(ground.other)
    _begin(ground, ledger)
    ground.qm.stop("raw", dequeue=False)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        with pytest.raises(QueueStopped):
            _sending(clerk)
        ground.qm.start("raw")
        _sending(clerk)
    assert _notes(ground) == ["sent"]


def test_a_lost_ledger_database_is_in_doubt_until_the_next_connect(ground: Ground) -> None:
    ledger = onceq.PostgresLedger(ground.other)
    _begin(ground, ledger)
    clerk, link = struck(ground.qm, ledger)

    def losing(perform: Callable[[ops.Op[Any]], Any], op: ops.Op[Any]) -> Any:
        if isinstance(op, ledger_ops.EndPrepared):
            link.executor.connection.close()
        return perform(op)

    with clerk:
        clerk.recover()
        with struck_by(link, losing), pytest.raises(OperatingError) as raised:
            _sending(clerk)
        assert raised.value.outcome is Outcome.UNKNOWN
        assert len(ledger.in_doubt()) == 1
        clerk.connect()
        assert isinstance(clerk.recover(), onceq.Submitted)
    assert _notes(ground) == ["sent"]


def test_a_database_that_prepares_nothing_is_refused() -> None:
    owner = Owner(repository="r", repository_id=uuid.uuid4(), registrant="ann", thread="")
    take = ledger_ops.TakeLedger(owner=owner, who=ops.Identity(registrant_id=1, epoch=1), life="1")
    taking = onceq.PostgresLedger("dbname=shop").answers().answer(take)
    asked = next(taking)
    assert isinstance(asked, ledger_ops.Statement)
    assert "max_prepared_transactions" in asked.text
    with pytest.raises(LedgerRefused, match="max_prepared_transactions"):
        taking.send([(0,)])


def test_an_older_life_cannot_prepare_behind_a_newer_one(ground: Ground) -> None:
    """A ghost that wrote before the newer life came holds its row: the newer waits for its end."""
    ledger = onceq.PostgresLedger(ground.other)
    _begin(ground, ledger)
    old = ground.qm.clerk("ann", RAW, ledger=ledger).connect()
    old.recover()
    with ground.qm.clerk("ann", RAW, ledger=ledger) as new:
        with pytest.raises(onceq.Fenced):
            _sending(old)
        new.recover()
        _sending(new)
    old.close()
    assert _notes(ground) == ["sent"]
    with living(ground.conninfo, ground.qm.repository) as life:
        assert len(life.claim("raw", 9)) == 1
