"""What a client with a ledger does with a reply: five policies, killed before every step (C4, C14).

The repository is in memory. The ledger is a file, written before the send and after the receive, or
a queue of the repository, in one transaction with both.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

import onceq
from onceq.clerk.ledger import processing, program, recovery
from onceq.clerk.ledger.sqlite import SqliteExecutor
from onceq.clerk.ledger.whole import whole
from onceq.clerk.processing import recover
from onceq.clerk.session import Session
from onceq.errors import IllegalState
from onceq.model import ops
from onceq.model.ledger_ops import LEDGER_OPS, Statement
from onceq.testing.device import FakePrinter, Jam
from proof.conformance.ground import ORDERS
from tests.clerk.ledgers import Ground, ground, ledger, other_postgresql
from tests.clerk.test_processing import LIVES_MAX, POLICIES, REQUESTS, Death, Mortal, Shop, judge

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.clerk.ledger import Ledger
    from onceq.clerk.ledger.program import Kept

T = TypeVar("T")
RAW = onceq.Queue("raw", bytes, bytes)
KINDS = ("sqlite", "queue")

__all__ = ["ground", "ledger", "other_postgresql"]


class Bookkeeper(Mortal):
    """A client's session and its ledger; it ends before its `steps`-th Op on either."""

    def __init__(self, shop: KeptShop, steps: int) -> None:
        super().__init__(shop.oracle, shop.clock)
        self.steps = steps
        self._answers = shop.ledger.answers()
        is_file = isinstance(shop.ledger, onceq.SqliteLedger)
        self._file = SqliteExecutor(shop.ledger.path) if is_file else None

    def perform(self, op: ops.Op[T]) -> T:
        if isinstance(op, Statement):  # a part of an Op on the ledger
            done: Any = [] if self._file is None else self._file.execute(op)
            return done  # type: ignore[no-any-return] # rows
        if not isinstance(op, LEDGER_OPS):
            return super().perform(op)
        self.steps -= 1
        if self.steps == 0:
            raise Death
        answered: T = self.run(self._answers.answer(op))
        return answered

    def end(self) -> None:
        super().end()
        if self._file is not None:
            self._file.close()


class KeptShop(Shop):
    """A shop whose client keeps a ledger."""

    def __init__(self, name: str, kind: str, place: Path) -> None:
        super().__init__(POLICIES[name])
        self.ledger: Any = (
            onceq.QueueLedger() if kind == "queue" else onceq.SqliteLedger(place / "ledger")
        )

    def live(self, steps: int = 0) -> bool:
        driver = Bookkeeper(self, steps)
        try:
            self.work(driver)
        except Death:
            return False
        finally:
            driver.end()
        return True

    def begun(self, driver: Any) -> tuple[Kept, onceq.Recovery]:
        """Begins a life, and recovers."""
        session: Session[Any, Any] = Session(name="till", thread="", queue=ORDERS, window=1)
        kept = program.kept_beside(session, self.ledger.joint, "memory")
        driver.run(program.connect(kept, uuid.uuid4().hex))
        return kept, driver.run(whole(kept, recovery.recover(kept, "resubmit")))

    def work(self, driver: Any) -> None:
        kept, found = self.begun(driver)
        self.begin_with(driver, kept)
        for number in range(int(found.rid or 0) + 1, REQUESTS + 1):
            self.send(driver, kept, number)
            self.settle(driver, kept)

    def begin_with(self, driver: Any, kept: Kept) -> None:
        """Settles what the former life has left."""
        self.settle(driver, kept)

    def send(self, driver: Any, kept: Kept, number: int) -> None:
        request = ops.Request(rid=str(number), body=b"")
        driver.run(whole(kept, program.send(kept, request)))

    def settle(self, driver: Any, kept: Kept) -> None:
        self.serve()
        run = processing.process(kept, self.printer.output, self.policy, 0.5)
        self.settled += driver.run(run)


class RecoveringKeptShop(KeptShop):
    """A client whose lives begin with `recover`, which is given the policy."""

    def begin_with(self, driver: Any, kept: Kept) -> None:
        self.serve()
        find = partial(recovery.recovered, kept, "resubmit")
        run = processing.process(kept, self.printer.output, self.policy, None, waits=False)
        found = driver.run(recover(find, run))
        self.settled += found.processed
        kinds = (onceq.NotSubmitted, onceq.Done)
        assert isinstance(found, kinds)
        assert not kept.session.outstanding, "what was there is processed"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", POLICIES)
def test_a_client_with_a_ledger_that_dies_before_any_step_keeps_its_promise(
    tmp_path: Path, name: str, kind: str
) -> None:
    _dies_before_each_step(KeptShop, tmp_path, name, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", POLICIES)
def test_a_client_with_a_ledger_that_recovers_by_its_policy_keeps_its_promise(
    tmp_path: Path, name: str, kind: str
) -> None:
    _dies_before_each_step(RecoveringKeptShop, tmp_path, name, kind)


def _dies_before_each_step(make: type[KeptShop], tmp_path: Path, name: str, kind: str) -> None:
    doubled = missing = 0
    for steps in range(1, LIVES_MAX):
        place = tmp_path / str(steps)
        place.mkdir()
        shop = make(name, kind, place)
        died = not shop.live(steps)
        assert shop.live(), "a life that nothing ends ended"
        judge(name, shop.printer.printed, int(died))
        doubled += len(shop.printer.printed) > REQUESTS
        missing += len(shop.printer.printed) < REQUESTS
        if not died:
            break
    else:
        pytest.fail(f"there are more than {LIVES_MAX} steps")
    assert (doubled > 0) is (name == "repeat"), "the worst moment was met, and only there it shows"
    assert (missing > 0) is (name == "skip")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", POLICIES)
def test_what_the_ledger_has_as_processed_is_in_no_doubt(
    tmp_path: Path, name: str, kind: str
) -> None:
    """In the same life and in the next: no policy is asked, though a checkpoint says it began."""
    shop = KeptShop(name, kind, tmp_path)
    driver = Bookkeeper(shop, 0)
    kept, _ = shop.begun(driver)
    shop.send(driver, kept, 1)
    shop.settle(driver, kept)
    shop.settle(driver, kept)
    driver.run(whole(kept, recovery.recover(kept, "ask")))
    shop.settle(driver, kept)
    driver.end()
    driver = Bookkeeper(shop, 0)
    kept, found = shop.begun(driver)
    shop.settle(driver, kept)
    driver.end()
    assert isinstance(found, onceq.Done)
    assert [one.settled for one in shop.settled] == [onceq.Settled.PROCESSED]
    assert shop.printer.printed == ["1"]


@pytest.mark.parametrize("recovers", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_of_the_handler_leaves_the_reply_in_doubt(
    tmp_path: Path, kind: str, *, recovers: bool
) -> None:
    """Whether or not it recovers before it goes on: the device is asked."""
    shop = KeptShop("test", kind, tmp_path)
    driver = Bookkeeper(shop, 0)
    kept, _ = shop.begun(driver)
    shop.send(driver, kept, 1)
    shop.printer.jams_after = 1
    with pytest.raises(Jam):
        shop.settle(driver, kept)
    if recovers:
        found = driver.run(whole(kept, recovery.recover(kept, "ask")))
        assert isinstance(found, onceq.ReplyWaiting)
    shop.settle(driver, kept)
    driver.end()
    assert [one.settled for one in shop.settled] == [onceq.Settled.BEFORE]
    assert shop.printer.printed == ["1"]


def test_a_clerk_with_a_ledger_processes_by_a_policy(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    printer = FakePrinter()
    policy = onceq.ReplyPolicy.test(printer)
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        with pytest.raises(IllegalState, match="recover"):
            clerk.process(printer.output, policy)
        clerk.recover()
        clerk.send("1", b"x")
        ground.serve_one()
        (done,) = clerk.process(printer.output, policy, timeout_s=60)
        assert (done.reply.value, done.settled) == (b"reply", onceq.Settled.PROCESSED)
        assert clerk.checkpoint == b"1"
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        assert isinstance(clerk.recover(), onceq.Done)
        assert clerk.process(printer.output, policy) == []
        clerk.send("2", b"y")
        ground.serve_one()
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        printer.jams_after = 1
        with pytest.raises(Jam):
            clerk.recover(handler=printer.output, reply_policy=policy)
        found = clerk.recover(handler=printer.output, reply_policy=policy)
        (one,) = found.processed
        assert (type(found), found.rid, one.settled) == (onceq.Done, "2", onceq.Settled.BEFORE)
        clerk.send("3", b"z")
    assert printer.printed == ["1", "2"]


def test_a_handler_may_process_a_reply_in_a_transaction_of_its_own(
    ground: Ground, ledger: Ledger[Any, Any]
) -> None:
    with ground.qm.clerk("ann", RAW, ledger=ledger) as clerk:
        clerk.recover()
        with clerk.transaction() as work:
            work.connection.execute("create table notes (text text)")

        def book(reply: onceq.Reply[bytes]) -> None:
            with clerk.transaction() as work:
                work.connection.execute("insert into notes values ('booked')")
                work.done(reply)

        clerk.send("1", b"x")
        ground.serve_one()
        (done,) = clerk.process(book, onceq.ReplyPolicy.repeat(), timeout_s=60)
        assert done.settled is onceq.Settled.PROCESSED
        with clerk.transaction() as work:
            rows = work.connection.execute("select text from notes").fetchall()
        assert rows == [("booked",)]
        assert isinstance(clerk.recover(), onceq.Done)
