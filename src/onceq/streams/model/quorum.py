"""Lists of stores, and which sets of stores suffice: to be stable, and to recover. Pure.

A list has groups of stores. A set of stores is a *stable set* if it satisfies the rule within
groups (a quorum of the group, or all of it), and then the rule between groups: in any group, in
all active ones, or in all. A set of stores that answered is a *recover set* if those that are
missing contain no stable set: then every stable set has a store that answered.

Sources: UM, "Sources Using Quorum/Consensus Store Configuration"; spec M30.
"""

from __future__ import annotations

import enum
from collections.abc import Container
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from onceq.errors import InvalidValue

STORES_MAX: Final = 64
"""Stores in one list, at most."""


class Intragroup(enum.StrEnum):
    """How many stores of a group must have what is stable in it."""

    QUORUM = "quorum"
    ALL = "all"


class Intergroup(enum.StrEnum):
    """In which groups it must be stable; `all_active`: in each that has a quorum responsive."""

    ANY = "any"
    ALL_ACTIVE = "all_active"
    ALL = "all"


class StoreList(msgspec.Struct, frozen=True, kw_only=True):
    """The stores of a stream, in groups, and the rules for what is stable among them.

    groups: addresses; none is in two groups. Made by `listed`, which checks that.
    """

    groups: tuple[tuple[str, ...], ...]
    intragroup: Intragroup = Intragroup.QUORUM
    intergroup: Intergroup = Intergroup.ANY

    @property
    def stores(self) -> frozenset[str]:
        """All stores of the list."""
        return frozenset(store for group in self.groups for store in group)

    def is_stable(
        self, holders: AbstractSet[str], responsive: AbstractSet[str] | None = None
    ) -> bool:
        """Whether these stores are a stable set.

        responsive: the stores that answer at present, which decide what groups are active; None:
        nobody knows, and a single group is enough, as `any`.
        """
        stable = [self._is_stable_in(group, holders) for group in self.groups]
        match self.intergroup:
            case Intergroup.ANY:
                return any(stable)
            case Intergroup.ALL:
                return all(stable)
            case Intergroup.ALL_ACTIVE:
                asked = [
                    is_stable
                    for group, is_stable in zip(self.groups, stable, strict=True)
                    if is_stable or _present(group, responsive or ()) >= _majority(group)
                ]
                return bool(asked) and all(asked)

    def recovers(self, answered: AbstractSet[str]) -> bool:
        """Whether these stores are a recover set: the missing ones contain no stable set.

        What was stable by `all_active` may be in any one group: it is read as `any`.
        """
        missing = self.stores - answered
        stable = [self._is_stable_in(group, missing) for group in self.groups]
        return not (all(stable) if self.intergroup is Intergroup.ALL else any(stable))

    def is_responsive(self, responsive: AbstractSet[str]) -> bool:
        """Whether a source may send: what these stores get would be stable."""
        return self.is_stable(responsive, responsive)

    def _is_stable_in(self, group: tuple[str, ...], holders: AbstractSet[str]) -> bool:
        needed = len(group) if self.intragroup is Intragroup.ALL else _majority(group)
        return _present(group, holders) >= needed

    def text(self) -> str:
        """Return the groups as `listed` reads them."""
        return "; ".join(" ".join(group) for group in self.groups)


def _majority(group: tuple[str, ...]) -> int:
    return len(group) // 2 + 1


def _present(group: tuple[str, ...], stores: Container[str]) -> int:
    return sum(store in stores for store in group)


def listed(
    text: str,
    *,
    intragroup: Intragroup = Intragroup.QUORUM,
    intergroup: Intergroup = Intergroup.ANY,
) -> StoreList:
    """Return the list of stores that a text names: separated by spaces, groups by ";".

    Raises InvalidValue if there is none, too many, an empty group, or a store twice.
    """
    groups = tuple(tuple(group.split()) for group in text.split(";"))
    stores = [store for group in groups for store in group]
    if not all(groups):
        raise InvalidValue(
            f"a group of {text!r} has no store: write addresses, separated by spaces, and"
            ' ";" between groups'
        )
    if twice := sorted({store for store in stores if stores.count(store) > 1}):
        raise InvalidValue(f"{twice[0]} is listed twice in {text!r}: a store counts once")
    if len(stores) > STORES_MAX:
        raise InvalidValue(f"{len(stores)} stores are listed; at most {STORES_MAX} can be")
    return StoreList(groups=groups, intragroup=intragroup, intergroup=intergroup)


def stores_of(lists: tuple[StoreList, ...]) -> frozenset[str]:
    """Return all stores of some lists."""
    return frozenset(store for one in lists for store in one.stores)


def are_stable(lists: tuple[StoreList, ...], holders: AbstractSet[str]) -> bool:
    """Whether these stores are a stable set of every one of some lists, at least of one."""
    return bool(lists) and all(one.is_stable(holders) for one in lists)


def are_recovered(lists: tuple[StoreList, ...], answered: AbstractSet[str]) -> bool:
    """Whether these stores are a recover set of every one of some lists, at least of one."""
    return bool(lists) and all(one.recovers(answered) for one in lists)
