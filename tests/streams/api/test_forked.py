"""A context belongs to the process that opened it: one that was forked is told so, at once."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.errors import IllegalState
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, read, town

if TYPE_CHECKING:
    from collections.abc import Callable

FORKS = multiprocessing.get_context("fork")
SAYS = "a context belongs to the process that opened it"


def forked(acts: dict[str, Callable[[], object]]) -> dict[str, str]:
    """What becomes of calls in a forked process; one that does not return is missing."""
    told = FORKS.SimpleQueue()

    def child() -> None:
        for name, act in acts.items():
            try:
                said = f"it returned {act()!r}"
            except IllegalState as error:
                said = str(error)
            told.put((name, said))

    process = FORKS.Process(target=child, daemon=True)
    process.start()
    process.join(10)
    if process.is_alive():
        process.kill()
        process.join()
    found: dict[str, str] = {}
    while not told.empty():
        name, said = told.get()
        found[name] = said
    return found


def no_handler(_: streams.Message[Any]) -> None:
    raise AssertionError("nothing is shown")


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_what_was_opened_before_a_fork_is_refused_behind_it() -> None:
    with town(names="a") as stores:
        at = stores.at("a")
        with (
            streams.open(session_id=SENDER) as context,
            context.source(RAW, stores=at) as source,
        ):
            source.send(b"0")
            source.wait_stable(WITHIN_S)
            other = context.source(RAW, stores=at, session_id=SENDER + 1)
            receiver = context.receiver(RAW, no_handler, at=at, session_id=READER)
            refused: dict[str, Callable[[], object]] = {
                "send": lambda: source.send(b"1"),
                "wait_stable": lambda: source.wait_stable(1),
                "wait_registered": lambda: source.wait_registered(1),
                "want": lambda: source.want(at),
                "give_up": lambda: source.give_up(0),
                "enter": other.__enter__,
                "run": receiver.run,
                "source": lambda: context.source(RAW, stores=at),
                "receiver": lambda: context.receiver(RAW, no_handler, at=at),
                "deregister": lambda: context.deregister(RAW, stores=at),
            }
            found = forked({**refused, "end": source.close, "close": context.close})
            assert found.keys() == {*refused, "end", "close"}
            assert [name for name in refused if SAYS not in found[name]] == []
            assert [found[name] for name in ("end", "close")] == ["it returned None"] * 2
            assert source.send(b"1") == 1, "nothing was sent there"
            source.wait_stable(WITHIN_S)
            shows = read(context, RAW, 1, at=at, session_id=READER)
            assert shows.numbers() == [0, 1]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_likewise_for_asyncio() -> None:
    async def live(at: str) -> None:
        async with (
            streams.open_async(session_id=SENDER) as context,
            context.source(RAW, stores=at) as source,
        ):
            await source.send(b"0")
            await source.wait_stable(WITHIN_S)
            other = context.source(RAW, stores=at, session_id=SENDER + 1)
            receiver = context.receiver(RAW, no_handler, at=at, session_id=READER)
            waits: dict[str, Callable[[], Any]] = {
                "send": lambda: source.send(b"1"),
                "wait_stable": lambda: source.wait_stable(1),
                "wait_registered": lambda: source.wait_registered(1),
                "want": lambda: source.want(at),
                "give_up": lambda: source.give_up(0),
                "enter": other.__aenter__,
                "run": receiver.run,
                "deregister": lambda: context.deregister(RAW, stores=at),
                "open": context.__aenter__,
            }
            plain: dict[str, Callable[[], object]] = {
                "source": lambda: context.source(RAW, stores=at),
                "receiver": lambda: context.receiver(RAW, no_handler, at=at),
            }

            def stepped(made: Callable[[], Any]) -> Callable[[], object]:
                """Begin a coroutine, in a process without a loop: it is to raise at once."""
                return lambda: made().__await__().send(None)

            refused = plain | {name: stepped(made) for name, made in waits.items()}
            found = forked(refused)
            assert found.keys() == refused.keys()
            assert [name for name in refused if SAYS not in found[name]] == []
            assert await source.send(b"1") == 1, "nothing was sent there"
            await source.wait_stable(WITHIN_S)

    with town(names="a") as stores:
        asyncio.run(live(stores.at("a")))
