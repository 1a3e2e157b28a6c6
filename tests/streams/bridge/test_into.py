"""Messages of a stream take effect in a database, each exactly once, whatever comes between."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from onceq.errors import Fenced, HandlerMisuse, InvalidValue, Reject, Retry
from onceq.model.stream_ops import StreamPosition
from onceq.streams import logged
from onceq.streams.bridge.moving import hexed
from onceq.streams.bridge.target import Target
from onceq.streams.errors import DataLost, StreamReplaced
from onceq.streams.model.events import Event, Loss, RolledBack, WhyLost
from onceq.streams.model.low import info
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.receiver.ops import Message
from onceq.streams.receiver.placing import Position
from proof.harness.proxy import Cut, Proxy, Side
from tests.events import emits
from tests.parts import install_variant
from tests.streams.bridge.ledgers import Ledger, Mine, living, run
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.source.running import SESSION, TOPIC, WITHIN_S, S, send_all, source, texts

if TYPE_CHECKING:
    from onceq.streams.bridge.hands import IntoContext
    from onceq.streams.source.async_source import AsyncSource
    from tests.streams.net.clusters import Cluster


@pytest.fixture
def ledger(conninfo: str, repository: str) -> Ledger:
    return Ledger(conninfo, repository)


async def sent(one: AsyncSource, count: int, begin: int = 0) -> None:
    await one.wait_registered(WITHIN_S)
    await send_all(one, texts(count, begin))
    await one.wait_stable(WITHIN_S)


def acknowledged(stores: Cluster) -> list[int]:
    """What stores have noted of the one receiver."""
    held = [store.catalogue.of(S) for store in stores.stores.values()]
    return [max(one.positions.values(), default=0) for one in held]


@pytest.mark.parametrize("is_async", [False, True])
def test_all_take_effect_once_in_order_and_the_next_life_goes_on(
    ledger: Ledger, *, is_async: bool
) -> None:
    async def live() -> None:
        handler = ledger.book_async if is_async else ledger.book
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 300)
            async with living(ledger.into(stores.listed(), handler, batch=50)):
                await soon(lambda: acknowledged(stores) == [300] * 3)
            assert ledger.effects() == texts(300)
            await sent(one, 100, 300)
            later = ledger.into(stores.listed(), handler)
            async with living(later):  # it is in this loop, which a look at the database holds up
                await soon(lambda: later.position.number == 400)
            assert ledger.effects() == texts(400)
            assert acknowledged(stores) == [400] * 3

    asyncio.run(live())


def test_stores_are_told_of_what_has_taken_effect_only(ledger: Ledger) -> None:
    """Else they would give up what a later life is yet to have."""
    go, begun = threading.Event(), threading.Event()

    def slow(messages: list[Message], context: IntoContext[Any]) -> None:
        ledger.book(messages, context)
        if messages[-1].number >= 10:
            begun.set()
            assert go.wait(WITHIN_S)

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 30)
            async with living(ledger.into(stores.listed(), slow, batch=10)):
                await soon(begun.is_set)
                await soon(lambda: acknowledged(stores) == [10] * 3)
                await asyncio.sleep(0.1)  # five times as long as it takes to tell stores
                assert acknowledged(stores) == [10] * 3
                go.set()
                await soon(lambda: acknowledged(stores) == [30] * 3)

    asyncio.run(live())


@emits(logged.EffectsGivenUp, logged.EffectsUndone)
def test_a_message_that_raises_goes_to_the_error_queue_and_its_neighbours_take_effect(
    ledger: Ledger,
) -> None:
    tries: list[tuple[int, int]] = []

    def picky(messages: list[Message], context: IntoContext[Any]) -> None:
        tries.append((len(messages), context.attempt))
        ledger.book(messages, context)
        if any(one.number == 13 for one in messages):
            raise Mine("13 is refused")
        if any(one.number == 5 for one in messages):
            raise Reject("5 is given up")

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 20)
            async with living(ledger.into(stores.listed(), picky, batch=20)):
                await soon(lambda: ledger.position() == 20)

    asyncio.run(live())
    assert ledger.numbers() == [one for one in range(20) if one not in {5, 13}]
    assert [attempt for size, attempt in tries if size == 1 and attempt > 1] == [2, 3, 4, 5]
    query = (
        "select body, properties -> 'onceq_stream' from {r}.element e join {r}.queue q"
        " using (queue_id) where q.name = 'ledger.error' order by seq"
    )
    held = ledger.ask(query)
    assert [(body, of["number"]) for body, of in held] == [(b"000005", 5), (b"000013", 13)]
    assert "13 is refused" in held[1][1]["error"]
    assert held[1][1]["topic"] == TOPIC


def test_an_environment_that_fails_for_a_while_costs_nothing(ledger: Ledger) -> None:
    left = [3]

    def flaky(messages: list[Message], context: IntoContext[Any]) -> None:
        ledger.book(messages, context)
        if left[0]:
            left[0] -= 1
            raise Retry("later")

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 5)
            async with living(ledger.into(stores.listed(), flaky)):
                await soon(lambda: ledger.position() == 5)

    asyncio.run(live())
    assert ledger.effects() == texts(5)


def test_a_handler_that_ends_its_transaction_is_told(ledger: Ledger) -> None:
    def ends(messages: list[Message], context: IntoContext[Any]) -> None:
        ledger.book(messages, context)
        context.connection.execute("commit; begin")

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 5)
            with pytest.raises(HandlerMisuse, match="ended"):
                await run(ledger.into(stores.listed(), ends))

    asyncio.run(live())
    assert ledger.position() == 0


WITHOUT_FENCE = (
    ("(name, topic, session, life) = (p_name, p_topic, p_session, p_life)", "name = p_name"),
    ("and (epoch, number) = (p_epoch, p_number)", ""),
    ("and p_to_number > number and p_to_epoch >= epoch", ""),
)


@pytest.mark.parametrize("is_broken", [False, True], ids=["as it is", "without compare-and-set"])
def test_a_zombie_beside_its_successor_has_no_effects(ledger: Ledger, *, is_broken: bool) -> None:
    """The control: a position that moves wherever it is lets both have effects."""
    if is_broken:
        install_variant(ledger.conninfo, ledger.repository, "stream_move", *WITHOUT_FENCE)
    go, begun = threading.Event(), threading.Event()

    def slow(messages: list[Message], context: IntoContext[Any]) -> None:
        ledger.book(messages, context)
        begun.set()
        assert go.wait(WITHIN_S)

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 10)
            former = ledger.into(stores.listed(), slow)
            zombie = asyncio.ensure_future(run(former))
            await soon(begun.is_set)
            async with living(ledger.into(stores.listed())):
                await soon(lambda: ledger.position() == 10)
                go.set()
                if is_broken:
                    await soon(lambda: len(ledger.numbers()) > 10)
                    former.stop()
                    await zombie
                else:
                    with pytest.raises(Fenced, match="later life"):
                        await zombie

    asyncio.run(live())
    assert (ledger.numbers() == [*range(10)]) is not is_broken


@pytest.mark.parametrize("side", list(Side))
def test_a_lost_connection_at_a_commit_is_settled_by_the_position(
    ledger: Ledger, side: Side
) -> None:
    """Before it, nothing happened; after it, everything: the bridge cannot tell, and asks."""

    async def live(proxy: Proxy) -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 10)
            proxy.plan(Cut(side=side))
            async with living(ledger.into(stores.listed(), conninfo=proxy.conninfo)):
                await soon(lambda: ledger.position() == 10)
                assert len(proxy.made) == 1
                await sent(one, 10, 10)
                await soon(lambda: ledger.position() == 20)

    with (
        tempfile.TemporaryDirectory(prefix="oqp-", dir="/tmp") as directory,  # short
        Proxy(ledger.conninfo, Path(directory)) as proxy,
    ):
        asyncio.run(live(proxy))
    assert ledger.effects() == texts(20)


async def begun_anew(stores: Cluster) -> StoreList:
    """Have all stores forget everything; they keep their addresses."""
    known = stores.listed()
    await stores.end("abc")
    stores.stores.clear()
    await stores.start("abc")
    return known


@pytest.mark.parametrize("count", [5, 30], ids=["it ends below", "other messages"])
def test_a_stream_that_was_replaced_is_never_taken(ledger: Ledger, count: int) -> None:
    async def live() -> None:
        async with running(None) as stores:
            async with source(stores.listed()) as one:
                await sent(one, 10)
                async with living(ledger.into(stores.listed())):
                    await soon(lambda: ledger.position() == 10)
            known = await begun_anew(stores)
            async with source(known, born_s=10**6) as one:
                await sent(one, count)
                with pytest.raises(StreamReplaced, match="another name"):
                    await run(ledger.into(known))
                assert acknowledged(stores) == [0] * 3, "no store has noted it"

    asyncio.run(live())
    assert ledger.numbers() == [*range(10)]


def test_a_stream_that_is_replaced_while_it_is_received_is_not_taken(ledger: Ledger) -> None:
    """Also when this life was shown nothing of the former one."""

    async def live() -> None:
        async with running(None) as stores:
            async with source(stores.listed()) as one:
                await sent(one, 10)
                async with living(ledger.into(stores.listed())):
                    await soon(lambda: ledger.position() == 10)
                after = ledger.into(stores.listed())
                task = asyncio.ensure_future(run(after))
                await soon(lambda: after._receiver.driver is not None)
            known = await begun_anew(stores)
            async with source(known, born_s=10**6) as one:
                await sent(one, 30)
                with pytest.raises(StreamReplaced):
                    await task

    asyncio.run(live())
    assert ledger.numbers() == [*range(10)]


class Told:
    """A receiver's driver that was told of epoch 7, of which stores have other messages."""

    def __init__(self) -> None:
        self.core = SimpleNamespace(last_epoch=7)
        self.who = self.wishes = SimpleNamespace(patience=SimpleNamespace(ask_s=1.0))
        self.outstanding = ["what is being shown"]

    def stop(self) -> None:
        """It ends."""

    async def run(self, program: Any) -> Position:
        program.close()
        shown = info(acknowledged_below=0, end=20, maximum=None)
        firsts = ((5, 0), (7, 2))
        return Position(
            stream=S, epoch=7, lists=(), shown=shown, is_known=False, below=0, firsts=firsts
        )


@pytest.mark.parametrize("is_void", [False, True])
def test_the_first_of_a_later_epoch_is_taken_only_behind_the_same_messages(
    ledger: Ledger, *, is_void: bool
) -> None:
    """Also when it is void; and nothing is taken while it is being stopped."""
    void = Loss(stream=S, first=10, last=10, why=WhyLost.RECLAIMED)
    message = Message(stream=S, epoch=7, number=10, body=b"other")

    async def live() -> None:
        one = ledger.into(listed("127.0.0.1:1"))
        one._receiver.driver = cast("Any", Told())
        one._effects.at = StreamPosition(life=1, stream=hexed(S), epoch=5, number=10)
        with pytest.raises(StreamReplaced):
            await one._show(void if is_void else message)
        one.stop()
        await one._show(void if is_void else message)
        assert one.position.number == 10

    asyncio.run(live())


@emits(logged.EffectsMissed)
def test_a_void_number_is_passed_and_told(ledger: Ledger) -> None:
    async def live() -> None:
        told: list[Event] = []
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 3)
            one.send(b"lost")
            one.send(b"kept")
            one.give_up(3)  # before it has left
            await one.wait_stable(WITHIN_S)
            async with living(ledger.into(stores.listed(), on_event=told.append)):
                await soon(lambda: ledger.position() == 5)
            assert told == [Loss(stream=S, first=3, last=3, why=WhyLost.RECLAIMED)]

    asyncio.run(live())
    assert ledger.effects() == [*texts(3), b"kept"]


@pytest.mark.parametrize("why", [WhyLost.TRIMMED, WhyLost.LOST, WhyLost.ACKNOWLEDGED])
def test_a_loss_ends_it_unless_it_is_to_go_on(ledger: Ledger, why: WhyLost) -> None:
    async def live() -> None:
        nowhere = listed("127.0.0.1:1")
        loss = Loss(stream=S, first=0, last=6, why=why)
        later = Loss(stream=S, first=7, last=9, why=why)
        one = ledger.into(nowhere)
        assert await one._begin()
        if why is WhyLost.TRIMMED:  # what was trimmed before it began was never to take effect
            await one._show(loss)
            loss = later
        with pytest.raises(DataLost, match="fail_on_data_loss") as raised:
            await one._show(loss)
        assert (raised.value.first, raised.value.last) == (loss.first, loss.last)
        await one._effects.close()
        told: list[Event] = []
        other = ledger.into(nowhere, on_event=told.append, fail_on_data_loss=False)
        assert await other._begin()
        await other._show(loss)
        assert told == [loss]
        assert ledger.position() == loss.last + 1
        with pytest.raises(StreamReplaced):
            await other._show(RolledBack(stream=S, first=3, last=4))
        await other._effects.close()

    asyncio.run(live())


def test_what_is_lost_before_it_took_effect_is_a_loss_as_others(ledger: Ledger) -> None:
    """It was shown, and waits for more: only what has taken effect cannot be taken back."""

    class Waits(Told):
        def __init__(self) -> None:
            super().__init__()
            self.core.last_epoch = 5
            self.outstanding = ["this", "and more"]

    async def live() -> None:
        one = ledger.into(listed("127.0.0.1:1"), fail_on_data_loss=False)
        assert await one._begin()
        one._receiver.driver = cast("Any", Waits())
        for number in range(4):
            await one._show(Message(stream=S, epoch=5, number=number, body=b"%06d" % number))
        await one._show(RolledBack(stream=S, first=2, last=3))
        await one._show(Loss(stream=S, first=2, last=6, why=WhyLost.LOST))
        with pytest.raises(StreamReplaced, match="accepted a loss"):
            await one._show(RolledBack(stream=S, first=1, last=6))
        await one._effects.close()

    asyncio.run(live())
    assert ledger.effects() == texts(2)
    assert ledger.position() == 7


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"abort_limit": 0}], ids=str)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Target(name="l", topic=TOPIC, source=SESSION, at=listed("127.0.0.1:1"), **wrong)
