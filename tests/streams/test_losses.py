"""What a person accepts as lost: when it counts, what follows for logs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from onceq.errors import InvalidValue
from onceq.streams.model.choice import Bridge, Insufficient, Log, Promised, Stage, choose, may_fill
from onceq.streams.model.log import kept_below
from onceq.streams.model.losses import (
    LOST_MAX,
    MARGIN,
    Acceptance,
    Lost,
    acceptance,
    still_stable,
    void_below,
)
from onceq.streams.model.quorum import Intergroup, Intragroup, StoreList, listed

ABC = listed("a b c")
NEW = Promised()


def has(epoch: int = 2, end: int = 50, **fields: Any) -> Promised:
    lists: tuple[StoreList, ...] = fields.pop("lists", (ABC,))
    bridge = Bridge(epoch=epoch, stage=Stage.SETTLED, lists=lists, firsts=((1, 0), (epoch, 9)))
    given: dict[str, Any] = {"bridge": bridge, "end": end, "stable": end, **fields}
    return Promised(**given)


def given(text: str, epoch: int = 2) -> Acceptance:
    made = acceptance(text.replace(" ", f"@{epoch} ", 1))
    assert made is not None
    return made


def test_a_text_is_read_as_it_is_told() -> None:
    one = acceptance("50-81@7 127.0.0.1:7402   127.0.0.1:7403 ")
    assert one is not None
    assert (one.end, one.below, one.epoch) == (50, 81, 7)
    assert one.stores == {"127.0.0.1:7402", "127.0.0.1:7403"}
    assert acceptance(one.text()) == one
    assert one.with_margin().below == 81 + MARGIN
    assert acceptance("") is acceptance("  ") is None


@pytest.mark.parametrize(
    "text",
    [
        "b c",
        "50-81 b",
        "50@7 b",
        "50-81@7",
        "-5-81@7 b",
        "50-81@7b",
        "fifty-81@7 b",
        "5-9@\u0667 b",
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"accept_loss is .*StoresForgot"):
        acceptance(text)


@pytest.mark.parametrize("text", ["50-49@2 b", f"50-{51 + LOST_MAX}@2 b"])
def test_messages_go_on_behind_the_log_and_not_far_behind(text: str) -> None:
    with pytest.raises(InvalidValue, match="messages go on at"):
        acceptance(text)
    assert given(f"50-{50 + LOST_MAX} b").below == 50 + LOST_MAX


def test_too_little_says_what_is_left_and_what_was_given() -> None:
    found = choose(ABC, {"a": has(positions={"session 1": 60}), "b": NEW})
    assert isinstance(found, Insufficient)
    assert found.rest == given("50-60 b c"), "what a receiver acknowledged was given"
    silent = choose(ABC, {"b": NEW, "c": NEW})
    assert isinstance(silent, Insufficient)
    assert silent.rest is None, "for all that is known, the stream is new"


@pytest.mark.parametrize(
    ("own", "answers"),
    [
        (ABC, {"a": has(), "b": NEW, "c": NEW}),
        (ABC, {"a": has(), "b": NEW}),
        (listed("a d"), {"a": has(), "d": NEW}),
    ],
)
def test_it_counts_for_stores_that_forgot_or_do_not_answer(own: StoreList, answers: Any) -> None:
    log = choose(own, answers, given("50-81 b c"))
    assert isinstance(log, Log)
    assert (log.end, log.admitted, log.lists) == (50, 2, (ABC,))
    assert log.given_up == {"b", "c"}


@pytest.mark.parametrize(
    "text",
    ["49-81 b c", "51-81 b c", "50-59 b c", "50-81 b", "50-81 d e"],
    ids=["less", "more", "numbers that were given", "too few stores", "others"],
)
def test_it_counts_for_that_loss_only(text: str) -> None:
    answers = {"a": has(positions={"session 1": 60}), "b": NEW}
    assert choose(ABC, answers, given(text)) == choose(ABC, answers)


def test_it_counts_in_one_epoch_only() -> None:
    """A text that was left in a program would accept a second loss, if nothing was sent between."""
    answers = {"a": has(epoch=4), "b": NEW}
    assert isinstance(choose(ABC, answers, given("50-81 b c", 4)), Log)
    assert choose(ABC, answers, given("50-81 b c", 2)) == choose(ABC, answers)


def test_it_does_not_count_before_a_stable_set_has_promised() -> None:
    answers = {"a": has()}
    assert choose(ABC, answers, given("50-81 b c")) == choose(ABC, answers)


def test_what_an_earlier_loss_declared_void_does_not_come_back() -> None:
    wide = listed("a b c d e")
    lost = (Lost(epoch=5, first=5, count=4),)
    bridge = Bridge(
        epoch=5, stage=Stage.SETTLED, lists=(wide,), firsts=((1, 0), (5, 5)), losses=lost
    )
    answers = {"b": has(end=13, stable=5, bridge=bridge), "c": has(2, 8), "d": NEW}
    log = choose(wide, answers, given("5-99 a d e", 5))
    assert isinstance(log, Log)
    assert log.end == 5, "not 8, as c knows it"


def test_while_a_change_goes_on_the_stores_of_both_lists_are_missed() -> None:
    joint = Bridge(
        epoch=2, stage=Stage.JOINT, lists=(ABC, listed("d e f")), firsts=((1, 0), (2, 9))
    )
    found = choose(ABC, {"a": has(bridge=joint), "b": NEW})
    assert isinstance(found, Insufficient)
    assert found.silent == set("cdef"), "these may have settled, and gone on"
    assert found.rest is not None
    assert found.rest.stores == set("bcdef")


def test_a_recover_set_that_holds_all_keeps_all() -> None:
    """Only too few have promised: what is stable is below the end of the log."""
    both = listed("a b; c d", intragroup=Intragroup.ALL, intergroup=Intergroup.ALL)
    answers = {
        "a": has(end=70, stable=50, lists=(both,)),
        "b": has(end=70, stable=50, lists=(both,)),
    }
    found = choose(both, answers)
    assert isinstance(found, Insufficient)
    assert found.rest is not None
    assert found.rest.end == 70


def test_it_does_not_count_where_nothing_is_lost() -> None:
    answers = {"a": has(), "b": has(), "c": NEW}
    log = choose(ABC, answers, given("50-81 b c"))
    assert isinstance(log, Log)
    assert log == choose(ABC, answers)
    assert log.accepted is None


@pytest.mark.parametrize("whole", [True, False])
def test_of_what_is_left_only_what_is_known_to_be_stable_counts(*, whole: bool) -> None:
    """The stores that are lost may have gone on with another epoch behind it."""
    answers = {"a": has(end=70, stable=50, whole=whole), "b": NEW, "c": NEW}
    found = choose(ABC, answers)
    assert isinstance(found, Insufficient)
    assert found.rest == given("50-70 b c" if whole else "50-70 a b c")
    log = choose(ABC, answers, found.rest)
    assert isinstance(log, Log)
    assert log.end == 50


def test_the_store_that_knows_the_most_to_be_stable_is_gone_on_with() -> None:
    wide = listed("a b c d e")
    answers = {
        "a": has(3, 70, lists=(wide,), stable=40),
        "b": has(2, 60, lists=(wide,), stable=50),
        "d": NEW,
    }
    log = choose(wide, answers, given("50-70 c d e", 3))
    assert isinstance(log, Log)
    assert (log.end, log.admitted) == (50, 2)


def test_who_is_in_no_list_any_more_must_be_named() -> None:
    ade = listed("a d e")
    answers = {"a": has(), "d": NEW, "e": NEW}
    assert isinstance(choose(ade, answers, given("50-50 b")), Insufficient)
    assert isinstance(choose(ade, answers, given("50-50 b c")), Log)
    de = listed("d e")
    found = choose(de, {**answers, "b": NEW})
    assert isinstance(found, Insufficient)
    assert found.rest == given("50-50 a b c"), "a is left out of the list"
    assert isinstance(choose(de, answers, found.rest), Log)


def test_a_stream_of_which_nothing_is_left_begins_where_messages_go_on() -> None:
    answers = {"a": NEW, "b": NEW, "c": NEW}
    log = choose(ABC, answers, given("0-81 a b c", 0))
    assert isinstance(log, Log)
    assert (log.admitted, log.accepted) == (0, given("0-81 a b c", 0))
    other = choose(ABC, answers, given("50-81 a b c"))
    assert isinstance(other, Insufficient), "something is left, and none of these stores has it"


def test_what_a_store_without_messages_saw_is_not_begun_anew_unsaid() -> None:
    answers = {"a": NEW, "b": NEW, "c": Promised(passed=81)}
    found = choose(ABC, answers)
    assert isinstance(found, Insufficient)
    assert found.rest == given("0-81 a b c", 0)
    assert isinstance(choose(ABC, answers, found.rest), Log)


def test_a_new_stream_needs_all_of_the_list_that_its_source_has() -> None:
    lost = {"a": Promised(positions={"session 1": 9}), "b": NEW}
    found = choose(ABC, lost)
    assert isinstance(found, Insufficient)
    assert found.rest == given("0-9 a b c", 0)
    assert choose(ABC, lost, found.rest) == found
    ab = listed("a b")
    others = {**lost, "a": structs.replace(lost["a"], hints=(ABC,))}
    assert isinstance(choose(ab, others, given("0-9 a b c", 0)), Log)


def test_stores_that_are_given_up_are_waited_for_by_nobody() -> None:
    log = choose(ABC, {"a": has(), "b": NEW}, given("50-81 b c"))
    assert isinstance(log, Log)
    of_b = Bridge(
        epoch=3, stage=Stage.SETTLED, lists=(ABC,), firsts=((1, 0),), fillings=(("b", 3), ("c", 3))
    )
    assert may_fill(log, of_b, {"a"})
    assert not may_fill(structs.replace(log, accepted=None), of_b, {"a"})


LOSSES = (Lost(epoch=5, first=50, count=31),)


def test_what_is_lost_is_stable_no_more_at_stores_that_were_away() -> None:
    assert still_stable(90, 4, LOSSES) == 50
    assert still_stable(90, 5, LOSSES) == 90, "it was in that epoch"
    assert still_stable(40, 4, LOSSES) == 40
    assert void_below(LOSSES) == 81
    assert void_below(()) == 0


@pytest.mark.parametrize("whole", [True, False])
def test_a_store_that_was_away_keeps_nothing_of_what_is_lost(*, whole: bool) -> None:
    log = Log(admitted=6, end=99, lists=(ABC,), firsts=((1, 0), (2, 9), (5, 50)), positions={})
    away = has(end=90, whole=whole)
    assert kept_below(away, log, LOSSES) == 50
    assert kept_below(away, log) == 90, "a store that nobody told would keep what nobody else has"
