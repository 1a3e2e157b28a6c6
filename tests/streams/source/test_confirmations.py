"""What receivers confirm to a source: what it is told, what is released, and what paces it."""

from __future__ import annotations

import pytest

from onceq.errors import InvalidValue
from onceq.streams.errors import FlightFull
from onceq.streams.model import asks, events
from onceq.streams.source import acts, confirming
from onceq.streams.source.confirming import LIVENESS, Confirming, Liveness, Sign
from tests.streams.source.senders import S, Source, begun


def started(**given: object) -> Source:
    source = Source(**given)  # type: ignore[arg-type] # a test's short way to say it
    source.begin(begun())
    source.told.clear()
    return source


def confirmed(source: Source) -> list[tuple[int, int, int, int]]:
    found = source.of(events.Confirmed)
    return [(one.first, one.last, one.receiver, one.unique) for one in found]


def test_um_each_receiver_counts_once_by_its_registration() -> None:
    source = started()
    source.send(b"0", b"1", b"2")
    source.confirm(51, 2)
    source.confirm(51, 2, link=7)
    assert confirmed(source) == [(0, 1, 51, 1)]
    source.confirm(52, 3)
    assert confirmed(source) == [(0, 1, 52, 2), (2, 2, 52, 1)]
    source.confirm(51, 3, link=8)
    assert confirmed(source) == [(2, 2, 51, 2)], "on another link it is the same receiver"


def test_what_was_never_sent_is_not_confirmed() -> None:
    source = started()
    source.send(b"0")
    source.confirm(51, 99)
    assert confirmed(source) == [(0, 0, 51, 1)]


def test_what_a_receiver_had_of_another_life_does_not_count() -> None:
    source = Source()
    source.begin(begun(4, end=3))
    source.send(b"3", b"4")
    source.confirm(51, 5, epoch=2)
    assert confirmed(source) == [], "its 3 and 4 may have been others"
    source.confirm(51, 4, epoch=4)
    assert confirmed(source) == [(3, 3, 51, 1)]


def test_what_was_given_up_is_not_told_as_confirmed() -> None:
    source = started()
    source.send(b"0", b"1", b"2")
    source.step(acts.GaveUp(number=1))
    source.begin(begun(2))
    source.confirm(51, 3, epoch=2)
    assert confirmed(source) == [(0, 0, 51, 1), (2, 2, 51, 1)]


def test_a_receiver_that_comes_again_tells_what_it_has_processed_since() -> None:
    source = Source()
    source.begin(begun(4, end=3))
    source.confirm(51, 1, epoch=4)
    assert confirmed(source) == []
    source.confirm(51, 3, epoch=4)
    assert confirmed(source) == [(1, 2, 51, 1)]


def test_um_retention_unique_confirmations_keeps_what_too_few_have_confirmed() -> None:
    source = started(policy={"retention_unique_confirmations": 2})
    source.send(b"0")
    source.send(b"1")
    source.have("abc", 2)
    assert source.core.retention.begin == 0
    source.confirm(51, 2)
    assert source.core.retention.begin == 0
    source.confirm(52, 1)
    assert source.core.retention.begin == 1
    (one,) = source.of(events.Reclaimed)
    assert (one.first, one.last, one.forced) == (0, 0, False)


def test_what_is_confirmed_is_kept_while_it_is_not_stable() -> None:
    source = started(policy={"retention_unique_confirmations": 1})
    source.send(b"0")
    source.confirm(51, 1)
    assert source.core.retention.begin == 0
    source.have("abc", 1)
    assert source.core.retention.begin == 1


def test_um_the_size_threshold_keeps_messages_regardless_of_stability() -> None:
    source = started(policy={"retransmit_retention_size_threshold": 100})
    for _ in range(3):
        source.send(b"x" * 60)
    source.have("abc", 3)
    assert (source.core.retention.begin, source.core.retention.bytes) == (2, 64)
    source.send(b"x" * 60)
    source.have("abc", 4)
    assert source.core.retention.begin == 3


@pytest.mark.parametrize(("unique", "released"), [(0, 0), (1, 1)])
def test_um_without_stability_notification_confirmations_alone_release(
    unique: int, released: int
) -> None:
    policy = {"message_stability_notification": "off", "retention_unique_confirmations": unique}
    source = started(policy={**policy, "message_stability_notification": events.Notification.OFF})
    source.send(b"0")
    source.send(b"1")
    source.have("abc", 2)
    assert source.of(events.Stable) == []
    source.confirm(51, 1)
    assert source.core.retention.begin == released
    assert source.core.stable == 2, "only the events are hidden"


def test_um_without_stability_notification_the_limit_releases_the_oldest() -> None:
    off = events.Notification.OFF
    policy = {"message_stability_notification": off, "retransmit_retention_size_limit": 100}
    source = started(policy=policy)
    for _ in range(2):
        source.send(b"x" * 60)
        source.have("abc", source.core.next)
    (one,) = source.of(events.Reclaimed)
    assert (one.first, one.last, one.forced, one.unstable) == (0, 0, True, False)


def test_um_forced_reclaim_of_what_is_stable_and_not_confirmed() -> None:
    source = started(
        policy={"retention_unique_confirmations": 1, "retransmit_retention_size_limit": 130}
    )
    for _ in range(3):
        source.send(b"x" * 60)
    assert source.of(events.Reclaimed) == []
    source.have("abc", 3)
    (one,) = source.of(events.Reclaimed)
    assert (one.first, one.last, one.forced, one.unstable) == (0, 0, True, False)


def test_um_receivers_pace_a_source_by_their_confirmations() -> None:
    source = started(flight=2, policy={"retention_unique_confirmations": 1})
    source.send(b"0", b"1")
    source.have("abc", 2)
    with pytest.raises(FlightFull, match="confirmed"):
        source.core.send(b"2")
    source.confirm(51, 1)
    assert source.send(b"2") == [2]
    with pytest.raises(FlightFull):
        source.core.send(b"3")


def test_a_receiver_that_lags_paces_nobody_when_none_is_essential() -> None:
    source = started(flight=2)
    source.confirm(51, 0)
    source.send(b"0", b"1")
    source.have("ab", 2)
    assert source.send(b"2", b"3") == [2, 3]


def test_a_limit_below_two_flights_is_refused() -> None:
    policy = {"retransmit_retention_size_limit": 199}
    with pytest.raises(InvalidValue, match="at least 200"):
        Source(flights={"bytes_max": 100}, policy=policy)
    with pytest.raises(InvalidValue, match="at least 240"):
        Source(flight=30, policy=policy)
    with pytest.raises(InvalidValue, match="threshold"):
        Source(policy={**policy, "retransmit_retention_size_threshold": 200})


def dead(source: Source) -> list[int]:
    return [one.receiver for one in source.of(events.ReceiverDead)]


def test_um_a_receiver_whose_connection_breaks_is_dead_until_it_is_back() -> None:
    source = started()
    source.confirm(51, 0, link=1)
    source.step(acts.Left(link=1, why="killed"))
    assert dead(source) == [51]
    source.step(acts.Left(link=1, why="killed"))
    assert dead(source) == []
    source.confirm(51, 0, link=2)
    source.step(acts.Left(link=2, why="killed"))
    assert dead(source) == [51]


def test_a_receiver_that_has_another_link_by_now_is_not_dead() -> None:
    source = started()
    source.confirm(51, 0, link=1)
    source.confirm(51, 0, link=2)
    source.step(acts.Left(link=1, why="late"))
    assert dead(source) == []
    source.step(acts.Left(link=3, why="one that confirms nothing"))
    assert dead(source) == []


def test_um_a_receiver_that_says_nothing_for_too_long_is_dead_and_keepalives_prevent_it() -> None:
    source = started(policy={"source_liveness_timeout_ms": 3_000})
    source.confirm(51, 0, link=1)
    source.confirm(52, 0, link=2)
    source.pass_s(2.0)
    source.confirm(52, 0, link=2)
    source.pass_s(1.0)
    assert dead(source) == [51]
    source.pass_s(1.0)
    assert dead(source) == [], "once"
    source.confirm(51, 0, link=1)
    source.pass_s(3.0)
    assert dead(source) == [51, 52]


def test_the_lives_of_receivers_have_every_sign() -> None:
    assert LIVENESS.keys() == {(life, sign) for life in Liveness for sign in Sign}


def test_so_many_receivers_are_known_and_a_dead_one_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confirming, "KNOWN_MAX", 2)
    one = Confirming(1, 0.0)
    one.begin(1, 0)

    def say(receiver: int) -> int:
        said = asks.Confirm(stream=S, epoch=1, receiver=receiver, below=3)
        return len(one.hear(receiver, said, 9, 0.0))

    assert [say(1), say(2), say(3)] == [3, 3, 0]
    one.leave(1)
    assert say(3) == 3
    assert sorted(one.receivers) == [2, 3]


def test_receivers_are_heard_between_two_epochs() -> None:
    source = started(policy={"retention_unique_confirmations": 1})
    source.send(b"0")
    source.have("abc", 1)
    source.step(acts.Came(store="c", answer=asks.Forgot()))
    source.confirm(51, 1)
    assert confirmed(source) == [(0, 0, 51, 1)]
    source.begin(begun(2, end=1))
    assert source.core.retention.begin == 1
