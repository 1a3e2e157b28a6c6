"""The Program by which a store is admitted, with its Ops answered by the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import Frame, FrameKind, body_of, encode
from onceq.streams.model.ops import AskStore, FetchRange
from onceq.streams.model.quorum import listed
from onceq.streams.store.catalogue import Needs
from onceq.streams.store.program import TRIES, Keep, Perform, admit

if TYPE_CHECKING:
    from collections.abc import Mapping

ABC = listed("a b c")
FIRSTS = ((1, 0), (3, 4))
ASK = asks.Admit(
    stream=7,
    life=5,
    log=Log(admitted=3, end=6, lists=(ABC,), firsts=FIRSTS, positions={}),
    bridge=Bridge(epoch=4, stage=Stage.SETTLED, lists=(ABC,), firsts=(*FIRSTS, (4, 6))),
    donors=("a", "b"),
)
HOLDING = asks.Holding(epoch=4, end=6)


def data_of(number: int, epoch: int | None = None) -> bytes:
    made = (1 if number < 4 else 3) if epoch is None else epoch
    return encode(
        Frame(
            kind=FrameKind.MESSAGES,
            stream=7,
            epoch=made,
            number=number,
            stable=0,
            count=1,
            body=body_of([b"m"]),
        )
    )


def run(
    begin: int, has: Mapping[str, Mapping[int, bytes]], *, needed: int = 1, ask: asks.Admit = ASK
) -> tuple[asks.Answer, list[tuple[bytes, ...]], list[str]]:
    """Run the Program of a store; return its answer, what it performed, and whom it asked."""
    program = admit(ask)
    performed: list[tuple[bytes, ...]] = []
    asked: list[str] = []
    kept: list[bytes] = []
    answer: Any = None
    try:
        op = next(program)
        while True:
            match op:
                case Keep(copies=copies):
                    kept += copies
                    answer = None
                case Perform(copied=copied):
                    assert not copied or kept
                    performed.append(tuple(kept))
                    kept = []
                    lacks = Needs(begin=begin, end=6, firsts=FIRSTS)
                    answer = HOLDING if len(performed) > needed else lacks
                case FetchRange(store=store, ask=wanted):
                    asked.append(store)
                    frames = has.get(store)
                    answer = None
                    if frames is not None:
                        numbers = sorted(n for n in frames if wanted.begin <= n < wanted.end)
                        answer = tuple(frames[n] for n in numbers)
                case AskStore(store=store, ask=wanted):
                    frames = has.get(store)
                    begin_at = 5 if frames else wanted.end  # who has something has the last
                    answer = None if frames is None else asks.Range(begin=begin_at, end=6)
                case _:
                    raise AssertionError(op)
            op = program.send(answer)
    except StopIteration as end:
        return end.value, performed, asked


WHOLE = {n: data_of(n) for n in range(6)}


def test_a_store_that_lacks_nothing_asks_nobody() -> None:
    assert run(0, {}, needed=0) == (HOLDING, [()], [])


def test_it_copies_what_it_lacks_from_the_first_that_has_it() -> None:
    answer, performed, asked = run(2, {"a": WHOLE, "b": WHOLE})
    assert answer == HOLDING
    assert performed[-1] == tuple(data_of(n) for n in range(2, 6))
    assert asked == ["a"]


def test_it_puts_together_what_several_have() -> None:
    some = {n: WHOLE[n] for n in (0, 1, 2, 3)}
    rest = {n: WHOLE[n] for n in (4, 5)}
    answer, performed, asked = run(2, {"a": some, "b": {**rest}})
    assert answer == HOLDING
    assert performed[-1] == tuple(data_of(n) for n in range(2, 6))
    assert asked == ["a", "a", "b"]


def test_it_takes_nothing_of_another_epoch() -> None:
    wrong = {**WHOLE, 4: data_of(4, 1), 5: data_of(5, 1)}
    assert run(2, {"a": wrong})[0] == asks.Lacking(begin=2, end=6)
    answer, performed, _ = run(2, {"a": wrong, "b": WHOLE})
    assert answer == HOLDING
    assert performed[-1] == tuple(data_of(n) for n in range(2, 6))


def test_what_all_have_trimmed_is_left_out() -> None:
    trimmed = {n: WHOLE[n] for n in (4, 5)}
    less = {n: WHOLE[n] for n in (3, 4, 5)}
    answer, performed, _ = run(2, {"a": trimmed, "b": less})
    assert answer == HOLDING
    assert performed[-1] == tuple(data_of(n) for n in (3, 4, 5))


def test_if_all_of_it_is_trimmed_nothing_is_copied() -> None:
    answer, performed, _ = run(2, {"a": {}, "b": {}})
    assert (answer, performed) == (HOLDING, [(), ()])
    assert run(2, {"a": {}})[0] == HOLDING, "nobody waits for what b alone may have"
    five = replace(ASK.bridge, lists=(listed("a b c d e"),))
    many = replace(ASK, bridge=five, donors=("a", "b", "c", "d"))
    assert run(2, {"a": {}}, ask=many)[0] == asks.Lacking(begin=2, end=6)
    behind = {n: WHOLE[n] for n in (0, 1)}
    assert run(2, {"a": {}, "b": behind})[0] == asks.Lacking(begin=2, end=6), "it may have it yet"


def test_what_was_copied_before_is_left_if_others_have_trimmed_what_follows_it() -> None:
    program = admit(ASK)
    next(program)
    fetch = program.send(Needs(begin=0, end=6, firsts=FIRSTS, copied=range(2)))
    asked: list[int] = []
    while not isinstance(fetch, Keep):
        assert isinstance(fetch, FetchRange)
        asked.append(fetch.ask.begin)
        fetch = program.send((WHOLE[4], WHOLE[5]))
    assert asked == [2, 2], "each donor"
    assert fetch == Keep(ask=ASK, copies=(WHOLE[4], WHOLE[5]))
    assert program.send(None) == Perform(ask=ASK, copied=range(4, 6))


def test_what_one_who_is_behind_gives_is_left_if_others_have_trimmed_what_follows_it() -> None:
    trimmed = {n: WHOLE[n] for n in (4, 5)}
    answer, performed, _ = run(0, {"a": trimmed, "b": {n: WHOLE[n] for n in (0, 1)}})
    assert answer == HOLDING
    assert performed[-1][-2:] == (WHOLE[4], WHOLE[5])


def test_what_some_have_trimmed_is_not_left_out_while_others_may_have_it() -> None:
    trimmed = {n: WHOLE[n] for n in (4, 5)}
    assert run(2, {"a": trimmed})[0] == HOLDING, "nobody waits for what b alone may have"
    five = replace(ASK.bridge, lists=(listed("a b c d e"),))
    many = replace(ASK, bridge=five, donors=("a", "b", "c", "d"))
    assert run(2, {"a": trimmed}, ask=many)[0] == asks.Lacking(begin=2, end=6)
    assert run(2, {"a": trimmed, "d": trimmed}, ask=many)[0] == HOLDING
    assert run(2, {"a": trimmed, "d": WHOLE}, ask=many)[1][-1][0] == data_of(2)


def test_a_hole_in_the_middle_is_not_left_out() -> None:
    holed = {n: WHOLE[n] for n in (2, 3, 5)}
    assert run(2, {"a": holed, "b": holed})[0] == asks.Lacking(begin=2, end=6)


def test_who_is_silent_is_passed_over() -> None:
    assert run(2, {"b": WHOLE})[0] == HOLDING
    assert run(2, {})[0] == asks.Lacking(begin=2, end=6)


def test_it_does_not_try_for_ever() -> None:
    answer, performed, _ = run(2, {"a": WHOLE}, needed=99)
    assert answer == asks.Lacking(begin=2, end=6)
    assert len(performed) == TRIES


def test_copies_that_cannot_be_kept_end_it() -> None:
    program = admit(ASK)
    next(program)
    fetch = program.send(Needs(begin=2, end=6, firsts=FIRSTS))
    assert isinstance(fetch, FetchRange)
    keep = program.send(tuple(WHOLE[n] for n in range(2, 4)))
    assert keep == Keep(ask=ASK, copies=(WHOLE[2], WHOLE[3])), "a range at a time"
    with pytest.raises(StopIteration) as stop:
        program.send(asks.Full(end=2))
    assert stop.value.value == asks.Full(end=2)
