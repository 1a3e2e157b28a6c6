"""A list of stores that was left for another: what its stores begin later is no successor."""

from __future__ import annotations

from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Promised, Stage, seen
from onceq.streams.model.quorum import listed
from onceq.streams.source.epochs import Begun
from onceq.streams.source.recovering import Past
from tests.streams.source.towns import ABC, S, Town, life

DEF = listed("d e f")


def moved(town: Town) -> Begun:
    """Moves the stream of a town from a, b, c to d, e, f, as a life does that is told to."""
    town.stores |= Town("def").stores
    joint = town.begun(life(2), Past(wanted=DEF))
    for stage, lists in ((Stage.SETTLING, joint.bridge.lists), (Stage.SETTLED, (DEF,))):
        bridge = replace(joint.bridge, stage=stage, lists=lists)
        for store in "def":
            ask = asks.Admit(stream=S, life=2, log=joint.log, bridge=bridge)
            assert isinstance(town.answer(store, ask), asks.Holding)
    return joint


def test_stores_of_a_left_list_that_began_anew_are_not_gone_on_with(town: Town) -> None:
    """They were wiped, and a life with the old list knew no better: its epoch is the greatest."""
    joint = moved(town)
    kept = town.log("d")
    assert kept, "there is something to lose"
    for store in "abc":
        town.wipe(store)
    anew = town.begun(replace(life(3), born_s=joint.epoch + 1))
    assert (anew.log.end, anew.epoch > joint.epoch) == (0, True)
    town.asked.clear()
    begun = town.begun(life(4, DEF))
    assert (begun.log.end, begun.bridge.lists) == (len(kept), (DEF,))
    assert {store for store, _ in town.asked} == {"d", "e", "f"}
    assert town.log("d") == kept


def test_a_life_with_the_left_list_finds_the_new_one_by_stores_that_still_have_their_disks(
    town: Town,
) -> None:
    moved(town)
    kept = town.log("d")
    begun = town.begun(life(3))
    assert begun.log.end == len(kept)
    assert DEF in begun.bridge.lists


def test_only_a_store_that_holds_nothing_points_to_where_others_were_asked() -> None:
    hinted = Promised(hints=(ABC,))
    bridge = Bridge(epoch=3, stage=Stage.SETTLED, lists=(DEF,), firsts=((1, 0), (3, 5)))
    assert seen(DEF, [hinted]) == (DEF, ABC)
    assert seen(DEF, [replace(hinted, bridge=bridge)]) == (DEF,)
    creating = replace(bridge, stage=Stage.CREATING)
    assert seen(DEF, [replace(hinted, bridge=creating)]) == (DEF, ABC)
