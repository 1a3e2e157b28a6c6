"""The RegIDs of sources at a store: it gives them, takes them, and finds streams by them."""

from __future__ import annotations

from onceq.streams.model import asks
from onceq.streams.store.catalogue import Catalogue, Step
from tests.streams.store.test_catalogue import ABC, S, Store, admit


def of_source(stream: int, regid: int, epoch: int = 1) -> asks.Fence:
    """A fence of the source of another stream, which gives a RegID."""
    topic = f"topic {stream}"
    return asks.Fence(
        stream=stream, epoch=epoch, life=5, own=ABC, topic=topic, session=stream, regid=regid
    )


def test_each_source_has_a_regid_of_its_own() -> None:
    store = Store()
    for stream, given, its in ((1, 0, 1), (2, 0, 2), (3, 40, 40), (4, 0, 41)):
        store.do(store.catalogue.fence(of_source(stream, given)))
        assert store.catalogue.of(stream).regid == its
    store.do(store.catalogue.fence(of_source(1, 0, epoch=2)))
    assert store.catalogue.of(1).regid == 1, "it keeps the one that it has"
    store.catalogue = Catalogue(store.catalogue.snapshot())
    found = store.catalogue.look(asks.Look(topic="topic 3", session=99, regid=40))
    assert isinstance(found, asks.Found)
    assert (found.stream, found.session, found.regid) == (3, 3, 40)
    other = store.catalogue.look(asks.Look(topic="topic 4", session=99, regid=40))
    assert other == asks.Found(), "a RegID is one of a topic"


def test_the_regid_of_a_source_is_not_given_to_another() -> None:
    store = Store()
    store.do(store.catalogue.fence(of_source(S, 40)))
    store.do(store.catalogue.fence(of_source(8, 40)))
    assert store.catalogue.of(8).regid == 40, "the other stream was never sent to"
    assert store.do(store.catalogue.admit(admit(1))) == asks.Holding(epoch=1, end=0, regid=40)
    refused = store.catalogue.fence(of_source(9, 40))
    assert refused == Step(answer=asks.Taken(regid=40))
    assert store.catalogue.of(9).promised == 0
