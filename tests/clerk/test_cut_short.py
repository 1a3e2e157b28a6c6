"""A client's transaction that is cut short, by Ctrl-C or a cancellation, is joined by nothing.

Each Op of the block is a place to be cut short at: before it is performed, or after it, when its
answer is lost. What would come next on what is still open is refused; after a connect the client's
own work is there if, and only if, its request is.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import ConnectionLost, IllegalState
from onceq.model.ledger_ops import RollbackLedger
from tests.clerk.ledgers import LEDGERS, Ground, ground, other_postgresql
from tests.clerk.links import async_struck, struck, struck_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import FrameType

    from onceq.clerk.ledger import Ledger
    from onceq.model.ops import Op

RAW = onceq.Queue("raw", bytes, bytes)
PLACES_MAX = 40
INTERRUPTS = 25

__all__ = ["ground", "other_postgresql"]


class _CutShort(BaseException):
    """Ctrl-C, or a cancellation."""


@dataclass
class _Cut:
    """Cuts short at an Op, counted from 1: before it, or after it."""

    at: int
    after: bool
    seen: int = 0

    @contextlib.contextmanager
    def strike(self) -> Generator[None]:
        self.seen += 1
        is_here = self.seen == self.at
        if is_here and not self.after:
            raise _CutShort
        yield
        if is_here:
            raise _CutShort

    def around(self, perform: Callable[[Op[Any]], Any], op: Op[Any]) -> Any:
        with self.strike():
            return perform(op)

    async def around_async(self, perform: Callable[[Op[Any]], Awaitable[Any]], op: Op[Any]) -> Any:
        with self.strike():
            return await perform(op)


@dataclass(frozen=True)
class _Client:
    """A client of its own for each place, with a ledger of that kind."""

    ground: Ground
    kind: str
    name: str

    @property
    def ledger(self) -> Ledger[Any, Any]:
        if self.kind == "sqlite":
            return onceq.SqliteLedger(self.ground.place / f"{self.name}.ledger")
        return self.ground.ledger(self.kind)

    def has_noted(self) -> bool:
        """Returns whether the client's own work is there, as a next life finds it."""
        with self.ground.qm.clerk(self.name, RAW, ledger=self.ledger) as clerk:
            clerk.recover(policy="discard")
            with clerk.transaction() as work:
                rows = work.connection.execute(
                    f"select 1 from notes where text = '{self.name}'"
                ).fetchall()
        return bool(rows)

    def check(self) -> None:
        """Its work and its request are there both, or neither; a file may be ahead of it."""
        sent = bool(self.ground.qm.lookup(registrant=self.name))
        noted = self.has_noted()
        assert noted if sent else (self.kind == "sqlite" or not noted)


def _after_the_cut(clerk: Any) -> list[Callable[[], Any]]:
    """What a program may try next: each would join what is open."""
    return [
        lambda: clerk.send("next", b"y"),
        clerk.discard,
        clerk.resubmit,
        clerk.recover,
        clerk.cancel_last_request,
        clerk.disconnect,
    ]


def _cut_block(client: _Client, cut: _Cut) -> None:
    clerk, link = struck(client.ground.qm, client.ledger, client.name)
    with clerk:
        clerk.recover()
        with clerk.transaction() as work:
            work.connection.execute("create table if not exists notes (text text)")
        with (
            struck_by(link, cut.around),
            contextlib.suppress(_CutShort),
            clerk.transaction() as work,
        ):
            work.connection.execute(f"insert into notes values ('{client.name}')")
            work.send("1", b"x")
        if cut.seen >= cut.at:
            for call in _after_the_cut(clerk):
                with pytest.raises(IllegalState, match="connect"):
                    call()
        clerk.connect()
        clerk.recover(policy="discard")


async def _cut_block_async(client: _Client, cut: _Cut) -> None:
    url, repository = client.ground.url, client.ground.qm.repository
    async with (
        onceq.open_async(url, repository=repository) as qm,
        contextlib.AsyncExitStack() as until,
    ):
        clerk, link = async_struck(qm, client.ledger, client.name)
        await until.enter_async_context(clerk)
        await clerk.recover()
        async with clerk.transaction() as work:
            created = work.connection.execute("create table if not exists notes (text text)")
            await created if asyncio.iscoroutine(created) else None
        with struck_by(link, cut.around_async), contextlib.suppress(_CutShort):
            async with clerk.transaction() as work:
                noted = work.connection.execute(f"insert into notes values ('{client.name}')")
                await noted if asyncio.iscoroutine(noted) else None
                work.send("1", b"x")
        if cut.seen >= cut.at:
            for call in _after_the_cut(clerk):
                with pytest.raises(IllegalState, match="connect"):
                    await call()
        await clerk.connect()
        await clerk.recover(policy="discard")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", LEDGERS)
def test_a_transaction_cut_short_is_committed_by_no_later_one(
    ground: Ground, kind: str, *, after: bool
) -> None:
    for place in range(1, PLACES_MAX):
        client, cut = _Client(ground, kind, f"c{place}"), _Cut(place, after=after)
        _cut_block(client, cut)
        client.check()
        if cut.seen < place:
            return
    pytest.fail("the block has no end")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", LEDGERS)
def test_an_async_transaction_cut_short_is_committed_by_no_later_one(
    ground: Ground, kind: str, *, after: bool
) -> None:
    for place in range(1, PLACES_MAX):
        client, cut = _Client(ground, kind, f"a{place}"), _Cut(place, after=after)
        asyncio.run(_cut_block_async(client, cut))
        client.check()
        if cut.seen < place:
            return
    pytest.fail("the block has no end")


@pytest.mark.parametrize("kind", ["sqlite", "queue"])
def test_an_interrupt_at_any_moment_is_like_one_at_an_op(ground: Ground, kind: str) -> None:
    """The same by a real signal, between any two instructions of ours."""
    chosen = random.Random(1990)
    former = signal.signal(signal.SIGALRM, _interrupt)
    try:
        for place in range(INTERRUPTS):
            client = _Client(ground, kind, f"i{place}")
            with ground.qm.clerk(client.name, RAW, ledger=client.ledger) as clerk:
                _interrupted_block(client, clerk, chosen.uniform(0.0001, 0.006))
                clerk.connect()
                clerk.recover(policy="discard")
            client.check()
    finally:
        signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize("kind", ["sqlite", "queue"])
def test_a_cancellation_at_any_moment_is_like_one_at_an_op(ground: Ground, kind: str) -> None:
    """A write of SQLite goes on in its thread: what comes next waits for it, and sees it."""
    chosen = random.Random(1992)
    for place in range(INTERRUPTS):
        client = _Client(ground, kind, f"t{place}")
        asyncio.run(_cancelled_block(client, chosen.uniform(0.0001, 0.02)))
        client.check()


async def _cancelled_block(client: _Client, after_s: float) -> None:
    async with (
        onceq.open_async(client.ground.url, repository=client.ground.qm.repository) as qm,
        qm.clerk(client.name, RAW, ledger=client.ledger) as clerk,
    ):
        await clerk.recover()
        async with clerk.transaction() as work:
            created = work.connection.execute("create table if not exists notes (text text)")
            await created if asyncio.iscoroutine(created) else None

        async def block() -> None:
            async with clerk.transaction() as work:
                noted = work.connection.execute(f"insert into notes values ('{client.name}')")
                await noted if asyncio.iscoroutine(noted) else None
                work.send("1", b"x")

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(block(), after_s)
        await clerk.connect()
        await clerk.recover(policy="discard")


@pytest.mark.parametrize("send", ["send", "send_one_way"])
def test_after_an_interrupted_send_connect_tells_what_became_of_it(
    ground: Ground, send: str
) -> None:
    chosen = random.Random(1991)
    former = signal.signal(signal.SIGALRM, _interrupt)
    try:
        with ground.qm.clerk("ann", RAW, window=1000) as clerk:
            for number in range(INTERRUPTS):
                rid = f"{send}{number}"
                with contextlib.suppress(_CutShort):
                    signal.setitimer(signal.ITIMER_REAL, chosen.uniform(0.0001, 0.003))
                    try:
                        getattr(clerk, send)(rid, b"x")
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                clerk.connect()
                assert (rid in clerk.outstanding) == bool(ground.qm.lookup(rid))
    finally:
        signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize("kind", LEDGERS)
def test_an_interrupt_whose_rollback_fails_is_still_one_and_its_block_is_joined_by_nothing(
    ground: Ground, kind: str
) -> None:
    client = _Client(ground, kind, f"r{kind.partition(' ')[0]}")
    clerk, link = struck(ground.qm, client.ledger, client.name)
    with clerk:
        clerk.recover()
        with clerk.transaction() as work:
            work.connection.execute("create table if not exists notes (text text)")
        with struck_by(link, _no_rollback), pytest.raises(_CutShort) as caught:
            _cut_in_block(clerk, client.name)
        assert "could not be rolled back" in caught.value.__notes__[0]
        for call in _after_the_cut(clerk):
            with pytest.raises(IllegalState, match="connect"):
                call()
        clerk.connect()
        clerk.recover(policy="discard")
    assert not client.has_noted()


def _no_rollback(perform: Callable[[Op[Any]], Any], op: Op[Any]) -> Any:
    if isinstance(op, RollbackLedger):
        raise ConnectionLost("another command is already in progress")
    return perform(op)


def _cut_in_block(clerk: Any, name: str) -> None:
    with clerk.transaction() as work:
        work.connection.execute(f"insert into notes values ('{name}')")
        raise _CutShort


SWALLOWS = ("_weakrefset.py", "weakref.py", "hypothesis/internal/conjecture/junkdrawer.py")
"""Where the interpreter itself drops what is raised: in the callbacks of weak references, and in
hypothesis's one for the garbage collector."""


def _interrupt(_number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code.co_filename.endswith(SWALLOWS):
        signal.setitimer(signal.ITIMER_REAL, 0.0001)  # an instant later, where it is raised
    else:
        raise _CutShort


def _interrupted_block(client: _Client, clerk: Any, after_s: float) -> None:
    clerk.recover()
    with clerk.transaction() as work:
        work.connection.execute("create table if not exists notes (text text)")
    with contextlib.suppress(_CutShort):
        signal.setitimer(signal.ITIMER_REAL, after_s)
        try:
            with clerk.transaction() as work:
                work.connection.execute(f"insert into notes values ('{client.name}')")
                work.send("1", b"x")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    with contextlib.suppress(IllegalState), clerk.transaction() as work:
        pass  # what commits here must not be what was cut short
