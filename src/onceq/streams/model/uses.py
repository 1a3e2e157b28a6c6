"""Who uses a registration, and whether somebody else does: what stores say, and what follows. Pure.

A registration is a source's (topic and session) or a receiver's (session, or the id that it chose).
A store hears its user on a link: as long as that is open, and something was heard on it within the
user's activity time-out, the user is live, and another one is refused. What decides is what a store
hears, so that one that was killed, whose links are closed, is taken over at once. One that is
silent may come back; so it counts as gone only after its time-out. Nothing here is needed for what
is stable: that the fence keeps. Source: UM, ume_activity_timeout; spec M1, M8; streams.md 5.

A life that is refused asks again: only if a store has heard the other one since, and again, it
gives up. So it never gives up for one that is dead or frozen, or that is entering at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Final, TypeAlias

import msgspec

from onceq.streams.model.quorum import StoreList, are_recovered, are_stable, stores_of
from onceq.streams.model.tagged import Tagged

BEATS: Final = 4
"""A user is heard so often in its activity time-out, though it has nothing to say."""
BEAT_S_MAX: Final = 1.0
"""And at least so often, so that who is refused soon knows."""
RISES: Final = 2
"""So often a store must have heard more of a user, before it is sure to live."""
KEY_MAX: Final = 255
Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class InUse(Tagged, frozen=True):
    """Another life is live in this registration. heard: how often, since it is on its link.

    Only what it says once it is registered counts for that.
    """

    life: Natural
    heard: Natural = 0


class Leave(Tagged, frozen=True):
    """This life of a receiver has not come in: it was refused elsewhere. key: its name."""

    stream: Natural
    key: Annotated[str, msgspec.Meta(max_length=KEY_MAX)]
    life: Natural


class Watch:
    """What one that is refused has heard of the other user. sure: stores where it surely lives."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[InUse, int]] = {}

    def note(self, users: Mapping[str, InUse]) -> None:
        """Take what stores say now; one that says nothing has no user, or does not answer."""
        before, self._known = self._known, {}
        for store, user in users.items():
            known, rises = before.get(store, (user, 0))
            if known.life != user.life:
                known, rises = user, 0
            self._known[store] = user, rises + (user.heard > known.heard)

    @property
    def sure(self) -> frozenset[str]:
        """The stores that have heard the user again and again."""
        return frozenset(store for store, (_, rises) in self._known.items() if rises >= RISES)


def beat_s(activity_ms: int) -> float:
    """Return how often a user is to be heard; 0: it need not be."""
    return min(activity_ms / 1_000 / BEATS, BEAT_S_MAX)


def own_part(life: int, turn: int) -> float:
    """Return how much of a rest a life takes before it tries again: between 0 and 1, at first 0.

    Two that begin at once, and are as fast, would else refuse each other each time.
    """
    if turn == 0:
        return 0.0
    digest = hashlib.sha256(f"{life} {turn}".encode()).digest()
    return int.from_bytes(digest[:2], "little") / (1 << 16)


def may_take_over(
    lists: tuple[StoreList, ...], free: AbstractSet[str], used: AbstractSet[str]
) -> bool:
    """Whether a life of a source may fence. free, used: stores that know no other user, or one.

    One user that is heard by fewer stores than do not hear it, and these can recover, cannot send.
    """
    return not used or (are_recovered(lists, free) and len(free) > len(used))


def is_source_in_use(lists: tuple[StoreList, ...], sure: AbstractSet[str]) -> bool:
    """Whether so many stores surely hear another life of a source that there is no other way.

    Those left could not recover, or they are fewer. It takes a quorum to say so: one store of three
    that is cut off from the others does not.
    """
    stores = stores_of(lists)
    return bool(sure) and (not are_recovered(lists, stores - sure) or 2 * len(sure) > len(stores))


def is_receiver_in_use(lists: tuple[StoreList, ...], used: AbstractSet[str]) -> bool:
    """Whether so many stores have another life of a receiver that no stable set is left."""
    return bool(used) and not are_stable(lists, stores_of(lists) - used)
