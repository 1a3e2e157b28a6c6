"""Datagrams of a queue become messages of a stream, each once, whatever comes between."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceq.engine.embedded.locate import Located
from onceq.errors import Fenced, InvalidValue
from onceq.model.element import KillAnswer
from onceq.model.queue import Queue
from onceq.streams import logged
from onceq.streams.bridge.relay import AsyncRelay, From
from onceq.streams.errors import SourceSucceeded, StreamReplaced
from proof.harness.proxy import Cut, Proxy, Side
from tests.events import emits
from tests.parts import install_variant, plain, scalar
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.source.running import WITHIN_S, S, core, texts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from uuid import UUID

    import onceq
    from onceq.model.stream_ops import Planned
    from tests.events import Events
    from tests.streams.net.clusters import Cluster

RAW = Queue("outbox", bytes, bytes)


class Outbox:
    """A queue that is relayed."""

    def __init__(self, qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
        self.qm = qm
        self.conninfo = conninfo
        self.repository = repository
        qm.declare(RAW)

    def put(self, bodies: list[bytes]) -> list[UUID]:
        return [self.qm.enqueue(RAW, body) for body in bodies]

    def depth(self) -> int:
        info = self.qm.show("outbox")
        return info.depth

    def relay(
        self, stores: Cluster, *, conninfo: str = "", born_s: int = 1, **given: Any
    ) -> AsyncRelay:
        """A relay that is not yet run. conninfo: instead of the queue's."""
        database = (Located(conninfo or self.conninfo, None), self.repository)
        of = From(name="out", queue="outbox", idle_s=0.02, **given)
        return AsyncRelay(of, core(stores.listed(), born_s=born_s), database)


@pytest.fixture
def outbox(qm: onceq.QueueManager, conninfo: str, repository: str) -> Outbox:
    return Outbox(qm, conninfo, repository)


async def run(one: AsyncRelay) -> None:
    async with asyncio.timeout(3 * WITHIN_S):
        await one.run()


@contextlib.asynccontextmanager
async def living(one: AsyncRelay) -> AsyncGenerator[asyncio.Task[None]]:
    """A relay that runs while the block does, and ends well."""
    task = asyncio.ensure_future(run(one))
    try:
        yield task
    finally:
        one.stop()
        await task


def test_all_are_sent_once_in_order_and_the_next_life_goes_on(outbox: Outbox) -> None:
    async def live() -> None:
        eids = outbox.put(texts(50))
        async with running(None) as stores:
            async with living(outbox.relay(stores, batch=20, ahead=20)):
                await soon(lambda: outbox.depth() == 0)
                outbox.put(texts(10, 50))
                await soon(lambda: outbox.depth() == 0)
            outbox.put(texts(10, 60))
            async with living(outbox.relay(stores)):
                await soon(lambda: outbox.depth() == 0)
            assert stores.having(S, texts(70)) == {"a", "b", "c"}
        assert [one.outcome for one in outbox.qm.lookup(eid=eids[0])] == ["done"]

    asyncio.run(live())


class Held(AsyncRelay):
    """A relay that stops when it has planned, and before it sends, until it is let go."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.has_planned = asyncio.Event()
        self.go = asyncio.Event()

    async def _send(self, one: Planned) -> None:
        self.has_planned.set()
        await self.go.wait()
        await super()._send(one)


class Gated(AsyncRelay):
    """A relay that plans only while it may."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.may_plan, self.is_shut = asyncio.Event(), asyncio.Event()
        self.may_plan.set()

    async def _plan(self, n: int) -> list[Planned]:
        if not self.may_plan.is_set():
            self.is_shut.set()
            await self.may_plan.wait()
        return await super()._plan(n)


def held(outbox: Outbox, stores: Cluster, **given: Any) -> Held:
    database = (Located(outbox.conninfo, None), outbox.repository)
    return Held(From(name="out", queue="outbox", **given), core(stores.listed()), database)


def test_what_is_planned_is_not_killable_and_nobody_else_gives_it_back(outbox: Outbox) -> None:
    async def live() -> None:
        (eid,) = outbox.put([b"a"])
        async with running(None) as stores:
            one = held(outbox, stores)
            async with living(one):
                await one.has_planned.wait()
                assert outbox.qm.kill(eid) is KillAnswer.TOO_LATE
                assert scalar(outbox.conninfo, f"select {outbox.repository}.adopt()") == 0
                one.go.set()
                await soon(lambda: outbox.depth() == 0)
            assert outbox.qm.kill(eid) is KillAnswer.TOO_LATE
            assert stores.log("a", S) == [b"a"]

    asyncio.run(live())


@pytest.mark.parametrize("is_broken", [False, True], ids=["as it is", "without compare-and-set"])
def test_a_zombie_plans_nothing_beside_its_successor(outbox: Outbox, *, is_broken: bool) -> None:
    """The control: one that may plan takes what its successor then never sends."""
    if is_broken:
        change = ("r.epoch is distinct from p_epoch", "false")
        install_variant(outbox.conninfo, outbox.repository, "relay_lock", change)
        change = ("(r.stream, r.next) is distinct from (p_stream, p_next)", "false")
        install_variant(outbox.conninfo, outbox.repository, "relay_plan", change)

    async def live() -> None:
        outbox.put([b"a", b"b"])
        async with running(None) as stores:
            zombie = held(outbox, stores)
            task = asyncio.ensure_future(run(zombie))
            await zombie.has_planned.wait()
            database = (Located(outbox.conninfo, None), outbox.repository)
            successor = Gated(From(name="out", queue="outbox"), core(stores.listed()), database)
            async with living(successor):
                await soon(lambda: outbox.depth() == 0)
                successor.may_plan.clear()
                await successor.is_shut.wait()
                outbox.put([b"c"])
                if is_broken:
                    assert [one.body for one in await zombie._plan(5)] == [b"c"]
                else:
                    with pytest.raises(Fenced):
                        await zombie._plan(5)
                successor.may_plan.set()
                if not is_broken:
                    await soon(lambda: outbox.depth() == 0)
                zombie.go.set()
                with pytest.raises(SourceSucceeded):
                    await task
            sent = [b"a", b"b"] if is_broken else [b"a", b"b", b"c"]
            assert stores.having(S, sent) == {"a", "b", "c"}
            assert outbox.depth() == is_broken

    asyncio.run(live())


@emits(logged.RelayedAgain)
def test_a_number_that_is_void_is_planned_again(outbox: Outbox) -> None:
    class GivesUp(AsyncRelay):
        """A relay whose source gives up the second number, before it has left."""

        async def _send(self, one: Planned) -> None:
            await super()._send(one)
            if one.number == 1:
                self._source.give_up(1)

    async def live() -> None:
        outbox.put([b"a", b"b", b"c"])
        async with running(None) as stores:
            database = (Located(outbox.conninfo, None), outbox.repository)
            one = GivesUp(From(name="out", queue="outbox"), core(stores.listed()), database)
            async with living(one):
                await soon(lambda: outbox.depth() == 0)
            await soon(lambda: stores.having(S, stores.log("a", S)) == {"a", "b", "c"})
            assert sorted(one for one in stores.log("a", S) if one) == [b"a", b"b", b"c"]

    asyncio.run(live())


class Died(Exception):
    """Instead of a death."""


@pytest.mark.parametrize("step", ["_send", "_finish", "sent one"])
def test_a_later_life_sends_what_the_stream_has_not_and_nothing_else(
    outbox: Outbox, step: str
) -> None:
    """At each step between the plan and the end."""

    class Dies(AsyncRelay):
        async def _send(self, one: Planned) -> None:
            if step == "_send":
                raise Died
            await super()._send(one)
            if step == "sent one" and one.number == 1:
                raise Died

        async def _finish(self, *, waits: bool) -> None:
            assert waits
            await self._source.wait_stable(WITHIN_S)
            raise Died

    async def live() -> None:
        outbox.put(texts(4))
        async with running(None) as stores:
            database = (Located(outbox.conninfo, None), outbox.repository)
            dies = Dies(From(name="out", queue="outbox"), core(stores.listed()), database)
            with pytest.raises(Died):
                await run(dies)
            assert outbox.depth() == 4
            async with living(outbox.relay(stores)):
                await soon(lambda: outbox.depth() == 0)
            assert stores.having(S, texts(4)) == {"a", "b", "c"}

    asyncio.run(live())


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("function", ["relay_begin", "relay_plan", "relay_finish"])
def test_a_lost_answer_is_settled(outbox: Outbox, function: str, side: Side) -> None:
    """The database says what was planned, and what has ended."""

    async def live(proxy: Proxy) -> None:
        outbox.put(texts(5))
        async with running(None) as stores:
            proxy.plan(Cut(side=side, pattern=re.compile(function)))
            async with living(outbox.relay(stores, conninfo=proxy.conninfo)):
                await soon(lambda: outbox.depth() == 0)
                assert len(proxy.made) == 1
                outbox.put(texts(5, 5))
                await soon(lambda: outbox.depth() == 0)
            assert stores.having(S, texts(10)) == {"a", "b", "c"}

    with (
        tempfile.TemporaryDirectory(prefix="oqp-", dir="/tmp") as directory,  # short
        Proxy(outbox.conninfo, Path(directory)) as proxy,
    ):
        asyncio.run(live(proxy))


@emits(logged.BridgeWaits, logged.BridgeGoesOn)
@pytest.mark.parametrize("state", ["40P01", "53100", "55P03"])
@pytest.mark.parametrize(
    ("function", "begins"),
    [
        ("relay_open", "perform onceq.be_durable();"),
        ("relay_planned", "perform from onceq.stream_relay"),
        ("relay_begin", "perform onceq.be_durable();"),
        ("relay_plan", "perform onceq.be_durable();"),
        ("relay_finish", "perform onceq.be_durable();"),
    ],
)
def test_an_environment_that_fails_for_a_while_ends_no_relay(
    outbox: Outbox, events: Events, function: str, begins: str, state: str
) -> None:
    """A deadlock, a full disk, a lock that is not to be had."""
    with plain(outbox.conninfo) as connection:
        connection.execute(f"create sequence {outbox.repository}.failing_seq".encode())
    fails = f"raise exception 'it fails' using errcode = '{state}';"
    fails = f"if nextval('onceq.failing_seq') <= 3 then {fails} end if;"
    change = (begins, f"{fails} {begins}")
    install_variant(outbox.conninfo, outbox.repository, function, change)

    async def live() -> None:
        outbox.put(texts(5))
        async with running(None) as stores:
            async with living(outbox.relay(stores)):
                await soon(lambda: outbox.depth() == 0)
            assert stores.having(S, texts(5)) == {"a", "b", "c"}

    asyncio.run(live())
    waits = events.of(logged.BridgeWaits)
    code = "DeadlineExceeded" if state == "55P03" else "EnvironmentFault"
    assert [one["code"] for one in waits] == [code] * 3
    assert [one["delay_s"] for one in waits] == [0.05, 0.1, 0.2]
    assert [one["tries"] for one in events.of(logged.BridgeGoesOn)] == [3]


@emits(logged.RelayBegan, logged.RelayStopped, logged.BridgeLacksStore)
def test_a_relay_that_is_stopped_while_its_stores_are_away_ends(
    outbox: Outbox, events: Events
) -> None:
    """The next life settles what was planned."""

    async def live() -> None:
        outbox.put(texts(5))
        async with running(None) as stores:
            one = held(outbox, stores, stop_s=0.2)
            task = asyncio.ensure_future(run(one))
            await one.has_planned.wait()
            await stores.end("abc")
            one.go.set()
            await soon(lambda: len(events.of(logged.BridgeLacksStore)) >= 3)
            one.stop()
            await task
            assert events.of(logged.RelayStopped) == [{"bridge": "out", "sent": 0, "left": 5}]
            assert outbox.depth() == 5
            await stores.start("abc")
            async with living(outbox.relay(stores)):
                await soon(lambda: outbox.depth() == 0)
            assert stores.having(S, texts(5)) == {"a", "b", "c"}
        began = events.of(logged.RelayBegan)
        assert [one["bridge"] for one in began] == ["out", "out"]
        assert began[1]["finished"] + began[1]["again"] == 5

    asyncio.run(live())


def test_a_relay_that_is_stopped_before_its_stores_know_it_ends(outbox: Outbox) -> None:
    async def live() -> None:
        async with running(None) as stores:
            await stores.end("abc")
            one = outbox.relay(stores, stop_s=0.1)
            async with living(one):
                await soon(lambda: one._source._living is not None)

    asyncio.run(live())


def test_a_stream_that_was_replaced_is_not_sent_to(outbox: Outbox) -> None:
    async def live() -> None:
        outbox.put(texts(5))
        async with running(None) as stores:
            async with living(outbox.relay(stores)):
                await soon(lambda: outbox.depth() == 0)
            await stores.end("abc")
            stores.stores.clear()
            await stores.start("abc")
            outbox.put([b"new"])
            with pytest.raises(StreamReplaced, match="forgotten"):
                await run(outbox.relay(stores, born_s=10**6))
            assert outbox.depth() == 1
            assert stores.log("a", S) == []

    asyncio.run(live())


@pytest.mark.parametrize(
    "wrong",
    [{"batch": 0}, {"batch": 10, "ahead": 5}, {"idle_s": 0.0}, {"stop_s": 0.0}],
    ids=str,
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        From(name="out", queue="outbox", **wrong)
