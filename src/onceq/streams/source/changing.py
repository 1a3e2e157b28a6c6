"""A change of lists: when one may begin, and how far it has come. Pure. Source: streams.md 5."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from onceq.streams.model.choice import Bridge, Stage
from onceq.streams.model.quorum import StoreList, are_stable
from onceq.streams.source.backing_up import Backups
from onceq.streams.source.epochs import Timing


class Wish:
    """The list that a source wants, and from when on a change to it may begin. wanted: None: none.

    It is wanted until it alone counts: when an epoch ends before that, the next begins the change
    again. One that could not begin is tried again in a while, and then in a longer one. backups:
    take the places of stores that do not answer, while the application wants no other list. Raises
    InvalidValue for backups that do not fit.
    """

    def __init__(self, wanted: StoreList, timing: Timing, backups: str = "") -> None:
        self.wanted: StoreList | None = wanted
        self._backups = Backups(backups, wanted, timing.backup_s)
        self._backed_up: StoreList | None = None
        self._timing = timing
        self._from_s = 0.0
        self._rest_s = timing.interval_s

    def want(self, own: StoreList, now_s: float) -> None:
        """Note what the application wants."""
        self.wanted, self._from_s, self._rest_s = own, now_s, self._timing.interval_s

    def look(self, own: StoreList, silent: AbstractSet[str], now_s: float) -> None:
        """Want a list with backups in the places of stores that do not answer."""
        if self.wanted in {None, own, self._backed_up}:
            wanted = self._backups.look(own, silent, now_s)
            if wanted is not None:
                self._backed_up = wanted
                self.want(wanted, now_s)

    def follow(self, lists: tuple[StoreList, ...]) -> None:
        """Note by which lists the source counts."""
        if lists == (self.wanted,):
            self.wanted = None

    def put_off(self, now_s: float) -> None:
        """Note that an epoch has begun without a change."""
        self._from_s = now_s + self._rest_s
        self._rest_s = min(2 * self._rest_s, self._timing.change_s)

    def is_due(self, own: StoreList, now_s: float) -> bool:
        """Whether another list than this one is wanted, and was not tried a moment ago."""
        return self.wanted not in {None, own} and now_s >= self._from_s


def advanced(bridge: Bridge, noted: Mapping[str, Stage]) -> Bridge:
    """Return the record of the stage to which a change has come. noted: what each store has."""
    at = {store for store, stage in noted.items() if stage >= bridge.stage}
    if bridge.stage is Stage.JOINT and bridge.lists[-1].stores <= at:
        return replace(bridge, stage=Stage.SETTLING)
    if bridge.stage is Stage.SETTLING and are_stable(bridge.lists, at):
        return settled(bridge)
    return bridge


def settled(bridge: Bridge) -> Bridge:
    """Return the record of a change when a stable set of both lists has noted that it settles.

    That is, that all stores of the new list hold the stream: it alone counts.
    """
    return replace(bridge, stage=Stage.SETTLED, lists=bridge.lists[-1:])
