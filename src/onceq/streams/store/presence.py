"""Which users of registrations a store hears, and which lives it refuses for them. Pure.

In memory alone: when a store begins anew, nobody is connected to it. A user is on one link; where
that is closed it is gone at once. Source: spec M1, M8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from onceq.streams.model.uses import InUse
from onceq.streams.store.lifetimes import Who

SOURCE: Final = ""
"""The key of the source of a stream, among those of its receivers."""


class User(msgspec.Struct, kw_only=True):
    """A life that uses a registration. activity_s: after so long of silence it counts as gone.

    heard: how often; since_s: when last.
    """

    life: int
    link: int
    activity_s: float
    since_s: float
    heard: int = 0


class Presence:
    """The users, by the stream and the key of their registration. clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._users: dict[Who, User] = {}

    def other(self, who: Who, life: int) -> InUse | None:
        """Return the live user of a registration that is another life; None: there is none."""
        user = self._users.get(who)
        if user is None or user.life == life:
            return None
        if self._clock() - user.since_s > user.activity_s:
            return None
        return InUse(life=user.life, heard=user.heard)

    def use(self, who: Who, life: int, *, link: int, activity_ms: int) -> None:
        """Note that a life is the user of a registration, on a link. 0 ms: it refuses nobody."""
        user = self._users.get(who)
        heard = user.heard if user is not None and user.life == life else 0
        if activity_ms == 0:
            self._users.pop(who, None)
            return
        self._users[who] = User(
            life=life,
            link=link,
            activity_s=activity_ms / 1_000,
            since_s=self._clock(),
            heard=heard,
        )

    def hear(self, who: Who, life: int) -> None:
        """Note that something was heard of a user; of another life than it: nothing."""
        user = self._users.get(who)
        if user is not None and user.life == life:
            user.heard += 1
            user.since_s = self._clock()

    def see(self, who: Who, life: int) -> None:
        """Note that a user is there, though what it says has no effect."""
        user = self._users.get(who)
        if user is not None and user.life == life:
            user.since_s = self._clock()

    def leave(self, who: Who, life: int) -> None:
        """Note that a life does not use a registration any more."""
        user = self._users.get(who)
        if user is not None and user.life == life:
            del self._users[who]

    def close(self, link: int) -> None:
        """Note that a link is closed: who was on it is gone."""
        for who in [who for who, user in self._users.items() if user.link == link]:
            del self._users[who]
