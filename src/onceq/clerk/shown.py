"""What a clerk shows of its session: where it is, what it sent and received last, what is due.

The base of Clerk and AsyncClerk. It only reads.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from onceq.clerk.session import Session
from onceq.model.client_state import ClientState
from onceq.model.element import EndUser

T = TypeVar("T")
R = TypeVar("R")


class Shown(Generic[T, R]):
    """The session of a clerk, to be looked at."""

    __slots__ = ("__weakref__", "_session")

    def __init__(self, session: Session[T, R]) -> None:
        self._session = session

    @property
    def state(self) -> ClientState:
        """Where this client is (BHM90 figure 1); after connect, what was recovered."""
        return self._session.state

    @property
    def last_sent(self) -> str | None:
        """The rid of the last request, s_rid."""
        return self._session.s_rid

    @property
    def last_user(self) -> EndUser | None:
        """The end user of the last request, and where they were (C19)."""
        return self._session.user

    @property
    def last_received(self) -> str | None:
        """The rid of the last reply received with a checkpoint or acknowledged, r_rid."""
        return self._session.r_rid

    @property
    def checkpoint(self) -> bytes | None:
        """The checkpoint that was given with `last_received`; None: there was none."""
        return self._session.ckpt

    @property
    def was_disconnected(self) -> bool:
        """Whether the former session was ended by `disconnect`."""
        return self._session.was == "disconnected"

    @property
    def outstanding(self) -> list[str]:
        """The rids sent whose replies are not handed out yet, in the order of sending."""
        return list(self._session.outstanding)

    @property
    def unacknowledged(self) -> list[str]:
        """The rids whose replies are handed out but not acknowledged."""
        return list(self._session.received)

    @property
    def room(self) -> int:
        """How many requests may be sent now, before any is received and acknowledged (C6)."""
        return self._session.room
