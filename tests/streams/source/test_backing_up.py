"""Backups, and the core of a source as options want it."""

from __future__ import annotations

import pytest

from onceq.errors import InvalidValue
from onceq.streams.model.low import Consensus
from onceq.streams.model.quorum import listed
from onceq.streams.model.window import FlightBehavior
from onceq.streams.source import acts
from onceq.streams.source.backing_up import Backups
from onceq.streams.source.epochs import SourceLife, WhyEnded
from onceq.streams.source.options import core_of
from tests.streams.source.senders import ABC, TIMING, Source, begun

AFTER_S = TIMING.backup_s


def test_um_a_backup_takes_the_place_of_a_store_that_does_not_answer() -> None:
    backups = Backups("d e", ABC, 10.0)
    assert backups.look(ABC, {"c"}, 0.0) is None
    assert backups.look(ABC, {"c"}, 9.9) is None
    assert backups.look(ABC, {"c"}, 10.0) == listed("a b d")


def test_a_store_that_answers_again_keeps_its_place() -> None:
    backups = Backups("d", ABC, 10.0)
    backups.look(ABC, {"c"}, 0.0)
    backups.look(ABC, set(), 9.0)
    assert backups.look(ABC, {"c"}, 12.0) is None


def test_another_backup_is_tried_when_one_could_not_take_the_place() -> None:
    backups = Backups("d e", ABC, 10.0)
    backups.look(ABC, {"c"}, 0.0)
    assert backups.look(ABC, {"c"}, 10.0) == listed("a b d")
    assert backups.look(ABC, {"c"}, 11.0) is None
    assert backups.look(ABC, {"c"}, 20.0) == listed("a b e")


def test_a_store_that_was_replaced_is_a_backup_from_then_on() -> None:
    backups, other = Backups("d", ABC, 10.0), listed("a b d")
    backups.look(ABC, {"c"}, 0.0)
    backups.look(ABC, {"c"}, 10.0)
    backups.look(other, {"d"}, 20.0)
    assert backups.look(other, {"d"}, 30.0) == listed("a b c")


def test_each_group_has_its_own() -> None:
    groups = listed("a b c; x y z")
    backups = Backups("d; w", groups, 1.0)
    backups.look(groups, {"b", "x"}, 0.0)
    assert backups.look(groups, {"b", "x"}, 1.0) == listed("a d c; w y z")


@pytest.mark.parametrize("text", ["c", "d; e", "d d"])
def test_backups_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        Source(backups=text)


def test_a_source_changes_its_list_for_a_backup_and_not_while_another_is_wanted() -> None:
    source = Source(backups="d")
    source.begin(begun())
    source.step(acts.Gone(store="c", why="killed"))
    source.pass_s(0.0)
    source.pass_s(AFTER_S)
    assert source.core.wanted == listed("a b d")
    assert source.ends == [WhyEnded.LIST_CHANGES]
    other = Source(backups="d")
    other.begin(begun())
    other.step(acts.Wanted(own=listed("a b f")))
    other.begin(begun(2))
    other.step(acts.Gone(store="c", why="killed"))
    other.pass_s(0.0)
    other.pass_s(AFTER_S)
    assert other.core.wanted == listed("a b f")


LIFE = SourceLife(life=5, born_s=1, own=ABC, topic="bars", session=9)


def test_options_make_the_core_of_a_source() -> None:
    options = {
        "flight_size": 7,
        "flight_size_bytes": 70,
        "flight_size_behavior": "notify",
        "consensus_sequence_number_behavior": "lowest",
        "message_stability_timeout_ms": 1_500,
        "message_stability_lifetime_ms": 9_000,
        "registration_interval_ms": 250,
        "retention_unique_confirmations": 2,
        "fragment_size": 100,
    }
    core = core_of(LIFE, options, backups="d")
    flight, policy = core.keeping.flight, core.keeping.policy
    assert (flight.messages_max, flight.bytes_max) == (7, 70)
    assert flight.behavior is FlightBehavior.NOTIFY
    assert core.reported is Consensus.LOWEST
    assert (core.timing.resend_s, core.timing.interval_s) == (1.5, 0.25)
    assert (policy.message_stability_lifetime_ms, policy.retention_unique_confirmations) == (
        9_000,
        2,
    )
    assert core.retention.fragment_size == 100


def test_options_that_do_not_fit_each_other_are_refused() -> None:
    assert core_of(LIFE, {}).timing.interval_s == 1.0
    with pytest.raises(InvalidValue, match="2 flights"):
        core_of(LIFE, {"retransmit_retention_size_limit": 1 << 20})
