"""Damage in a log is found by reading it again, slowly, and is healed from other stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq.streams.model.frames import decode
from onceq.streams.model.ops import FetchRange, WaitUntil
from onceq.streams.store import scrubbing
from onceq.streams.store.healing import (
    ROUND_S,
    SCRUB_BYTES_S,
    Harmed,
    LookOn,
    Mend,
    heal,
    ranges,
    scrub,
)
from onceq.streams.store.scrubbing import Scrubbing
from tests.streams.store.test_disk_store import S, again, begin, data_of, home, send, store
from tests.streams.store.test_index import trim

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from onceq.model.ops.base import Program
    from onceq.streams.store.disk_store import DiskStore

__all__ = ["home", "store"]  # fixtures
COUNT = 120


def driven(program: Program[Any], answer: Callable[[Any], Any]) -> Any:
    """Run a Program to its end; return what it returns."""
    try:
        op = next(program)
        while True:
            op = program.send(answer(op))
    except StopIteration as stop:
        return stop.value


def text(number: int) -> bytes:
    return b"text %03d" % number


def filled(store: DiskStore) -> None:
    begin(store, 1)
    for n in range(COUNT):
        send(store, data_of(1, n, text(n)))


def flip(store: DiskStore, number: int) -> None:
    """Flip a bit of a message, wherever it is."""
    wanted = data_of(1, number, text(number))
    for segment in store.files.numbers():
        path = store.files.path(segment)
        data = bytearray(path.read_bytes())
        at = data.find(wanted)
        if at >= 0:
            data[at + len(wanted) - 1] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError(number)


class Others:
    """Answers the Ops of a store's scrubbing; each other store has some frames."""

    def __init__(self, store: DiskStore, has: Mapping[str, set[int]]) -> None:
        self.store = store
        self.scrubbing = Scrubbing(store, "a")
        self.has = has
        self.asked: list[tuple[str, int, int]] = []
        self.now_s = 0.0
        self.read_bytes = 0

    def answer(self, op: Any) -> Any:
        match op:
            case LookOn():
                looked = self.scrubbing.step()
                self.read_bytes += looked.size
                return looked
            case FetchRange(store=name, ask=ask):
                self.asked.append((name, ask.begin, ask.end))
                if name not in self.has:
                    return None
                have = sorted(n for n in self.has[name] if ask.begin <= n < ask.end)
                return tuple(data_of(1, n, text(n)) for n in have[:2])
            case Mend(stream=stream, data=data):
                return self.store.repair(stream, data)
            case WaitUntil(within_s=within_s):
                self.now_s += within_s
                return None
            case _:
                raise AssertionError(op)

    def run(self, rounds: int) -> None:
        program = scrub()
        op = next(program)
        while self.scrubbing.rounds < rounds:
            op = program.send(self.answer(op))
        program.close()


def test_damage_is_found_and_healed_from_whoever_has_it(store: DiskStore, home: Path) -> None:
    filled(store)
    for n in (1, 2, 3, 50, 51, 99):
        flip(store, n)
    others = Others(store, {"b": {1, 2, 50}, "c": set(range(COUNT)) - {99}})
    others.run(1)
    assert store.catalogue.of(S).damaged == (99,)
    assert {name for name, _, _ in others.asked} == {"b", "c"}, "not itself"
    store.log.commit()
    expected = [data_of(1, n, text(n)) for n in range(COUNT)]
    assert list(store.read(S, range(COUNT))) == expected[:99]
    others.has = {"c": {99}}
    others.run(3)
    assert store.catalogue.of(S).damaged == ()
    store.log.commit()
    assert list(store.read(S, range(COUNT))) == expected
    store = again(store, home)
    assert list(store.read(S, range(COUNT))) == expected
    store.close()


def test_it_reads_no_more_in_a_second_than_it_may(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "PIECE_BYTES", 500)
    filled(store)
    others = Others(store, {})
    others.run(4)
    assert others.read_bytes > 3 * COUNT * len(data_of(1, 0, text(0)))
    rests = 3 * ROUND_S
    assert others.now_s - rests == pytest.approx(others.read_bytes / SCRUB_BYTES_S, rel=0.1)


def test_a_segment_that_is_freed_meanwhile_is_passed_over(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "PIECE_BYTES", 500)
    filled(store)
    one = Scrubbing(store, "a")
    one.step()
    one.step()
    trim(store, COUNT - 1)
    assert store.reclaim()
    while one.rounds < 2:
        assert one.step().harmed == ()


def test_an_empty_log_has_no_damage(store: DiskStore) -> None:
    one = Scrubbing(store, "a")
    for _ in range(3):
        assert one.step().harmed == ()


@pytest.mark.parametrize("harm", ["cut short", "zeros", "no head", "gone"])
def test_whatever_becomes_of_a_sealed_segment_its_numbers_are_known(
    store: DiskStore, home: Path, harm: str
) -> None:
    filled(store)
    held = store.catalogue.of(S)
    (run,) = store.index.in_segment(1)[held.local]
    path = store.files.path(1)
    data = path.read_bytes()
    cut = {"cut short": data[:200], "zeros": data[:200].ljust(len(data), b"\0")}
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(cut.get(harm, b"\1" * 64 + data[64:]))
    store = again(store, home)
    Others(store, {}).run(2)
    damaged = ranges(store.catalogue.of(S).damaged)
    assert [one.stop for one in damaged] == [run.end]
    assert run.begin <= damaged[0].start < run.end
    assert [decode(one).number for one in store.read(S, range(COUNT))] == [*range(damaged[0].start)]
    Others(store, {"c": set(range(COUNT))}).run(2)
    store.log.commit()
    assert [decode(one).number for one in store.read(S, range(COUNT))] == [*range(COUNT)]
    store.close()


def test_a_segment_that_somebody_removed_is_fetched_again(store: DiskStore) -> None:
    filled(store)
    held = store.catalogue.of(S)
    (run,) = store.index.in_segment(1)[held.local]
    store.files.path(1).unlink()
    assert [decode(one).number for one in store.read(S, range(COUNT))] == [*range(run.begin)]
    Others(store, {"c": set(range(COUNT))}).run(2)
    store.log.commit()
    assert [decode(one).number for one in store.read(S, range(COUNT))] == [*range(COUNT)]


def test_healing_asks_no_more_than_is_harmed_and_ends() -> None:
    program = heal(Harmed(stream=S, numbers=(3, 4, 5, 9), stores=("b", "c")))
    asked: list[tuple[str, int, int]] = []

    def answer(op: Any) -> Any:
        match op:
            case FetchRange(store=name, ask=ask):
                asked.append((name, ask.begin, ask.end))
                return (data_of(1, 3), data_of(1, 4)) if name == "c" else None
            case Mend(data=data):
                return decode(data).number == 3
            case _:
                raise AssertionError(op)

    assert driven(program, answer) == {4, 5, 9}
    assert asked == [("b", 3, 6), ("b", 9, 10), ("c", 3, 6), ("c", 4, 6), ("c", 9, 10)]
