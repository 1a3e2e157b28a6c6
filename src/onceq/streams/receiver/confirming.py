"""What a receiver tells its source that its application has processed, and when. Pure.

It is told at once, as one number below which everything has ended; on each link from the beginning,
and again after a while, so that the source knows that the receiver lives. It is known to the source
by its registration, whatever link it is on. Source: UM, "Confirmed Delivery"; spec M17, M18.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from onceq.streams.model import asks


def registered_as(session: int, regids: Mapping[str, int]) -> int:
    """Return by what a source knows a receiver: its session, or what stands for a registration."""
    if session or not regids:
        return session
    store = min(regids)
    named = hashlib.sha256(f"{store}/{regids[store]}".encode()).digest()
    return int.from_bytes(named[:8], "little")


class Confirming:
    """What the source was told. receiver: see `registered_as`.

    again_s: what was said is said again after so long; 0: never.
    """

    def __init__(self, stream: int, receiver: int, again_s: float) -> None:
        self._stream = stream
        self._receiver = receiver
        self._again_s = again_s
        self._said: tuple[int, int, int] = (0, 0, 0)
        self._said_s = 0.0

    def due(self, below: int, *, epoch: int, link: int, now_s: float) -> asks.Confirm | None:
        """Return what is to be said now; None: nothing. link: a number, of no former link.

        epoch: that the receiver follows; 0: none, and so nothing is said. below: all has ended.
        """
        is_late = bool(self._again_s) and now_s - self._said_s >= self._again_s
        if epoch == 0 or ((link, epoch, below) == self._said and not is_late):
            return None
        return asks.Confirm(stream=self._stream, epoch=epoch, receiver=self._receiver, below=below)

    def said(self, one: asks.Confirm, *, link: int, now_s: float) -> None:
        """Note that something is on its way to the source."""
        self._said, self._said_s = (link, one.epoch, one.below), now_s
