"""A life of a source whose first epochs come to nothing before it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Stage
from onceq.streams.model.ops import WaitUntil
from onceq.streams.source.program import SendOn, live
from tests.streams.source.towns import TIMING, Town, life

if TYPE_CHECKING:
    from onceq.streams.source.epochs import Begun


def begun(town: Town) -> Begun:
    """The first epoch in which a life may send, however often it tries."""
    program = live(life(), TIMING)
    op: Any = next(program)
    while not isinstance(op, SendOn):
        op = program.send(town.perform(op, ""))
    return op.begun


def test_an_epoch_is_not_tried_twice_though_who_holds_it_is_silent_when_it_looks_again() -> None:
    """Stores refuse a record in which an epoch comes twice, and close the link."""
    town = Town()

    def interrupt(store: str, ask: asks.Ask) -> None:
        match ask:
            case asks.Admit() if store == "c" and ask.bridge.stage is Stage.SETTLED:
                town.down = {"c"}
            case asks.Look() if "SETTLED" in town.stages("a"):
                town.wipe("c")
                town.down = {"a", "b"}
            case asks.Fence():
                town.down = set()
            case _:
                pass

    town.before = interrupt
    assert begun(town).bridge.firsts == ((1, 0), (2, 0))


def test_it_rests_for_the_registration_interval_before_it_asks_again() -> None:
    town, rests = Town(), []
    town.down = {"c"}
    program = live(life(), replace(TIMING, interval_s=0.25))
    op: Any = next(program)
    while not isinstance(op, SendOn):
        if isinstance(op, WaitUntil):
            rests.append(op.within_s)
            town.down = set() if len(rests) == 2 else {"c"}
        op = program.send(town.perform(op, ""))
    assert rests == [0.25, 0.25]
