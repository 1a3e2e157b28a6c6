"""The tables of what a store does and of a source's states, and the choice of a log."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec import structs

from onceq.streams.model import states
from onceq.streams.model.choice import (
    Bridge,
    Insufficient,
    Log,
    Promised,
    Stage,
    choose,
    fillings,
    holders,
    may_fill,
    outdated,
    replaces,
    seen,
)
from onceq.streams.model.log import (
    acknowledged_below,
    agreed_below,
    chained,
    epoch_at,
    in_vain,
    kept_below,
    merged,
    rolled_back,
)
from onceq.streams.model.losses import Acceptance
from onceq.streams.model.quorum import listed
from onceq.streams.model.states import Deed, Finding, Memory, SourceState, Standing, Where

ABC, ABD = listed("a b c"), listed("a b d")


def bridge(epoch: int, *lists: Any, stage: Stage = Stage.SETTLED, first: int = 0) -> Bridge:
    firsts = ((1, 0),) if epoch == 1 else ((1, 0), (epoch, first))
    return Bridge(epoch=epoch, stage=stage, lists=lists or (ABC,), firsts=firsts)


def has(epoch: int, end: int, **fields: Any) -> Promised:
    given: dict[str, Any] = {"bridge": bridge(epoch), "end": end, **fields}
    return Promised(**given)


NEW = Promised()


@pytest.mark.parametrize(
    ("promised", "life", "epoch", "by", "expected"),
    [
        (0, 0, 1, 5, Standing.FIRST),
        (3, 5, 4, 5, Standing.NEWER),
        (3, 5, 3, 5, Standing.OWN),
        (3, 5, 3, 6, Standing.OTHER),
        (3, 5, 2, 5, Standing.OLDER),
    ],
)
def test_standing(promised: int, life: int, epoch: int, by: int, expected: Standing) -> None:
    assert states.standing(promised, life, epoch=epoch, life=by) is expected


def test_memory_and_where() -> None:
    assert states.memory(3, 0) is Memory.NOTHING
    assert states.memory(3, 2) is Memory.HOLDS
    assert states.memory(3, 3) is Memory.ADMITTED
    assert [states.where(n, 5) for n in (4, 5, 6)] == [Where.BELOW, Where.NEXT, Where.BEYOND]


def test_only_its_own_life_is_heeded_in_an_epoch() -> None:
    for standing in (Standing.OTHER, Standing.OLDER):
        assert standing not in states.FENCE
        assert not any(at[0] is standing for at in (*states.ADMIT, *states.FRAME))


def test_every_ask_that_can_be_has_an_answer() -> None:
    """A store that has promised nothing knows nothing; no other pair is left out."""
    heeded = (Standing.FIRST, Standing.NEWER, Standing.OWN)
    possible = {
        (standing, memory)
        for standing, memory in itertools.product(heeded, Memory)
        if standing is not Standing.FIRST or memory is Memory.NOTHING
    }
    assert set(states.ADMIT) == possible
    assert set(states.FRAME) == {(*pair, at) for pair in possible for at in Where}


def test_a_store_that_forgot_is_never_admitted_without_its_promise() -> None:
    for (standing, memory), deed in states.ADMIT.items():
        if memory is Memory.NOTHING and standing is not Standing.OWN:
            assert deed is Deed.FORGOT


def test_only_what_is_admitted_appends_and_only_the_next() -> None:
    appending = {at for at, deed in states.FRAME.items() if deed is Deed.APPEND}
    assert appending == {(Standing.OWN, Memory.ADMITTED, Where.NEXT)}


def test_a_source_sends_only_after_it_looked_fenced_and_admitted() -> None:
    at = SourceState.LOOKING
    for finding in (Finding.ANSWERED, Finding.PROMISED, Finding.ADMITTED):
        at = states.SOURCE[at, finding]
    assert at is SourceState.SENDING
    into = {before for (before, _), after in states.SOURCE.items() if after is SourceState.SENDING}
    assert into == {SourceState.ADMITTING, SourceState.STARVED}


def test_a_fenced_source_stays_so() -> None:
    assert not any(state is SourceState.FENCED for state, _ in states.SOURCE)
    for state in SourceState:
        if state is not SourceState.FENCED:
            assert states.SOURCE[state, Finding.SUCCEEDED] is SourceState.FENCED


def test_the_greatest_admission_is_chosen_before_the_longest_log() -> None:
    log = choose(ABC, {"a": has(1, 9), "b": has(2, 5), "c": has(2, 4)})
    assert isinstance(log, Log)
    assert (log.admitted, log.end, log.lists) == (2, 5, (ABC,))


def test_a_store_that_holds_nothing_says_nothing() -> None:
    rest = Acceptance(end=0, below=9, epoch=1, stores=frozenset("bc"))
    assert choose(ABC, {"a": has(1, 9), "b": NEW}) == Insufficient(
        forgot=frozenset("b"), silent=frozenset("c"), rest=rest
    )
    assert choose(ABC, {"a": has(1, 9), "b": NEW, "c": NEW}) == Insufficient(
        forgot=frozenset("bc"), silent=frozenset(), rest=rest
    )


def test_those_that_promised_are_a_stable_set_though_fewer_hold_the_stream() -> None:
    abcd = listed("a b c d")
    of_four = Promised(bridge=bridge(1, abcd), end=9)
    assert isinstance(choose(abcd, {"a": of_four, "b": of_four}), Insufficient)
    assert isinstance(choose(abcd, {"a": of_four, "b": of_four, "c": NEW}), Log)


def test_who_answered_before_it_was_filled_is_asked_anew() -> None:
    told = Promised(bridge=structs.replace(bridge(4), fillings=(("a", 3), ("b", 4))), end=9)
    assert outdated({}, told) == {"a", "b"}
    assert outdated({"a": 3, "b": 2}, told) == {"b"}
    assert outdated({"a": 3, "b": 5}, told) == set()
    assert outdated({}, NEW) == set()
    assert fillings({"b": 4, "a": 3}, 5, ["c", "a"]) == (("a", 5), ("b", 4), ("c", 5))


def test_who_may_have_forgotten_is_filled_when_a_recover_set_of_others_is_admitted() -> None:
    log = Log(admitted=2, end=6, lists=(ABC,), firsts=((1, 0), (2, 3)), positions={})
    of_c = structs.replace(bridge(4), fillings=(("a", 3), ("c", 4)))
    assert may_fill(log, of_c, {"a", "b"})
    assert not may_fill(log, of_c, {"a", "c"}), "it does not count for itself"
    new = Log(admitted=0, end=0, lists=(ABC,), firsts=(), positions={})
    assert may_fill(new, bridge(4), set())


def test_a_new_stream_needs_every_store_of_every_list_seen() -> None:
    assert isinstance(choose(ABC, {"a": NEW, "b": NEW}), Insufficient)
    assert isinstance(choose(ABC, {"a": NEW, "b": NEW, "c": NEW}), Log)
    hinted = Promised(hints=(ABD,))
    answers = {"a": hinted, "b": NEW, "c": NEW}
    assert seen(ABC, answers.values()) == (ABC, ABD)
    assert isinstance(choose(ABC, answers), Insufficient)
    assert isinstance(choose(ABC, {**answers, "d": NEW}), Log)


def test_a_creation_that_was_not_settled_is_begun_anew() -> None:
    begun = Promised(bridge=bridge(1, stage=Stage.CREATING))
    log = choose(ABC, {"a": begun, "b": begun, "c": NEW})
    assert isinstance(log, Log)
    assert log.admitted == 0


def test_a_store_that_was_to_create_what_others_have_settled_holds_it() -> None:
    begun = Promised(bridge=bridge(1, stage=Stage.CREATING))
    answers = {"a": has(1, 0), "b": begun, "c": NEW}
    assert set(holders(answers)) == {"a", "b"}
    assert isinstance(choose(ABC, answers), Log)
    later = {
        "a": has(2, 0, bridge=Bridge(epoch=2, stage=Stage.SETTLED, lists=(ABC,), firsts=((2, 0),)))
    }
    assert set(holders({**later, "b": begun})) == {"a"}, "another creation says nothing"


def test_while_a_change_is_joint_the_old_list_is_enough() -> None:
    joint = Promised(bridge=bridge(2, ABC, ABD, stage=Stage.JOINT), end=3)
    log = choose(ABC, {"b": joint, "c": has(1, 3)})
    assert isinstance(log, Log)
    assert log.lists == (ABC,)


def test_once_it_settles_both_lists_are_needed_and_then_the_new_one() -> None:
    settling = Promised(bridge=bridge(2, ABC, ABD, stage=Stage.SETTLING), end=3)
    assert isinstance(choose(ABC, {"c": settling, "b": has(1, 3)}), Insufficient)
    log = choose(ABC, {"c": settling, "b": has(1, 3), "d": settling})
    assert isinstance(log, Log)
    assert log.lists == (ABC, ABD)
    settled = Promised(bridge=bridge(2, ABD), end=3)
    log = choose(ABC, {"a": settled, "d": settling})
    assert isinstance(log, Log)
    assert log.lists == (ABD,)


def test_a_damaged_log_counts_only_if_it_never_had_more_than_the_chosen_one() -> None:
    damaged = has(2, 8, stable=2, whole=False)
    assert isinstance(choose(ABC, {"a": damaged, "b": has(2, 5)}), Insufficient)
    log = choose(ABC, {"a": damaged, "b": has(2, 8)})
    assert isinstance(log, Log)
    assert log.end == 8
    assert isinstance(choose(ABC, {"a": damaged, "b": damaged}), Insufficient)


def test_what_a_store_keeps_of_its_own() -> None:
    log = Log(admitted=2, end=6, lists=(ABC,), firsts=((1, 0), (2, 3)), positions={})
    same = bridge(2, first=3)
    assert kept_below(Promised(bridge=same, end=9, stable=1), log) == 6, "all that the log has"
    assert kept_below(Promised(bridge=same, end=4, stable=1), log) == 4
    assert kept_below(has(1, 9, stable=2), log) == 3, "what is of the same epochs"
    assert kept_below(has(1, 9, stable=5), log) == 5, "what is stable is the same in any case"
    other = Bridge(epoch=3, stage=Stage.SETTLED, lists=(ABC,), firsts=((3, 0),))
    assert kept_below(Promised(bridge=other, end=9, stable=1), log) == 1
    damaged = Promised(bridge=same, end=9, stable=1, whole=False)
    assert kept_below(damaged, log) == 1, "of a damaged log what is stable"
    assert kept_below(NEW, log) == 0


def test_the_epochs_of_a_log() -> None:
    firsts = chained(chained(chained(((1, 0),), 2, 5), 3, 5), 7, 9)
    assert firsts == ((1, 0), (3, 5), (7, 9)), "nothing was sent in epoch 2"
    assert [epoch_at(firsts, n) for n in (0, 4, 5, 8, 9, 99)] == [1, 1, 3, 3, 7, 7]
    assert chained(((1, 0),), 4, 0) == ((1, 0), (4, 0)), "who created it stays known"


def test_two_logs_agree_up_to_their_first_different_epoch() -> None:
    assert agreed_below(((1, 0), (3, 5)), ((1, 0), (3, 5), (4, 9))) == 9
    assert agreed_below(((1, 0), (2, 4)), ((1, 0), (3, 5))) == 4
    assert agreed_below(((1, 0), (2, 5)), ((1, 0), (2, 5))) is None
    assert agreed_below(((1, 0),), ((2, 0),)) == 0


def test_positions_are_merged_and_the_least_counts() -> None:
    known = [{"r": 3, "s": 9}, {"r": 5}, {}]
    assert merged(known) == {"r": 5, "s": 9}
    assert acknowledged_below(known, 20) == 5
    assert acknowledged_below([{}], 20) == 20
    assert acknowledged_below([{"r": 50}], 20) == 20


@pytest.mark.parametrize(
    ("epoch", "begin", "end", "first"),
    [
        (1, 0, 10, 5),
        (2, 0, 10, 7),
        (3, 0, 10, None),
        (1, 0, 5, None),
        (1, 0, 6, 5),
        (2, 0, 7, None),
        (1, 6, 10, 6),
        (1, 9, 9, None),
    ],
)
def test_after_two_rollbacks_the_first_number_counts(
    epoch: int, begin: int, end: int, first: int | None
) -> None:
    """Epoch 2 began at 5, epoch 3 at 7: who slept through both saw 5 in vain, not 7.

    A life that began at 6 has not seen 5.
    """
    firsts = ((1, 0), (2, 5), (3, 7))
    assert rolled_back(firsts, epoch=epoch, begin=begin, end=end) == first


def test_what_was_told_as_lost_was_not_seen_in_vain() -> None:
    assert in_vain(3, 6, []) == (3, 6)
    assert in_vain(3, 6, [(0, 4)]) == (4, 6)
    assert in_vain(3, 6, [(4, 5)]) == (3, 6), "the outermost ones that it saw"
    assert in_vain(3, 6, [(1, 4), (4, 9)]) is None


def test_of_one_epoch_a_receiver_goes_by_the_lists_of_the_last_stage() -> None:
    """Whatever order it hears of them in: a store that is behind tells it nothing new."""
    order = [(2, Stage.SETTLED), (3, Stage.JOINT), (3, Stage.SETTLING), (3, Stage.SETTLED)]
    for told, known in itertools.product(order, repeat=2):
        assert replaces(told, known) is (order.index(told) > order.index(known))
