"""What `recover` does with replies, when it is given a handler and a policy (spec C14).

As in test_processing, in memory, where a life may end before any Op; with a real PostgreSQL and
kill -9 it is tests/crash/test_processing_kills.py.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

import onceq
from onceq.clerk import program, recovery
from onceq.clerk.processing import process, recover
from onceq.clerk.session import Session
from onceq.errors import InvalidValue
from onceq.model import ops
from onceq.testing.device import FakePrinter, Jam
from proof.conformance.ground import ORDERS, claim, execute
from proof.oracle.memory import MemoryDriver
from tests.clerk.test_processing import POLICIES, RAW, Shop, dies_before_each_step
from tests.lives import living


class RecoveringShop(Shop):
    """A client whose lives begin with `recover`, which is given the policy."""

    def begin(self, driver: MemoryDriver, session: Session[Any, Any]) -> None:
        self.serve()
        self.recover(driver, session)
        assert not session.outstanding, "what was there is processed"

    def recover(self, driver: MemoryDriver, session: Session[Any, Any]) -> onceq.Recovery:
        find = partial(recovery.recover, session, None, acknowledged=False)
        run = process(session, self.printer.output, self.policy, None, waits=False)
        found = driver.run(recover(find, run))
        self.settled += found.processed
        assert isinstance(found, onceq.NotSubmitted if session.s_rid is None else onceq.Done)
        return found


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("name", POLICIES)
def test_a_client_that_recovers_by_its_policy_keeps_its_promise(name: str, window: int) -> None:
    dies_before_each_step(RecoveringShop, name, window)


@pytest.mark.parametrize("name", POLICIES)
def test_recover_waits_for_no_reply_and_says_what_it_did(name: str) -> None:
    shop = RecoveringShop(POLICIES[name], window=2)
    driver = MemoryDriver(shop.oracle, shop.clock)
    session = Session(name="till", thread="", queue=ORDERS, window=2)
    driver.run(program.connect(session))
    for rid in ("1", "2"):
        driver.run(program.send(session, ops.Request(rid=rid, body=b"")))
    (first, second) = claim(shop.server, shop.life_of_server, n=2)
    execute(shop.server, shop.life_of_server, first)
    find = partial(recovery.recover, session, None, acknowledged=False)
    run = process(session, shop.printer.output, shop.policy, None, waits=False)
    found = driver.run(recover(find, run))
    assert isinstance(found, onceq.Submitted)
    assert [(one.reply.rid, one.settled) for one in found.processed] == [
        ("1", onceq.Settled.PROCESSED)
    ]
    execute(shop.server, shop.life_of_server, second)
    found = shop.recover(driver, session)
    assert [one.reply.rid for one in found.processed] == shop.printer.printed[1:] == ["2"]
    assert shop.recover(driver, session).processed == ()


def test_recover_processes_nothing_where_the_repository_went_back() -> None:
    """A request that its client knows as sent is not there: a person decides first."""
    shop = RecoveringShop(POLICIES["repeat"])
    driver = MemoryDriver(shop.oracle, shop.clock)
    session = Session(name="till", thread="", queue=ORDERS, window=1)
    driver.run(program.connect(session))
    driver.run(program.send(session, ops.Request(rid="1", body=b"")))
    shop.serve()
    find = partial(recovery.recover, session, "2", acknowledged=True)
    found = driver.run(recover(find, process(session, shop.printer.output, shop.policy, None)))
    assert isinstance(found, onceq.WentBack)
    assert (found.processed, shop.printer.printed) == ((), [])


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_clerk_recovers_by_a_policy(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, is_shared: bool
) -> None:
    """One of its own, and one of a desk; what `process` would say after it is nothing."""
    qm.declare(RAW)
    printer = FakePrinter()
    with living(conninfo, repository) as life, ExitStack() as stack:
        makes = stack.enter_context(qm.clerks()) if is_shared else qm
        clerk = stack.enter_context(makes.clerk("till", RAW))
        given: Any = {
            "handler": printer.output,
            "reply_policy": onceq.ReplyPolicy.test(printer),
        }
        found = clerk.recover(**given)
        assert (type(found), found.processed) == (onceq.NotSubmitted, ())
        clerk.send("1", b"x")
        found = clerk.recover(**given)
        assert (type(found), found.processed) == (onceq.Submitted, ())
        life.run(life.claim_one("raw"), b"reply")
        printer.jams_after = 1
        with pytest.raises(Jam):
            clerk.recover(**given)
        clerk.connect()
        found = clerk.recover(**given)
        (one,) = found.processed
        assert (type(found), found.rid, found.ckpt) == (onceq.Done, "1", b"1")
        assert (one.reply.value, one.settled) == (b"reply", onceq.Settled.BEFORE)
        assert clerk.process(printer.output, given["reply_policy"]) == []
        assert printer.printed == ["1"]
        for name in given:
            with pytest.raises(InvalidValue):
                clerk.recover(**{name: given[name]})
