"""What a handler of `into` raises, returns or breaks: who is charged, who waits, what is kept."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from onceq.errors import (
    CannotConnect,
    Fenced,
    HandlerMisuse,
    QueueStopped,
    Reject,
    Retry,
    SchemaMissing,
)
from onceq.model.queue import Queue
from onceq.streams import logged
from onceq.streams.bridge import trying
from onceq.streams.bridge.moving import Blame, Pieces
from onceq.streams.receiver.ops import Message
from tests.events import emits
from tests.parts import install_variant, plain
from tests.streams.bridge.ledgers import Ledger, Mine, living, run
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.source.running import WITHIN_S, S, send_all, source, texts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import onceq
    from onceq.streams.bridge.effects import Handler
    from onceq.streams.bridge.hands import IntoContext
    from tests.events import Events


@pytest.fixture
def ledger(conninfo: str, repository: str) -> Ledger:
    return Ledger(conninfo, repository)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses do not grow."""
    monkeypatch.setattr(trying, "PAUSE_MAX_S", trying.PAUSE_S)


def taken(
    ledger: Ledger, handler: Handler, bodies: list[bytes], then: Callable[[], object] | None = None
) -> None:
    """Have messages taken, all of which are passed. then: called when it runs."""

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, bodies)
            await one.wait_stable(WITHIN_S)
            async with living(ledger.into(stores.listed(), handler)):
                if then is not None:
                    await asyncio.to_thread(then)
                await soon(lambda: ledger.position() == one.next_number, 3 * WITHIN_S)

    asyncio.run(live())


def refused(ledger: Ledger) -> list[tuple[bytes, dict[str, Any]]]:
    """What is in the error queue."""
    query = (
        "select body, properties -> 'onceq_stream' from {r}.element e join {r}.queue q"
        " using (queue_id) where q.name = 'ledger.error' order by seq"
    )
    return [(body, of) for body, of in ledger.ask(query)]


def poisoned(ledger: Ledger, poison: bytes, act: Callable[[IntoContext[Any]], object]) -> Handler:
    """A handler that does something beside, if one message is there."""

    def handler(messages: list[Message], context: IntoContext[Any]) -> object:
        ledger.book(messages, context)
        return act(context) if any(one.body == poison for one in messages) else None

    return handler


def raising(error: BaseException) -> Callable[[IntoContext[Any]], object]:
    def act(_: IntoContext[Any]) -> object:
        raise error

    return act


# what is awaited


class Awaited:
    """A handler that is an object."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def __call__(self, messages: list[Message], context: IntoContext[Any]) -> None:
        await self.ledger.book_async(messages, context)


def test_an_object_that_is_called_with_await_has_its_effects(ledger: Ledger) -> None:
    taken(ledger, Awaited(ledger), texts(5))
    assert ledger.effects() == texts(5)


def test_what_nobody_awaits_is_refused(ledger: Ledger) -> None:
    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(1))
            handler = Awaited(ledger)
            with pytest.raises(HandlerMisuse, match="async def"):
                await run(
                    ledger.into(
                        stores.listed(),
                        lambda some, context: handler(some, context),  # noqa: PLW0108 - no coroutine function
                    )
                )

    asyncio.run(live())
    assert ledger.position() == 0


def generator(*_: Any) -> Iterator[int]:
    yield 1


async def async_generator(*_: Any) -> AsyncIterator[int]:
    yield 1


async def returns_generator(*_: Any) -> Iterator[int]:
    return generator()


@pytest.mark.parametrize(
    "handler",
    [lambda *_: generator(), lambda *_: async_generator(), returns_generator],
    ids=["generator", "async generator", "awaited"],
)
def test_what_nobody_iterates_over_is_refused(ledger: Ledger, handler: Handler) -> None:
    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(1))
            with pytest.raises(HandlerMisuse, match="the handler returned a generator"):
                await run(ledger.into(stores.listed(), handler))

    asyncio.run(live())
    assert ledger.position() == 0


def test_a_cancellation_of_the_handlers_own_is_its_failure(ledger: Ledger) -> None:
    async def cancelled(messages: list[Message], context: IntoContext[Any]) -> None:
        await ledger.book_async(messages, context)
        if any(one.number == 1 for one in messages):
            raise asyncio.CancelledError

    taken(ledger, cancelled, texts(2))
    assert ledger.numbers() == [0]


# what is said


class Unsayable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise Mine("no text")


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (Mine("a NUL \0 in it"), r"Mine: a NUL \0 in it"),
        (Mine("half \ud800 of a pair"), r"Mine: half \ud800 of a pair"),
        (Mine("long" * 1_000_000), "Mine: longlong"),
        (Unsayable(), "Unsayable: its text cannot be had: Mine"),
        (Reject("a NUL \0 of its own"), r"a NUL \0 of its own"),
    ],
    ids=["NUL", "surrogate", "long", "no text", "rejected"],
)
def test_whatever_an_error_says_the_message_is_passed(
    ledger: Ledger, error: Exception, kept: str
) -> None:
    taken(ledger, poisoned(ledger, b"000001", raising(error)), texts(3))
    assert ledger.numbers() == [0, 2]
    ((body, of),) = refused(ledger)
    assert body == b"000001"
    assert of["error"].startswith(kept)
    assert len(of["error"]) <= 4_000


def test_a_message_that_is_larger_than_an_element_may_be_is_given_up_in_parts(
    ledger: Ledger,
) -> None:
    large = bytes(range(256)) * 10_000
    taken(ledger, poisoned(ledger, large, raising(Reject("too much"))), [b"a", large, b"b"])
    assert ledger.effects() == [b"a", b"b"]
    held = refused(ledger)
    assert b"".join(body for body, _ in held) == large
    assert [(of["part"], of["parts"]) for _, of in held] == [(1, 3), (2, 3), (3, 3)]
    assert {of["number"] for _, of in held} == {3}


# who is charged


def kill(context: IntoContext[Any]) -> None:
    context.connection.execute("select pg_terminate_backend(pg_backend_pid())")


@emits(logged.EffectsGivenUp, logged.EffectsUndone)
@pytest.mark.parametrize(
    ("act", "code"),
    [
        (kill, "ConnectionLost"),
        (raising(CannotConnect("elsewhere")), "CannotConnect"),
        (raising(Fenced("elsewhere")), "Fenced"),
        (raising(SchemaMissing("elsewhere")), "SchemaMissing"),
        (raising(Retry("for ever")), "Retry"),
    ],
    ids=["its own connection", "cannot connect", "fenced", "no schema", "retry"],
)
def test_what_fails_each_time_is_told_and_given_up_at_last(
    ledger: Ledger,
    events: Events,
    act: Callable[[IntoContext[Any]], object],
    code: str,
) -> None:
    taken(ledger, poisoned(ledger, b"000002", act), texts(5))
    assert ledger.numbers() == [0, 1, 3, 4]
    assert [body for body, _ in refused(ledger)] == [b"000002"]
    (given_up,) = events.of(logged.EffectsGivenUp)
    assert (given_up["number"], given_up["code"]) == (2, code)
    assert {one["code"] for one in events.of(logged.EffectsUndone)} == {code}


def test_a_poison_among_a_thousand_is_found_by_halving(ledger: Ledger) -> None:
    sizes: list[int] = []

    def picky(messages: list[Message], context: IntoContext[Any]) -> None:
        sizes.append(len(messages))
        ledger.book(messages, context)
        if any(one.number == 617 for one in messages):
            raise Mine("617 is refused")

    async def live() -> None:
        async with running(None) as stores, source(stores.listed(), flight=2_000) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(1_000))
            await one.wait_stable(WITHIN_S)
            async with living(ledger.into(stores.listed(), picky, batch=1_000)):
                await soon(lambda: ledger.position() == 1_000)

    asyncio.run(live())
    assert ledger.numbers() == [one for one in range(1_000) if one != 617]
    assert len(sizes) <= 1 + 2 * 10 + 5 + 20, "ten halvings, five tries alone; some in batches"


def test_the_environment_is_excused_ten_times_and_a_stopped_queue_always() -> None:
    batch = [Message(stream=S, epoch=1, number=n, body=b"") for n in range(64)]
    pieces = Pieces(batch, abort_limit=5)
    assert not any(pieces.failed(Blame.WAIT) for _ in range(100))
    sizes = []
    while True:
        assert pieces.first is not None
        sizes.append(len(pieces.first))
        if pieces.failed(Blame.AGAIN):
            break
    assert sizes == [64] * 11 + [32, 16, 8, 4, 2] + [1] * 15


# who waits


@emits(logged.EffectsUndone)
def test_a_queue_that_is_stopped_charges_nobody(
    ledger: Ledger, events: Events, qm: onceq.QueueManager
) -> None:
    """However often: more than the environment is excused otherwise."""
    qm.declare(Queue("other", bytes, bytes))
    qm.stop("other", enqueue=True)
    given = "'other', 'x', null, 4::smallint, null, null, null, null, null, false"
    enqueue = f"select {ledger.repository}.enqueue({given})"

    def fan_out(messages: list[Message], context: IntoContext[Any]) -> None:
        ledger.book(messages, context)
        for _ in messages:
            context.connection.execute(enqueue.encode())

    def start() -> None:
        while len(events.of(logged.EffectsUndone)) < 30:
            time.sleep(0.01)
        qm.start("other", enqueue=True)

    taken(ledger, fan_out, texts(3), start)
    assert ledger.numbers() == [0, 1, 2]
    assert qm.show("other").depth == 3
    assert {one["code"] for one in events.of(logged.EffectsUndone)} == {QueueStopped.__name__}
    assert refused(ledger) == []


@emits(logged.BridgeWaits, logged.BridgeGoesOn)
def test_an_error_queue_that_is_stopped_is_waited_for(
    ledger: Ledger, events: Events, qm: onceq.QueueManager
) -> None:
    def start() -> None:
        while not events.of(logged.BridgeWaits):
            time.sleep(0.01)
        qm.start("ledger.error", enqueue=True)

    def stop(_: IntoContext[Any]) -> None:
        qm.stop("ledger.error", enqueue=True)
        raise Reject("it has nowhere to go")

    taken(ledger, poisoned(ledger, b"000001", stop), texts(3), start)
    assert ledger.numbers() == [0, 2]
    assert [body for body, _ in refused(ledger)] == [b"000001"]
    assert events.of(logged.BridgeWaits)[0]["code"] == QueueStopped.__name__


@pytest.mark.parametrize("is_returned", [False, True])
def test_it_waits_as_long_as_the_handler_says(ledger: Ledger, *, is_returned: bool) -> None:
    called_s: list[float] = []

    def later(_: IntoContext[Any]) -> object:
        called_s.append(time.monotonic())
        if len(called_s) > 1:
            return None
        error = Retry("not yet", after_s=0.7)
        if is_returned:
            return error
        raise error

    taken(ledger, poisoned(ledger, b"000001", later), texts(3))
    assert called_s[1] - called_s[0] >= 0.7
    assert ledger.numbers() == [0, 1, 2]
    assert refused(ledger) == []


def test_a_life_that_waits_for_long_can_be_stopped(ledger: Ledger, events: Events) -> None:
    later = Retry("much later", after_s=100_000)

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(1))
            handler = poisoned(ledger, b"000000", raising(later))
            async with living(ledger.into(stores.listed(), handler)):
                await soon(lambda: bool(events.of(logged.EffectsUndone)))

    asyncio.run(live())
    assert ledger.position() == 0


@emits(logged.BridgeWaits)
@pytest.mark.parametrize("state", ["40P01", "53100"])
@pytest.mark.parametrize("function", ["stream_open", "stream_move"])
def test_an_environment_that_fails_for_a_while_ends_no_bridge(
    ledger: Ledger, function: str, state: str
) -> None:
    """As it begins, and where it passes what has no effects."""
    with plain(ledger.conninfo) as connection:
        connection.execute(f"create sequence {ledger.repository}.failing_seq".encode())
    begins = "perform onceq.be_durable();"
    fails = f"raise exception 'it fails' using errcode = '{state}';"
    fails = f"if nextval('onceq.failing_seq') <= 3 then {fails} end if;"
    install_variant(ledger.conninfo, ledger.repository, function, (begins, f"{fails} {begins}"))

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            one.send(b"void")
            one.send(b"kept")
            one.give_up(0)
            await one.wait_stable(WITHIN_S)
            async with living(ledger.into(stores.listed())):
                await soon(lambda: ledger.position() == 2)

    asyncio.run(live())
    assert ledger.effects() == [b"kept"]
