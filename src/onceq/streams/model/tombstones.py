"""What counts of the positions that stores know, if some of them were deregistered since. Pure.

A store that was down while a receiver was deregistered has its old position still, and it must not
come back with it: neither keep anybody waiting, nor have the next receiver of that name begin
behind messages that it never got. So a deregistration leaves a **mark** by the key of the receiver,
and every registration after it a greater one. An odd mark is a tombstone; an even one is of a
receiver that is registered. A position counts only with the greatest mark of its key.

A tombstone counts when a stable set of stores has it: then whoever registers later has seen it. One
that fewer have may be of a deregistration that came to nothing, of which the receiver never heard.
Source: streams.md 5; spec M8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from onceq.streams.model.quorum import StoreList, are_stable

MARK_MAX: Final = 1 << 62
Mark: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MARK_MAX)]


class Positions(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of receivers, by their keys. below: what each has acknowledged.

    marks: those that are not 0.
    """

    below: Mapping[str, int] = {}
    marks: Mapping[str, int] = {}

    def mark(self, key: str) -> int:
        """Return the mark of a key; 0: it was never deregistered."""
        return self.marks.get(key, 0)


def is_tombstone(mark: int) -> bool:
    """Whether who has this mark is deregistered."""
    return mark % 2 == 1


def registered(mark: int) -> int:
    """Return the mark of a registration that follows what has this one."""
    return mark + mark % 2


def deregistered(mark: int) -> int:
    """Return the mark of a deregistration that follows what has this one."""
    return mark + 1 - mark % 2


def agreed(lists: tuple[StoreList, ...], of_stores: Mapping[str, Positions]) -> Positions:
    """Return what counts of what some stores know."""
    below: dict[str, int] = {}
    marks: dict[str, int] = {}
    keys = {key for one in of_stores.values() for key in (*one.below, *one.marks)}
    for key in sorted(keys):
        mark = _mark(lists, key, of_stores)
        if mark:
            marks[key] = mark
        its = [one.below for one in of_stores.values() if one.mark(key) == mark]
        known = [positions[key] for positions in its if key in positions]
        if known and not is_tombstone(mark):
            below[key] = max(known)
    return Positions(below=below, marks=marks)


def _mark(lists: tuple[StoreList, ...], key: str, of_stores: Mapping[str, Positions]) -> int:
    """Return the mark that counts: the greatest, but for a tombstone that too few stores have."""
    marks = {
        store: one.mark(key)
        for store, one in of_stores.items()
        if key in one.below or key in one.marks
    }
    greatest = max(marks.values())
    having = {store for store, mark in marks.items() if mark == greatest}
    alive = [mark for mark in marks.values() if not is_tombstone(mark)]
    if not is_tombstone(greatest) or not alive or are_stable(lists, having):
        return greatest
    return max(alive)


def joined(own: Positions, told: Positions) -> Positions:
    """Return what a store knows that is told what counts elsewhere."""
    below: dict[str, int] = {}
    marks: dict[str, int] = {}
    for key in {*own.below, *own.marks, *told.below, *told.marks}:
        mark = max(own.mark(key), told.mark(key))
        if mark:
            marks[key] = mark
        known = [
            one.below[key] for one in (own, told) if one.mark(key) == mark and key in one.below
        ]
        if known and not is_tombstone(mark):
            below[key] = max(known)
    return Positions(below=below, marks=marks)
