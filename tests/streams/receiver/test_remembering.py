"""What a life of a receiver remembers of what it was shown and told: what may still matter."""

from __future__ import annotations

from onceq.streams.model import asks
from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.receiver.delivering import Delivering
from tests.streams.receiver.test_delivering import S, frame, given, information, live, stable


def remembered(core: Delivering) -> tuple[int, int]:
    """How many runs, and how many losses."""
    return len(core._runs), len(core._losses)


def test_what_is_stable_is_not_remembered_epoch_by_epoch() -> None:
    core, firsts = live(), [(1, 0)]
    for epoch in range(2, 500):
        core.live(frame(epoch - 1, core.next, 2))
        core.live(frame(epoch - 1, core.next, 0, stable=core.next - 1))
        firsts.append((epoch, core.next))
        assert core.inform(information(epoch, *firsts)) == []
    assert remembered(core) <= (3, 0)
    back = core.inform(information(999, *firsts[:-1], (999, core.next - 1)))
    assert back == [RolledBack(stream=S, first=core.next, last=core.next)], "the last is not stable"


def test_losses_below_what_is_stable_are_not_remembered() -> None:
    core = stable()
    for number in range(0, 600, 3):
        core.live(frame(1, core.next, 0, stable=number + 2))
        for store in "ab":
            core.given(store, asks.Range(begin=number + 2, end=number + 2), ())
        assert given(core, "c", number + 2, frame(1, number + 2, stable=0)) != []
    assert core.next == 600
    assert max(remembered(core)) <= 3


def test_what_was_shown_last_is_remembered_though_what_follows_is_lost() -> None:
    core = stable()
    given(core, "a", 0, frame(4, 0))
    core.live(frame(1, 1, 0, stable=3))
    for store in "ab":
        core.given(store, asks.Range(begin=3, end=3), ())
    assert core.next == 3
    assert core.inform(information(3, (1, 0))) == []
    assert (core.next, core.epoch) == (3, 1), "it is told late of what 4 has succeeded"


def test_a_store_that_gives_again_is_not_counted_among_those_that_trimmed() -> None:
    core = live()
    core.given("a", asks.Range(begin=2, end=2), ())
    assert given(core, "a", 0, frame(1, 0)) == ["1.0*"], "it was filled since"
    assert core.given("b", asks.Range(begin=2, end=2), ()) == []
    lost = Loss(stream=S, first=1, last=1, why=WhyLost.TRIMMED)
    assert core.given("a", asks.Range(begin=2, end=2), ()) == [lost]


def test_what_stores_said_before_an_epoch_is_asked_anew_in_it() -> None:
    core = live()
    core.given("a", asks.Range(begin=2, end=2), ())
    given(core, "c", 0, missing=True)
    core.inform(information(2, (1, 0), (2, 5)))
    assert core.given("b", asks.Range(begin=2, end=2), ()) == []
    assert core.next == 0
