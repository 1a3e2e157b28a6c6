"""Lives of one source that begin at once, each of which stores refuse for the others."""

from __future__ import annotations

from typing import Any

from onceq.streams.model import asks
from onceq.streams.model.ops import WaitUntil
from onceq.streams.model.states import LOOKS_MAX
from onceq.streams.source.epochs import Short
from onceq.streams.source.recovering import Past, recover
from tests.streams.source.towns import TIMING, Town, life


def waits(town: Town, number: int) -> list[float]:
    """How long a life waits before it looks again, each time that it is refused."""
    program = recover(life(number), Past(), TIMING)
    waited: list[float] = []
    answer: Any = None
    while True:
        try:
            op = program.send(answer)
        except StopIteration as stop:
            return waited if stop.value == Short(is_known=True) else []
        if isinstance(op, WaitUntil):
            waited.append(op.within_s)
        fences = [ask for ask in getattr(op, "asked", {}).values() if isinstance(ask, asks.Fence)]
        refused = {store: asks.Refused(promised=9) for store in town.stores}
        answer = refused if fences else town.perform(op, "")


def test_each_waits_for_a_while_of_its_own() -> None:
    town = Town()
    town.begun()
    one, other = waits(town, 2), waits(town, 3)
    assert len(one) == len(other) == LOOKS_MAX
    assert one[0] == other[0] == 0, "at first it goes on at once"
    assert not set(one[1:]) & set(other[1:])
    assert all(0 < wait < TIMING.interval_s for wait in one[1:] + other[1:])
