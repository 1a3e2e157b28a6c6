"""A source that has nothing to send is heard by its stores all the same."""

from __future__ import annotations

from onceq.streams.source.epochs import SourceLife, Timing
from onceq.streams.source.options import core_of
from tests.streams.source.senders import ABC, Source, begun


def beating(timeout_ms: int) -> Source:
    """A source of which all stores have the only message."""
    made = Source()
    life = SourceLife(life=5, born_s=1, own=ABC, topic="bars", session=9)
    made.core = core_of(life, {"activity_timeout_ms": timeout_ms}, Timing())
    made.begin(begun())
    made.send(b"one")
    made.have("abc", 1)
    made.pass_s(0.1)
    made.sent.clear()
    return made


def test_stores_hear_it_several_times_before_it_counts_as_gone() -> None:
    source = beating(2_000)
    for _ in range(20):
        source.pass_s(0.1)
    for store in "abc":
        frames = source.sent[store]
        assert len(frames) >= 3
        assert {(one.number, one.count, one.stable) for one in frames} == {(1, 0, 1)}


def test_a_long_time_out_is_no_reason_to_be_silent_for_long() -> None:
    source = beating(3_600_000)
    for _ in range(50):
        source.pass_s(0.1)
    assert all(len(source.sent[store]) >= 4 for store in "abc")


def test_before_anything_is_stable_it_is_heard_too() -> None:
    source = Source()
    life = SourceLife(life=5, born_s=1, own=ABC, topic="bars", session=9)
    source.core = core_of(life, {}, Timing())
    source.begin(begun())
    source.pass_s(2.0)
    assert [[one.count for one in source.sent[store]] for store in "abc"] == [[0]] * 3


def test_without_a_time_out_it_says_nothing() -> None:
    source = beating(0)
    source.pass_s(60)
    assert source.sent == {}
