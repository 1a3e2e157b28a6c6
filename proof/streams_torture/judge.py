"""Judges what processes noted, and what stores have at the end.

What a source was told to be stable keeps its sender; a quorum of the stores has it; whoever was
shown something was shown it in order, and nothing was left out; the last life of each receiver has
seen what the stores have, or other lives had.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onceq.streams.model.frames import decode
from onceq.streams.store.disk_store import DiskStore
from proof.streams_torture import notes

QUORUM: Final = 2
SHOWN_MAX: Final = 20


class Senders:
    """Which life has sent which numbers: ranges, ascending, none of which overlaps another."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int, life: int) -> tuple[int, int] | None:
        """Note numbers of a life; return one that another has, and which, if there is one."""
        for number, its in self.of(first, last):
            if its not in {0, life}:
                return number, its
        begin = first
        for known, end, _ in list(self):
            if known <= last and end >= begin:
                self._put(begin, known - 1, life)
                begin = end + 1
        self._put(begin, last, life)
        return None

    def _put(self, first: int, last: int, life: int) -> None:
        if first > last:
            return
        at = bisect_right(self._firsts, first)
        if at and self._ranges[at - 1] == (first - 1, life):
            self._ranges[at - 1] = (last, life)
        else:
            self._firsts.insert(at, first)
            self._ranges.insert(at, (last, life))

    def of(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield where another life begins between two numbers, and which; 0: nobody is known."""
        number = first
        while number <= last:
            at = bisect_right(self._firsts, number)
            end, life = self._ranges[at - 1] if at else (-1, 0)
            if end >= number:
                yield number, life
                number = end + 1
            else:
                yield number, 0
                number = self._firsts[at] if at < len(self._firsts) else last + 1

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for first, (last, life) in zip(self._firsts, self._ranges, strict=True):
            yield first, last, life

    @property
    def end(self) -> int:
        """The number behind the last."""
        return self._ranges[-1][0] + 1 if self._ranges else 0


@dataclass(slots=True)
class Kept:
    """What a store has at the end. begin: it has given up what lies before."""

    name: str
    begin: int
    senders: Senders


@dataclass(slots=True)
class Judged:
    """What was found. wrong: each in words."""

    messages: int = 0
    delivered: int = 0
    stable: int = 0
    did: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


def kept(name: str, place: Path) -> Kept:
    """Read the log of a store that has ended."""
    store = DiskStore(place, os.urandom)
    try:
        held = max(store.catalogue.streams.values(), key=lambda one: one.end, default=None)
        if held is None:
            return Kept(name=name, begin=0, senders=Senders())
        found = Kept(name=name, begin=held.begin, senders=Senders())
        for data in store.read(held.stream, range(held.begin, held.end)):
            frame = decode(data)
            run: tuple[int, int, int] | None = None
            for number, body in enumerate(frame.messages(), frame.number):
                life = notes.sender_of(bytes(body), number)
                if run is not None and run[2] == life:
                    run = (run[0], number, life)
                else:
                    _put(found.senders, run)
                    run = (number, number, life)
            _put(found.senders, run)
        return found
    finally:
        store.close()


def _put(senders: Senders, run: tuple[int, int, int] | None) -> None:
    if run is not None:
        senders.add(*run)


@dataclass(slots=True)
class Followed:
    """What the lives of a receiver have been shown. covered: all below, by some life.

    expected: the number that comes next in this life; None: it may begin anywhere.
    """

    covered: int = 0
    expected: int | None = None
    seen: Senders = field(default_factory=Senders)

    def go_back(self, first: int) -> None:
        """Note that what was shown from a number on was in vain."""
        self.expected, self.covered = first, min(self.covered, first)


class Judge:
    """Takes the notes of all, then what stores have."""

    def __init__(self) -> None:
        self.found = Judged()
        self.stable = Senders()
        self._lives: dict[int, int] = {}

    def _wrong(self, text: str) -> None:
        self.found.wrong.append(text)

    def source(self, paths: Iterable[Path]) -> None:
        """Take the notes of all lives of the source."""
        for path in paths:
            for note in notes.read(path):
                self.found.did[type(note).__name__] += 1
                match note:
                    case notes.Began(life=life, epoch=epoch):
                        if self._lives.setdefault(epoch, life) != life:
                            self._wrong(f"the epoch {epoch} is of two lives")
                    case notes.StableTold(life=life, first=first, last=last):
                        other = self.stable.add(first, last, life)
                        if other is not None:
                            self._wrong(f"{other[0]} is stable of {life}, and was of {other[1]}")
                    case _:
                        pass
        self.found.stable = self.stable.end

    def stores(self, all_kept: Iterable[Kept]) -> Kept:
        """Take what all stores have; return what the one has that has the most."""
        having = list(all_kept)
        for first, last, life in self.stable:
            for number, _ in self.stable.of(first, last):
                holders = [one for one in having if self._has(one, number, last, life)]
                if len(holders) < QUORUM:
                    names = [one.name for one in holders]
                    self._wrong(f"{number} to {last} of {life} is stable, and at {names} only")
        longest = max(having, key=lambda one: one.senders.end)
        self.found.messages = longest.senders.end
        return longest

    def _has(self, one: Kept, first: int, last: int, life: int) -> bool:
        if last < one.begin:
            return True
        return {its for _, its in one.senders.of(max(first, one.begin), last)} == {life}

    def receiver(self, name: str, paths: Iterable[Path], end: Kept) -> None:
        """Take the notes of all lives of a receiver, in their order."""
        followed = Followed()
        for path in paths:
            followed.expected = None
            for note in _shown(path):
                self.found.did[f"{type(note).__name__} to receivers"] += 1
                match note:
                    case notes.Delivered():
                        self._sent(name, note)
                        self._came(f"{name} ({path.name})", note, followed)
                    case notes.RolledBack(first=first):
                        followed.go_back(first)
                    case notes.Lost(first=first, last=last, why=why):
                        self._wrong(f"{name} ({path.name}) lost {first} to {last}: {why}")
                        followed.expected = last + 1
                    case _:
                        pass
        if followed.covered < end.senders.end:
            text = f"{name} was shown all below {followed.covered}"
            self._wrong(f"{text}, and stores have {end.senders.end}")
        self._agrees(name, followed.seen, end)

    def _came(self, who: str, note: notes.Delivered, followed: Followed) -> None:
        if followed.expected is not None and note.first != followed.expected:
            self._wrong(f"{who}: {note.first} came, not {followed.expected}")
        if followed.expected is None and note.first > followed.covered:
            self._wrong(f"{who} begins at {note.first}, not {followed.covered}")
        self.found.delivered += note.last + 1 - note.first
        followed.expected = note.last + 1
        followed.covered = max(followed.covered, note.last + 1)
        followed.seen = _over(followed.seen, note)

    def _sent(self, name: str, note: notes.Delivered) -> None:
        if self._lives.get(note.epoch) != note.life:
            self._wrong(
                f"{name} was shown {note}, and the epoch is of {self._lives.get(note.epoch)}"
            )

    def _agrees(self, name: str, seen: Senders, end: Kept) -> None:
        """What was shown last of each number is what stores have, or what was stable."""
        for known in (end.senders, self.stable):
            for first, last, life in known:
                for number, its in seen.of(first, last):
                    if its != life:
                        self._wrong(f"{name} was shown {number} of {its}, and it is of {life}")
                        return


def _over(seen: Senders, note: notes.Delivered) -> Senders:
    """Return what was shown, with what was shown later in its place."""
    if seen.add(note.first, note.last, note.life) is None:
        return seen
    made = Senders()
    for first, last, life in seen:
        if first < note.first:
            made.add(first, min(last, note.first - 1), life)
    made.add(note.first, note.last, note.life)
    return made


def _shown(path: Path) -> list[notes.Noted]:
    """Return what a life was shown; what it was shown last is in a file of its own."""
    found = list(notes.read(path)) if path.exists() else []
    run = path.with_suffix(".run")
    last = notes.run_of(run) if run.exists() else None
    if last is not None and (not found or found[-1] != last):
        found.append(last)
    return found


def judged(
    stores: Mapping[str, Path], sources: Iterable[Path], receivers: Mapping[str, list[Path]]
) -> Judged:
    """Judge a run whose processes have all ended."""
    judge = Judge()
    judge.source(path for path in sources if path.exists())
    end = judge.stores([kept(name, place) for name, place in stores.items()])
    for name, paths in receivers.items():
        judge.receiver(name, paths, end)
    del judge.found.wrong[SHOWN_MAX:]
    return judge.found
