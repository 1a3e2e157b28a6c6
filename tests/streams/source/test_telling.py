"""What a source tells receivers that ask, and its application when it cannot go on."""

from __future__ import annotations

import pytest

from onceq.streams.errors import FrameRefused, NotRegistered, NumberConflict, SourceSucceeded
from onceq.streams.model import asks, events
from onceq.streams.model.quorum import listed
from onceq.streams.source import acts
from onceq.streams.source.epochs import Short, WhyEnded
from tests.streams.source.senders import TIMING, S, Source, begun

LEARN = asks.Learn(topic="bars", session=9)


def is_due(source: Source) -> bool:
    return source.core.is_due


def is_untold(source: Source) -> bool:
    return source.core.is_untold


@pytest.fixture
def source() -> Source:
    made = Source()
    made.begin(begun())
    return made


def test_a_receiver_is_told_what_it_must_know_once_there_is_an_epoch() -> None:
    source = Source()
    assert source.core.learn(LEARN) == asks.Forgot()
    source.begin(begun())
    assert source.core.learn(LEARN) == source.core.information()


@pytest.mark.parametrize(
    "ask",
    [
        asks.Learn(topic="bars", session=8),
        asks.Learn(topic="others", session=9),
    ],
)
def test_who_asks_for_something_else_is_refused(source: Source, ask: asks.Learn) -> None:
    with pytest.raises(FrameRefused):
        source.core.learn(ask)


def test_while_no_epoch_can_begin_nothing_is_taken_and_each_store_is_told_once(
    source: Source,
) -> None:
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    assert source.core.send(b"taken") == 0
    source.told.clear()
    short = Short(forgot=frozenset("c"), silent=frozenset("b"))
    for _ in range(3):
        source.do(source.core.lack(short))
        with pytest.raises(NotRegistered):
            source.core.send(b"refused")
    told = [
        (one.store, one.stream) for one in source.told if isinstance(one, events.RegistrationError)
    ]
    assert told == [("c", S), ("b", S)]
    source.do(source.core.lack(Short(silent=frozenset("b"))))
    assert len(source.told) == 3, "something has changed"
    source.begin(begun(2))
    assert source.send(b"taken") == [1]


def test_a_life_that_was_succeeded_while_it_recovered_says_so(source: Source) -> None:
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    source.told.clear()
    for _ in range(2):
        source.do(source.core.succeed())
        with pytest.raises(SourceSucceeded):
            source.core.has_room(1)
    assert source.told == [events.SourceFenced(stream=S, epoch=1)]


def test_after_a_conflict_nothing_is_taken(source: Source) -> None:
    source.step(acts.Came(store="c", answer=asks.Conflict(number=0)))
    assert source.ends == [WhyEnded.CONFLICT]
    with pytest.raises(NumberConflict, match="another content"):
        source.core.send(b"never")


def test_full_blocks_leave_before_what_is_left_over(source: Source) -> None:
    source.core.send(b"x" * 40_000)
    assert not is_due(source)
    source.core.send(b"y" * 40_000)
    assert is_due(source)
    source.do(source.core.feed(0.0))
    assert source.ranges("a") == [(0, 1)]
    assert not is_due(source)
    source.do(source.core.flush(0.0))
    assert source.ranges("a") == [(1, 2)]


def test_between_epochs_no_block_is_due(source: Source) -> None:
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    for _ in range(2):
        source.core.send(b"x" * 40_000)
    assert not is_due(source)
    assert source.core.feed(0.0) == []


def test_it_knows_that_receivers_were_not_told_what_is_stable(source: Source) -> None:
    source.send(b"0")
    assert not is_untold(source)
    source.have("ab", 1)
    assert is_untold(source)
    source.pass_s(0.005)
    assert not is_untold(source)


def test_a_store_that_is_full_is_told_what_it_has_that_is_stable(source: Source) -> None:
    """It gives up nothing else, and takes nothing before it has given up something."""
    source.send(b"0")
    source.have("abc", 1)
    source.send(b"1")
    source.have("ab", 2)
    source.step(acts.Came(store="c", answer=asks.Full(end=1)))
    source.sent.clear()
    source.pass_s(0.005)
    told = [(one.count, one.number, one.stable) for one in source.sent["c"]]
    assert told == [(0, 1, 2)], "it notes as much of it as it has"


def test_at_its_end_it_tells_what_is_stable_to_all_that_were_sent_it(source: Source) -> None:
    """Nobody else does: receivers would wait for the last messages until the next life."""
    source.send(b"0")
    source.have("ab", 1)
    source.sent.clear()
    source.published.clear()
    source.do(source.core.farewell())
    for store in "abc":  # c has not answered, and was sent it
        assert [(one.end, one.stable) for one in source.sent[store]] == [(1, 1)]
    assert [frame.stable for frame in source.published] == [1]
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    assert source.core.farewell() == [], "between epochs no store would heed it"


def test_a_change_of_lists_that_lacked_a_store_is_tried_again_in_a_while() -> None:
    """The recovery could not begin it: the store that is added did not answer."""
    source = Source(listed("a b d"))
    source.begin(begun(2))
    source.pass_s(TIMING.interval_s / 2)
    assert source.ends == []
    source.pass_s(TIMING.interval_s)
    assert source.ends == [WhyEnded.LIST_CHANGES]


def test_a_change_of_lists_that_lacks_a_store_for_long_is_tried_more_rarely() -> None:
    source = Source(listed("a b d"))
    waited: list[float] = []
    for epoch in range(2, 12):
        source.begin(begun(epoch))
        began_s = source.now_s
        while len(source.ends) < epoch - 1:
            source.pass_s(TIMING.interval_s / 4)
        waited.append(source.now_s - began_s)
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    source.step(acts.Wanted(own=listed("a b e")))
    source.begin(begun(12))
    source.pass_s(TIMING.interval_s)
    assert source.ends[10:] == [WhyEnded.LIST_CHANGES], "another one is tried at once"


def test_a_store_that_is_linked_again_is_told_again_what_is_stable(source: Source) -> None:
    """It may have started anew, and a source that is idle sends nothing else that tells it."""
    source.send(b"0")
    source.have("abc", 1)
    source.pass_s(0.005)
    source.sent.clear()
    source.pass_s(0.005)
    assert source.sent == {}, "all know it"
    source.step(acts.Gone(store="c", why="it was restarted"))
    source.step(acts.Opened(store="c"))
    source.answer(asks.Holding(epoch=1, end=1))
    source.pass_s(0.005)
    told = [(one.count, one.number, one.stable) for one in source.sent["c"]]
    assert told == [(0, 1, 1)]
    assert source.sent.keys() == {"c"}
