"""A stream that a person deregistered: what stores bring back of it is believed by nobody."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from onceq.streams.model.ending import EndStream, overruled
from onceq.streams.model.quorum import Intergroup, Intragroup, StoreList, listed
from onceq.streams.source.epochs import Begun, Short, Succeeded
from onceq.streams.source.recovering import Past
from tests.streams.source.test_creating import by_quorum
from tests.streams.source.towns import ABC, S, Town, life

LISTS = [
    ABC,
    listed("a b c", intragroup=Intragroup.ALL),
    listed("a b c; d e", intergroup=Intergroup.ALL),
    listed("a b c; d e"),
]


@pytest.mark.parametrize("own", LISTS, ids=lambda one: f"{one.text()} {one.intragroup}")
def test_a_stream_that_is_overruled_can_never_be_recovered(own: StoreList) -> None:
    """Whatever stores have a tombstone: those without it are a recover set, or it is overruled."""
    stores = sorted(own.stores)
    for count in range(len(stores) + 1):
        for gone in itertools.combinations(stores, count):
            tombstones = {store: frozenset({S}) for store in gone}
            is_overruled = S in overruled(tombstones, {S: (own,)})
            assert is_overruled is not own.recovers(own.stores - set(gone))


def test_a_source_begins_a_new_stream_when_its_stream_was_deregistered(town: Town) -> None:
    town.deregister("abc")
    begun = town.begun(life(2))
    assert begun.stream not in {0, S}
    assert (begun.log.end, begun.bridge.firsts) == (0, ((begun.epoch, 0),))
    assert town.begun(life(3)).stream == begun.stream, "it goes on with that"
    town.deregister("abc", begun.stream)
    assert town.begun(life(4)).stream not in {0, S, begun.stream}


def test_a_store_that_was_away_is_overruled_and_drops_what_it_has(town: Town) -> None:
    town.deregister("ab")
    assert town.log("c") == ["1.0", "1.1", "1.2"]
    begun = town.begun(life(2))
    assert begun.stream != S
    assert begun.log.end == 0
    assert town.is_gone("c", S)
    assert town.log("c") == []


def test_a_store_that_was_away_all_the_time_is_filled_with_the_new_stream(town: Town) -> None:
    town.deregister("ab")
    town.down = {"c"}
    first = town.begun(by_quorum(2))
    assert first.stream != S
    town.down = set()
    past = Past(
        stream=first.stream,
        epochs=frozenset({first.epoch}),
        needed=first.bridge.lists,
        own=ABC,
    )
    later = town.begun(by_quorum(2), past)
    assert (later.stream, later.bridge.fillings) == (first.stream, (("c", later.epoch),))
    assert town.is_gone("c", S)


@pytest.mark.parametrize("away", ["a", "b", "c"])
def test_the_old_stream_is_not_gone_on_with_by_the_store_that_was_away(
    town: Town, away: str
) -> None:
    """Alone, with one that knows nothing, or with one that has a tombstone: it is never enough."""
    others = sorted({*"abc"} - {away})
    town.deregister("".join(others))
    for down in ({*others}, {others[0]}, {others[1]}):
        town.down = down
        for one in (life(2), by_quorum(3)):
            found = town.recover(one)
            assert isinstance(found, Short) or _is_anew(found)


def _is_anew(found: Any) -> bool:
    return isinstance(found, Begun) and found.stream != S and found.log.end == 0


def test_one_tombstone_overrules_nobody(town: Town) -> None:
    """It may be of a deregistration that came to nothing: the others go on, without that store."""
    town.deregister("a")
    begun = town.begun(life(2))
    assert (begun.stream, begun.log.end, set(begun.noted)) == (S, 3, {"b", "c"})
    assert begun.unable == {"a"}
    town.down = {"b"}
    assert isinstance(town.recover(life(3)), Short)
    town.wipe("b")
    town.wipe("c")
    town.down = set()
    assert isinstance(town.recover(by_quorum(4)), Short), "a store knows that it is not new"


def test_a_life_that_sent_is_fenced_when_its_stream_was_deregistered(town: Town) -> None:
    begun = town.begun(life(2))
    town.deregister("ab")
    past = Past(stream=S, epochs=frozenset({begun.epoch}), needed=begun.bridge.lists, own=ABC)
    assert isinstance(town.recover(life(2), past), Succeeded)
    with pytest.raises(AssertionError, match="Refused"):
        town.send(3, "a", epoch=begun.epoch, life=2)


def test_lives_that_do_not_know_of_it_do_not_send_in_the_old_stream(town: Town) -> None:
    """One looks before the stream is deregistered, and asks for promises behind that."""

    def deregister(_: str, ask: Any) -> None:
        if not isinstance(ask, EndStream) and type(ask).__name__ == "Fence":
            town.before = lambda _, __: None
            town.deregister("ab")

    town.before = deregister
    assert isinstance(town.recover(life(2)), Short)
    assert town.begun(life(2)).stream != S


def test_each_new_stream_has_an_id_of_its_own_that_all_lives_know() -> None:
    one = life(1)
    ids = [one.fresh]
    for _ in range(5):
        ids.append(life(2).fresh_beside(frozenset(ids)))
    assert len({*ids}) == 6
    assert one.fresh_beside(frozenset(ids[:3])) == ids[3]
    assert one.fresh_beside(frozenset(ids[1:])) == ids[0], "the first that is not gone"
