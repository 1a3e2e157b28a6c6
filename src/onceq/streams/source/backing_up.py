"""Which backups take the places of stores that do not answer. Pure.

A backup belongs to a group of the list. When a store of the group has not answered for a while, a
list is wanted that has the backup in its place: a change of lists, so that the backup counts when
it has all that is stable. The store that it replaced is a backup from then on. Source: UM, "Sources
Using Quorum/Consensus Store Configuration"; spec M31.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from onceq.errors import InvalidValue
from onceq.streams.model.quorum import StoreList, listed


class Backups:
    """The backups of each group, the next one first. text: as of a list, group by group.

    after_s: how long a store does not answer before one takes its place, and before another is
    tried when that could not. Raises InvalidValue for more groups than the list has, and for
    backups that are in it.
    """

    def __init__(self, text: str, own: StoreList, after_s: float) -> None:
        spare = listed(text).groups if text.strip() else ()
        twice = sorted({store for group in spare for store in group} & own.stores)
        if len(spare) > len(own.groups) or twice:
            raise InvalidValue(
                f"the backups {text!r} do not fit the list {own.text()!r}: give stores that are not"
                ' in it, for each of its groups in turn, and ";" between groups'
            )
        self._spare = [list(group) for group in spare]
        self._after_s = after_s
        self._from_s = 0.0
        self._since_s: dict[str, float] = {}

    def look(self, own: StoreList, silent: AbstractSet[str], now_s: float) -> StoreList | None:
        """Return the list that is to be; None: that which is. silent: stores that do not answer."""
        self._since_s = {store: self._since_s.get(store, now_s) for store in sorted(silent)}
        late = {store for store, at_s in self._since_s.items() if now_s - at_s >= self._after_s}
        if now_s < self._from_s or not late & own.stores:
            return None
        groups = list(own.groups)
        for index, spare in enumerate(self._spare[: len(groups)]):
            groups[index] = _filled(groups[index], spare, late, own)
        wanted = replace(own, groups=tuple(groups))
        if wanted == own:
            return None
        self._from_s = now_s + self._after_s
        return wanted


def _filled(
    group: tuple[str, ...], spare: list[str], late: AbstractSet[str], own: StoreList
) -> tuple[str, ...]:
    """Return a group with backups in the places of late stores; both are backups for next time."""
    filled: list[str] = []
    for store in group:
        found = next((one for one in spare if one not in {*own.stores, *filled, *late}), None)
        if store in late and found is not None:
            spare.remove(found)
            spare += [found] if store in spare else [found, store]
            filled.append(found)
        else:
            filled.append(store)
    return tuple(filled)
