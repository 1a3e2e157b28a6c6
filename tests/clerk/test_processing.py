"""What a client does with a reply: five policies, each killed before every step (spec C8, C14).

In memory, where a life may end before any Op; with a real PostgreSQL and kill -9 it is
tests/crash/test_processing_kills.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onceq
from onceq.clerk import program
from onceq.clerk.policy import RULES
from onceq.clerk.processing import process
from onceq.clerk.session import Session
from onceq.errors import InvalidValue
from onceq.manager.program import declare
from onceq.model import ops
from onceq.testing.device import FakePrinter, Jam
from proof.conformance.ground import ORDERS, claim, execute, live
from proof.oracle.memory import MemoryDriver, memory_repository
from tests.lives import living

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clerk import Processed

T = TypeVar("T")

REQUESTS = 3
LIVES_MAX = 200
WANTED = [str(number) for number in range(1, REQUESTS + 1)]


class Death(BaseException):
    """A process that is no more."""


class Mortal(MemoryDriver):
    """A client's session, which ends before its `steps`-th Op."""

    steps = 0

    def perform(self, op: ops.Op[T]) -> T:
        self.steps -= 1
        if self.steps == 0:
            raise Death
        return super().perform(op)


class Shop:
    """A repository in memory with a server, and a client with a printer, which may die."""

    def __init__(self, policy: Callable[[FakePrinter], onceq.ReplyPolicy], window: int = 1) -> None:
        self.oracle, self.clock = memory_repository()
        self.server = self.session()
        self.server.run(declare(ORDERS))
        self.life_of_server = live(self.server)
        self.printer = FakePrinter()
        self.policy = policy(self.printer)
        self.window = window
        self.settled: list[Processed[Any]] = []

    def session(self) -> Any:
        return MemoryDriver(self.oracle, self.clock)

    def serve(self) -> None:
        """Executes what waits."""
        for element in claim(self.server, self.life_of_server, n=REQUESTS):
            execute(self.server, self.life_of_server, element)

    def live(self, steps: int = 0) -> bool:
        """Lives a life of the client; False when it ended before its work. steps: 0: no death."""
        driver = Mortal(self.oracle, self.clock)
        driver.steps = steps
        try:
            self.work(driver)
        except Death:
            return False
        finally:
            driver.end()
        return True

    def work(self, driver: MemoryDriver) -> None:
        session = Session(name="till", thread="", queue=ORDERS, window=self.window)
        driver.run(program.connect(session))
        self.begin(driver, session)
        for first in range(int(session.s_rid or 0) + 1, REQUESTS + 1, self.window):
            for number in range(first, min(first + self.window, REQUESTS + 1)):
                driver.run(program.send(session, ops.Request(rid=str(number), body=b"")))
            self.process(driver, session)

    def begin(self, driver: MemoryDriver, session: Session[Any, Any]) -> None:
        """Settles what the former life has left."""
        self.process(driver, session)

    def process(self, driver: MemoryDriver, session: Session[Any, Any]) -> None:
        self.serve()
        run = process(session, self.printer.output, self.policy, 0.5)
        self.settled += driver.run(run)


POLICIES: dict[str, Callable[[FakePrinter], onceq.ReplyPolicy]] = {
    "repeat": lambda _: onceq.ReplyPolicy.repeat(),
    "undo": lambda printer: onceq.ReplyPolicy.undo(printer.take_back),
    "test": onceq.ReplyPolicy.test,
    "test late": lambda printer: onceq.ReplyPolicy.test(printer, late=True),
    "ask": lambda printer: onceq.ReplyPolicy.ask(printer.has_printed),
    "skip": lambda _: onceq.ReplyPolicy.skip(),
}
EXACT = frozenset({"undo", "test", "test late", "ask"})


def judge(name: str, printed: list[str], deaths: int) -> None:
    """Each policy's promise: exactly once, at least once, at most once."""
    if name in EXACT:
        assert printed == WANTED
    elif name == "repeat":
        assert sorted(set(printed)) == WANTED
        assert printed == sorted(printed)
        assert len(printed) <= REQUESTS + deaths
    else:
        assert printed == sorted(set(printed))
        assert len(printed) >= REQUESTS - deaths


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("name", POLICIES)
def test_a_client_that_dies_before_any_step_keeps_its_promise(name: str, window: int) -> None:
    dies_before_each_step(Shop, name, window)


def dies_before_each_step(kind: type[Shop], name: str, window: int) -> None:
    """Until a life no longer reaches the step."""
    doubled = missing = 0
    for steps in range(1, LIVES_MAX):
        shop = kind(POLICIES[name], window)
        died = not shop.live(steps)
        while not shop.live():
            pytest.fail("a life that nothing ends ended")
        judge(name, shop.printer.printed, int(died))
        doubled += len(shop.printer.printed) > REQUESTS
        missing += len(shop.printer.printed) < REQUESTS
        if not died:
            break
    else:
        pytest.fail(f"there are more than {LIVES_MAX} steps")
    assert (doubled > 0) is (name == "repeat"), "the worst moment was met, and only there it shows"
    assert (missing > 0) is (name == "skip")


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    window=st.integers(1, 3),
    deaths=st.lists(st.integers(1, 14), max_size=8),
)
def test_a_client_that_dies_again_and_again_keeps_its_promise(
    name: str, window: int, deaths: list[int]
) -> None:
    shop = Shop(POLICIES[name], window)
    died = sum(not shop.live(steps) for steps in deaths)
    assert shop.live()
    judge(name, shop.printer.printed, died)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", POLICIES)
def test_an_exception_of_the_handler_is_settled_as_a_death_is(name: str, *, after: bool) -> None:
    """Also in the same life: `process` is called again, and nothing else."""
    shop = Shop(POLICIES[name])
    driver = MemoryDriver(shop.oracle, shop.clock)
    session = Session(name="till", thread="", queue=ORDERS, window=1)
    driver.run(program.connect(session))
    driver.run(program.send(session, ops.Request(rid="1", body=b"")))
    shop.printer.jams_after, shop.printer.jams_before = int(after), int(not after)
    with pytest.raises(Jam):
        shop.process(driver, session)
    shop.process(driver, session)
    exact = {(name, False): ["1"] for name in EXACT} | {(name, True): ["1"] for name in EXACT}
    others = {
        ("repeat", False): ["1"],
        ("repeat", True): ["1", "1"],
        ("skip", False): [],
        ("skip", True): ["1"],
    }
    assert shop.printer.printed == (exact | others)[name, after]
    (settled,) = shop.settled
    by_device = {"test": "processed before", "test late": "processed before"}
    told = {"ask": "processed before", **by_device} if after else {}
    assert settled.settled.value == ({"skip": "skipped"} | told).get(name, "processed")
    shop.process(driver, session)
    assert len(shop.settled) == 1, "what is settled stays so"


def test_a_device_that_is_used_meanwhile_is_read_late() -> None:
    """Read before the wait, its state would be another's; read late, the reply is printed."""
    shop = Shop(POLICIES["test late"])
    driver = MemoryDriver(shop.oracle, shop.clock)
    session = Session(name="till", thread="", queue=ORDERS, window=1)
    driver.run(program.connect(session))
    driver.run(program.send(session, ops.Request(rid="1", body=b"")))
    serve = shop.serve

    def others_print_meanwhile() -> None:
        shop.printer.number += 5
        serve()

    shop.serve = others_print_meanwhile  # type: ignore[method-assign] # this test's own
    shop.printer.jams_before = 1
    with pytest.raises(Jam):
        shop.process(driver, session)
    shop.serve = serve  # type: ignore[method-assign] # as it was
    shop.process(driver, session)
    assert shop.printer.printed == ["1"]


@pytest.mark.parametrize("window", [1, 2])
def test_a_device_that_cannot_be_read_late_leaves_the_reply_outstanding(window: int) -> None:
    """In the same life: it is the next to be processed, and no send frees it before."""
    shop = Shop(POLICIES["test late"], window)
    driver = MemoryDriver(shop.oracle, shop.clock)
    session = Session(name="till", thread="", queue=ORDERS, window=window)
    driver.run(program.connect(session))
    driver.run(program.send(session, ops.Request(rid="1", body=b"")))
    policy, shop.policy = shop.policy, onceq.ReplyPolicy.test(Offline(), late=True)
    with pytest.raises(Jam):
        shop.process(driver, session)
    shop.policy = policy
    shop.process(driver, session)
    assert shop.printer.printed == ["1"]


class Offline:
    """A device that cannot be asked."""

    def state(self) -> bytes:
        raise Jam("offline")


RAW = onceq.Queue("raw", bytes, bytes)


def test_a_clerk_processes_by_a_policy(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    printer = FakePrinter()
    policy = onceq.ReplyPolicy.test(printer)
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        assert clerk.process(printer.output, policy) == []
        clerk.send("1", b"x")
        life.run(life.claim_one("raw"), b"reply")
        (done,) = clerk.process(printer.output, policy, timeout_s=60)
        assert (done.reply.value, done.settled) == (b"reply", onceq.Settled.PROCESSED)
        assert clerk.checkpoint == b"1"
        clerk.connect()
        (again,) = clerk.process(printer.output, policy, timeout_s=60)
        assert again.settled is onceq.Settled.BEFORE
        assert printer.printed == ["1"]


def test_what_is_no_policy_is_refused(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    printer = FakePrinter()
    wrong: Any = "repeat"
    with qm.clerk("till", RAW) as clerk:
        for given_policy in (wrong, onceq.ReplyPolicy(name="perhaps")):
            with pytest.raises(InvalidValue):
                clerk.process(printer.output, given_policy)
    with pytest.raises(InvalidValue):
        onceq.ReplyPolicy.test(wrong)
    with pytest.raises(InvalidValue):
        onceq.ReplyPolicy.ask(wrong)
    assert set(RULES) == {"repeat", "undo", "test", "ask", "skip"}


async def _awaited(_: onceq.Reply[bytes]) -> None:
    pytest.fail("nobody awaits it")


def _returns_a_coroutine(reply: onceq.Reply[bytes]) -> object:
    return _awaited(reply)


def test_what_nobody_would_await_is_refused(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """A coroutine of a sync clerk's handler would never run, and its reply count as processed."""
    qm.declare(RAW)
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        life.run(life.claim_one("raw"), b"reply")
        with pytest.raises(InvalidValue, match="AsyncClerk"):
            clerk.process(_awaited, onceq.ReplyPolicy.repeat(), timeout_s=60)
        assert clerk.outstanding == ["1"]
        with pytest.raises(InvalidValue, match="AsyncClerk"):  # it is seen by what it returns only
            clerk.process(_returns_a_coroutine, onceq.ReplyPolicy.repeat(), timeout_s=60)
        assert clerk.unacknowledged == ["1"]


def test_an_async_clerk_awaits_handler_and_device(conninfo: str, repository: str) -> None:
    class Printer:
        printed: list[str]

        def __init__(self) -> None:
            self.printed = []

        async def state(self) -> bytes:
            await asyncio.sleep(0)
            return str(len(self.printed)).encode()

        async def output(self, reply: onceq.Reply[bytes]) -> None:
            await asyncio.sleep(0)
            self.printed.append(reply.rid)

    async def client() -> list[str]:
        printer = Printer()
        policy = onceq.ReplyPolicy.test(printer)
        async with onceq.open_async(conninfo, repository=repository) as qm:
            await qm.declare(RAW)
            async with qm.clerk("till", RAW) as clerk:
                await clerk.send("1", b"x")
                with living(conninfo, repository) as life:
                    life.run(life.claim_one("raw"), b"reply")
                await clerk.process(printer.output, policy, timeout_s=60)
                await clerk.connect()
                (found,) = await clerk.process(printer.output, policy, timeout_s=60)
                assert found.settled is onceq.Settled.BEFORE
                await clerk.send("2", b"x")
                with living(conninfo, repository) as life:
                    life.run(life.claim_one("raw"), b"reply")
                await clerk.connect()
                where = await clerk.recover(handler=printer.output, reply_policy=policy)
                assert isinstance(where, onceq.Done)
                assert [one.reply.rid for one in where.processed] == ["2"]
        return printer.printed

    assert asyncio.run(client()) == ["1", "2"]
