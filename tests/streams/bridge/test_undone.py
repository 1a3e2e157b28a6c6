"""What the log says of effects that were undone: why, and where in the handler that was."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from onceq.errors import HandlerFailed, Reject, Retry
from onceq.streams import logged
from onceq.streams.bridge import trying
from onceq.streams.bridge.traces import HEAD_CHARS, TAIL_CHARS, traceback_of
from tests.events import emits
from tests.streams.bridge.ledgers import Ledger, Mine, living
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.source.running import WITHIN_S, send_all, source, texts

if TYPE_CHECKING:
    from onceq.streams.bridge.hands import IntoContext
    from onceq.streams.receiver.ops import Message
    from tests.events import Events


@emits(logged.EffectsGivenUp, logged.EffectsUndone)
def test_the_log_says_why_effects_were_undone_and_where_once(
    conninfo: str, repository: str, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trying, "PAUSE_MAX_S", trying.PAUSE_S)
    ledger = Ledger(conninfo, repository)

    def picky(messages: list[Message], context: IntoContext[Any]) -> None:
        ledger.book(messages, context)
        if any(one.number == 5 for one in messages):
            raise Reject("5 is given up")
        if any(one.number == 13 for one in messages):
            raise Mine("13 is refused")

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            await send_all(one, texts(20))
            await one.wait_stable(WITHIN_S)
            async with living(ledger.into(stores.listed(), picky, batch=20)):
                await soon(lambda: ledger.position() == 20)

    asyncio.run(live())
    rejected, given_up = events.of(logged.EffectsGivenUp)
    assert (rejected["error"], given_up["error"]) == ("5 is given up", "Mine: 13 is refused")
    for one in (rejected, given_up):
        assert "in picky" in one["traceback"]
        assert "streams/bridge/hands.py" not in one["traceback"]
    for text in ("5 is given up", "13 is refused"):
        undone = [one for one in events.of(logged.EffectsUndone) if text in one["error"]]
        assert text in undone[0]["traceback"]
        assert len(undone) > 1
        assert not any("traceback" in one for one in undone[1:]), "it is said once"


def raised(error: Exception) -> HandlerFailed:
    """What stands for an error of a handler."""
    failed = HandlerFailed(type(error).__name__, "it failed")

    def handler() -> None:
        raise error

    with pytest.raises(type(error)):
        handler()
    failed.__cause__ = error
    return failed


def test_a_traceback_is_short_and_has_a_frame_of_the_handler() -> None:
    long = traceback_of(raised(Mine("x" * 100_000)))
    assert long is not None
    assert "characters are left out here" in long
    assert len(long) < HEAD_CHARS + TAIL_CHARS + 100
    assert traceback_of(Retry("returned: nobody raised it")) is None


def test_a_traceback_that_cannot_be_had_is_said_to_be_so() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise Mine("no text")

    told = traceback_of(raised(Odd()))
    assert told is not None
    assert "Odd" in told
